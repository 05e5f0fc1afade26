"""Turns a message of Kafka into rows and dead letters. Pure: no client, no clock."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

import msgpack

from yolometer_core import wire
from yolometer_core.delivery import DeadLetter, DeadReason, Message
from yolometer_core.events import Event
from yolometer_core.gpu import Gpu

SOURCE = "sink"
MOST_RAW_BYTES = 850_000
"""So much of a message is kept in its dead letter, which has to fit into one message itself."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND, _MILLISECOND = timedelta(microseconds=1), timedelta(milliseconds=1)
_LATEST = datetime(2261, 12, 31, tzinfo=UTC)
_LATEST_MS = int(_LATEST.timestamp()) * 1000


class Record(NamedTuple):
    """A message as it lay in Kafka; `at_ms` is the time Kafka knows of it, in ms since 1970."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    at_ms: int


class Bounds(NamedTuple):
    """Between which times samples are believed, in ms since 1970."""

    from_ms: int
    to_ms: int


@dataclass
class Taken:
    """What came of one message: events to store, the place of each in the message (-1: the message itself), dead letters."""

    record: Record
    events: list[Event] = field(default_factory=list)
    places: list[int] = field(default_factory=list)
    dead: list[DeadLetter] = field(default_factory=list)
    rows: int = 0
    seen: int = 0


def collect(record: Record, bounds: Bounds) -> Taken:
    """Read a message: its rows, one row about a numbered message itself, and dead letters for what cannot be stored.

    Samples outside `bounds` are refused with the reason `clock`: the store keeps them by day.
    """
    taken = Taken(record)
    try:
        batch = wire.read(record.value)
    except wire.BadWire as bad:
        taken.dead.append(letter(record, -1, bad.reason, str(bad)))
        taken.seen = 1
        return taken
    taken.seen = len(batch.events) + len(batch.refused)
    refused = {one.at for one in batch.refused}
    places: Iterable[int] = (at for at in range(taken.seen) if at not in refused) if refused else range(taken.seen)
    taken.dead += [letter(record, one.at, one.reason, one.detail, batch.node) for one in batch.refused]
    for at, event in zip(places, batch.events, strict=True):
        if isinstance(event, Gpu):
            if (wrong := _clock(event, bounds)) is not None:
                taken.dead.append(letter(record, at, "clock", wrong, batch.node))
                continue
            taken.rows += event.samples
        elif event.is_row:
            taken.rows += 1
        else:
            continue
        taken.events.append(event)
        taken.places.append(at)
    if batch.lane is not None and batch.seq is not None:
        taken.events.append(_message(record, batch, taken))
        taken.places.append(-1)
        taken.rows += 1
    return taken


def letter(record: Record, at: int, reason: DeadReason, detail: str, node: str = "unknown") -> DeadLetter:
    """The dead letter of a message (`at` -1), or of one event of it, as a message that holds only that one."""
    raw = record.value or b""
    if at >= 0:
        raw = _alone(raw, at)
    cut = f" (the first {MOST_RAW_BYTES} of its {len(raw)} bytes are kept)" if len(raw) > MOST_RAW_BYTES else ""
    return DeadLetter(
        ts=_time(record.at_ms),
        node=node,
        source=SOURCE,
        seq=record.offset,
        from_topic=record.topic,
        from_partition=record.partition,
        from_offset=record.offset,
        index=at,
        reason=reason,
        detail=(detail[:2000] + cut).encode("utf-8", "replace").decode(),
        raw_key=(record.key or b"")[:10_000],
        raw=raw[:MOST_RAW_BYTES],
        digest=hashlib.md5(raw, usedforsecurity=False).hexdigest(),
    )


def minutes_of(events: Sequence[Event]) -> set[int]:
    """The minutes, in seconds since 1970, that the samples among the events lie in."""
    found: set[int] = set()
    for event in events:
        if isinstance(event, Gpu):
            begun_ms = _ms(event.ts)
            first, last = begun_ms + event.offsets_ms[0], begun_ms + event.offsets_ms[-1]
            if last - first < 60_000:
                found.add(first // 60_000 * 60)
                found.add(last // 60_000 * 60)
            else:
                found |= {(begun_ms + offset_ms) // 60_000 * 60 for offset_ms in event.offsets_ms}
    return found


def _clock(event: Gpu, bounds: Bounds) -> str | None:
    begun_ms = _ms(event.ts)
    first, last = begun_ms + event.offsets_ms[0], begun_ms + event.offsets_ms[-1]
    if first >= bounds.from_ms and last <= bounds.to_ms:
        return None
    wrong = "too long ago" if first < bounds.from_ms else "in the future"
    return f"gpu: its samples from {event.ts:%Y-%m-%d %H:%M:%S} UTC are {wrong}; correct the clock of {event.node}."


def _message(record: Record, batch: wire.Batch, taken: Taken) -> Message:
    times = [time for event in taken.events for time in _span(event) if _EPOCH <= time < _LATEST]
    return Message.model_construct(  # there is one for each message, and all in it was validated already
        schema_version=1,
        ts=_time(batch.at_ms if batch.at_ms <= _LATEST_MS else record.at_ms),
        node=batch.node,
        source=batch.lane or "",
        seq=batch.seq or 0,
        from_topic=record.topic,
        from_partition=record.partition,
        from_offset=record.offset,
        events=taken.seen,
        rows=taken.rows,
        size_bytes=len(record.value or b""),
        first_ts=min(times, default=None),
        last_ts=max(times, default=None),
    )


def _span(event: Event) -> tuple[datetime, ...]:
    if isinstance(event, Gpu):
        return event.ts + event.offsets_ms[0] * _MILLISECOND, event.ts + event.offsets_ms[-1] * _MILLISECOND
    return (event.ts,)


def _alone(raw: bytes, at: int) -> bytes:
    """One event of a message, as a message that holds nothing else: it can be sent again as it is."""
    said = msgpack.unpackb(raw)
    alone: bytes = msgpack.packb({**said, "lane": None, "seq": None, "events": [said["events"][at]]})
    return alone


def _ms(time: datetime) -> int:
    return ((time - _EPOCH) // _MICROSECOND + 500) // 1000


def _time(at_ms: int) -> datetime:
    return _EPOCH + timedelta(milliseconds=min(max(at_ms, 0), _LATEST_MS))
