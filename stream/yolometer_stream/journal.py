"""Journal: how the states of one partition live in a compacted topic: snapshots and the messages since. Pure: no IO, no clock.

The *bundle* of a name (topic, key) is all that operators remember of its messages: `{operator: {event key: state}}`.
A record of the journal has a key `[topic, key, epoch, slot]` (msgpack) and a value of a header and a body:

slot 0        the snapshot: the bundle as msgpack (or JSON), compressed; large ones go on in slots -1, -2, ...
slot 1..n     the messages that were handled since the snapshot, as they came
name ["", ""] the mark that this partition lost its state once: see `asks`

One message is one record, for all operators together, so no crash leaves one of them behind. A message counts only when its
`generation` is that of the snapshot, so a new snapshot makes all older messages void without a tombstone.

The *epoch* is the reign of one worker over the partition. A worker writes only records of its own epoch, beginning with a
snapshot, and then deletes those of earlier epochs. So a worker that was paused and does not know that it lost the partition
cannot overwrite what its successor writes: the highest epoch that has a snapshot counts.
"""

from __future__ import annotations

import json
import struct
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgpack
import zstandard

from yolometer_core.errors import BadDeploy
from yolometer_stream.advance import States
from yolometer_stream.handle import handle
from yolometer_stream.operator import Operator

STATE_VERSION = 1
"""Grows when the state of any operator changes its shape; a state of another version is lost, and rebuilt if there is a store."""
MOST_DELTAS = 64
LEAST_DELTA_BYTES = 4096
MOST_RECORD_BYTES = 900_000
SHORT_BYTES = 400
ASKS_MS = 30 * 86_400_000

Name = tuple[str, str]
Record = tuple[bytes, bytes | None]
_Slot = tuple[Name, int, int, bytes | None]  # name, epoch, slot, value
_HEAD = struct.Struct(">BBIH")  # version of the state, kind, generation, number of further parts
_DELTA, _MARK = 0, 1
_MSGPACK, _MSGPACK_ZSTD, _JSON, _JSON_ZSTD = 2, 3, 4, 5
_MARK_NAME: Name = ("", "")
_compressor = zstandard.ZstdCompressor(level=1)
_decompressor = zstandard.ZstdDecompressor()


@dataclass
class _Live:
    """A bundle in use.

    `written` tells that this epoch has a snapshot of it; `pending` are messages that are not saved yet; `base` is what
    a bundle began with that no record holds yet.
    """

    bundle: States
    base: str = "{}"
    generation: int = 0
    deltas: int = 0
    delta_bytes: int = 0
    snapshot_bytes: int = 0
    written: bool = False
    pending: list[bytes] = field(default_factory=list)


class Journal:
    """The bundles of one partition. Records come in with `apply`, in the order of the topic, and go out with `save`."""

    def __init__(self, operators: Mapping[str, Operator], on_lost: Callable[[Name], object] = lambda name: None) -> None:
        self._operators = operators
        self._on_lost = on_lost
        self._records: dict[Name, dict[tuple[int, int], bytes]] = {}
        self._live: OrderedDict[Name, _Live] = OrderedDict()
        self._dirty: dict[Name, None] = {}
        self._marks: list[Record] = []
        self.epoch = 0
        self._newest_epoch = 0
        self.lost_at_ms: int | None = None

    def __len__(self) -> int:
        """How many names have a state."""
        return len(self._records)

    @property
    def live(self) -> int:
        """How many bundles are held ready."""
        return len(self._live)

    def apply(self, key: bytes, value: bytes | None) -> None:
        """Take a record of the topic, again or for the first time; records that make no sense are passed over."""
        where = _where(key)
        if where is None:
            return
        name, epoch, slot = where
        self._live.pop(name, None)
        if name == _MARK_NAME:
            self.lost_at_ms = None if value is None else _mark(value)
            return
        if value is None:
            records = self._records.get(name, {})
            records.pop((epoch, slot), None)
            if not records:
                self._records.pop(name, None)
            return
        self._newest_epoch = max(self._newest_epoch, epoch)
        self._records.setdefault(name, {})[epoch, slot] = value

    def begin(self, generation: int) -> None:
        """Begin an epoch: all records of the topic were applied, this worker is the only owner now. Nothing is live."""
        self.epoch = self._newest_epoch = max(generation, self._newest_epoch + 1)
        self._live.clear()
        self._dirty.clear()

    def bundle(self, name: Name) -> States | None:
        """The bundle of a name, for `handle` to change; None when there is none (then `start` one).

        BadDeploy when a message that an earlier version handled cannot be handled again by this one.
        """
        live = self._live.get(name)
        if live is None:
            live = self._open(name)
            if live is None:
                return None
            self._live[name] = live
        self._live.move_to_end(name)
        return live.bundle

    def start(self, name: Name, bundle: States) -> States:
        """Begin the bundle of a name that has none."""
        self._live[name] = _Live(bundle, base=json.dumps(bundle))
        return bundle

    def took(self, name: Name, raw: bytes) -> None:
        """The live bundle of `name` was advanced by this message."""
        self._live[name].pending.append(raw)
        self._dirty[name] = None

    def undo(self, name: Name) -> None:
        """The live bundle was left half-way by a message that failed: make it again as it was before that message."""
        half = self._live.pop(name)
        live = self._open(name) if name in self._records else None
        live = live or _Live(json.loads(half.base), half.base)
        for raw in half.pending:
            self._again(name, live.bundle, raw)
        live.pending = half.pending
        self._live[name] = live

    def save(self) -> list[Record]:
        """The records that keep what was taken since the last save, in the order in which they must be written."""
        records, self._marks = self._marks, []
        for name in self._dirty:
            for slot in self._saved(name, self._live[name]):
                self._keep(*slot)
                records.append((_key(*slot[:3]), slot[3]))
        self._dirty.clear()
        return records

    def trim(self, most: int) -> None:
        """Let the bundles go that were not used for longest, so that at most `most` are held ready (all are saved)."""
        while len(self._live) > most and not self._dirty:
            self._live.popitem(last=False)

    def lost(self, at_ms: int) -> None:
        """Note that this partition has lost its state: names that are not known were perhaps known before."""
        self.lost_at_ms = at_ms
        self._marks.append((_key(_MARK_NAME, 0, 0), _HEAD.pack(STATE_VERSION, _MARK, 0, 0) + struct.pack(">Q", at_ms)))

    def asks(self, at_ms: int) -> bool:
        """Whether a name that is not known has to be asked for elsewhere; for 30 days (event time) after a loss."""
        return self.lost_at_ms is not None and at_ms < self.lost_at_ms + ASKS_MS

    def _keep(self, name: Name, epoch: int, slot: int, value: bytes | None) -> None:
        if value is None:
            self._records[name].pop((epoch, slot), None)
        else:
            self._records.setdefault(name, {})[epoch, slot] = value

    def _saved(self, name: Name, live: _Live) -> list[_Slot]:
        pending, live.pending = live.pending, []
        size = sum(map(len, pending))
        deltas, delta_bytes = live.deltas + len(pending), live.delta_bytes + size
        small = live.snapshot_bytes <= size or max(map(len, pending)) > MOST_RECORD_BYTES
        full = deltas > MOST_DELTAS or delta_bytes > max(LEAST_DELTA_BYTES, live.snapshot_bytes)
        if not live.written or small or full:
            return self._snapshot(name, live)
        head = _HEAD.pack(STATE_VERSION, _DELTA, live.generation, 0)
        found: list[_Slot] = [(name, self.epoch, live.deltas + 1 + at, head + raw) for at, raw in enumerate(pending)]
        live.deltas, live.delta_bytes = deltas, delta_bytes
        return found

    def _snapshot(self, name: Name, live: _Live) -> list[_Slot]:
        """A snapshot of the next generation: its further parts first, for without its head they are nothing."""
        kind, body = _packed(live.bundle)
        generation = (live.generation + 1) % 2**32
        parts = [body[at : at + MOST_RECORD_BYTES] for at in range(0, len(body), MOST_RECORD_BYTES)] or [b""]
        head = _HEAD.pack(STATE_VERSION, kind, generation, len(parts) - 1)
        further = [(_part(generation, number), part) for number, part in enumerate(parts)][1:]
        found: list[_Slot] = [(name, self.epoch, slot, head + part) for slot, part in (*further, (0, parts[0]))]
        if not live.written:
            old = [where for where in self._records.get(name, ()) if where[0] != self.epoch]
            found += [(name, epoch, slot, None) for epoch, slot in sorted(old)]
        live.written, live.generation = True, generation
        live.snapshot_bytes, live.deltas, live.delta_bytes = len(body), 0, 0
        return found

    def _open(self, name: Name) -> _Live | None:
        records = self._records.get(name)
        if not records:
            return None
        epoch = max((epoch for epoch, slot in records if slot == 0), default=None)
        live = None if epoch is None else self._read(name, {slot: value for (of, slot), value in records.items() if of == epoch})
        if live is None:
            self._on_lost(name)
            return None
        live.written = epoch == self.epoch
        return live

    def _read(self, name: Name, slots: dict[int, bytes]) -> _Live | None:
        """A bundle from the records of one epoch; None when they are of another version, or one is missing."""
        try:
            version, kind, generation, more = _HEAD.unpack_from(slots[0])
            heads = [_part(generation, number) for number in range(1, more + 1)]
            if version != STATE_VERSION or any(slots[slot][: _HEAD.size] != slots[0][: _HEAD.size] for slot in heads):
                return None
            body = b"".join(slots[slot][_HEAD.size :] for slot in (0, *heads))
            live = _Live(_unpacked(kind, body), generation=generation, snapshot_bytes=len(body))
            deltas = list(_deltas(slots, generation))
        except (KeyError, ValueError, struct.error, zstandard.ZstdError):
            return None
        for raw in deltas:
            if raw is None:
                return None
            self._again(name, live.bundle, raw)
            live.deltas += 1
            live.delta_bytes += len(raw)
        return live

    def _again(self, name: Name, bundle: States, raw: bytes) -> None:
        topic, key = name
        if handle(self._operators, bundle, key.encode(), raw, topic).failed:
            raise BadDeploy(
                f"A message of {key[:200]!r} in the topic {topic}, which an earlier version could handle, makes this one fail; "
                "roll this version back, then start again (nothing is lost)."
            )


def _deltas(slots: dict[int, bytes], generation: int) -> Iterator[bytes | None]:
    """The messages since the snapshot, in order; None for one that is missing before another one."""
    mine = sorted(slot for slot, value in slots.items() if slot > 0 and _HEAD.unpack_from(value)[2] == generation)
    for at, slot in enumerate(mine, start=1):
        yield slots[slot][_HEAD.size :] if slot == at else None


def _part(generation: int, number: int) -> int:
    """The slot of a further part; two generations never share one, so the older snapshot is whole until the newer is."""
    return -(2 * number + generation % 2)


def _key(name: Name, epoch: int, slot: int) -> bytes:
    packed: bytes = msgpack.packb([*name, epoch, slot])
    return packed


def _where(key: bytes) -> tuple[Name, int, int] | None:
    try:
        topic, name, epoch, slot = msgpack.unpackb(key)
    except Exception:  # noqa: BLE001  # whatever a foreign record does to the decoder, it is none of ours
        return None
    fits = isinstance(topic, str) and isinstance(name, str) and isinstance(epoch, int) and isinstance(slot, int)
    return ((topic, name), epoch, slot) if fits else None


def _mark(value: bytes) -> int | None:
    return int.from_bytes(value[_HEAD.size :], "big") if len(value) == _HEAD.size + 8 else None


def _packed(bundle: States) -> tuple[int, bytes]:
    try:
        kind, body = _MSGPACK, msgpack.packb(bundle)
    except OverflowError:  # a whole number of more than 64 bits, which some log made up
        kind, body = _JSON, json.dumps(bundle, separators=(",", ":")).encode()
    return (kind, body) if len(body) < SHORT_BYTES else (kind + 1, _compressor.compress(body))


def _unpacked(kind: int, body: bytes) -> States:
    if kind not in (_MSGPACK, _MSGPACK_ZSTD, _JSON, _JSON_ZSTD):
        raise ValueError("no snapshot")
    packed = _decompressor.decompress(body) if kind in (_MSGPACK_ZSTD, _JSON_ZSTD) else body
    bundle: Any = json.loads(packed) if kind in (_JSON, _JSON_ZSTD) else msgpack.unpackb(packed)
    if not isinstance(bundle, dict):
        raise ValueError("no bundle")
    return bundle
