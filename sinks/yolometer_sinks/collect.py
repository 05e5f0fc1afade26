"""Turns a message of Kafka into rows and dead letters. Pure: no client, no clock."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from yolometer_core import wire
from yolometer_core.delivery import DeadLetter, Message
from yolometer_core.events import Event
from yolometer_core.gpu import Gpu
from yolometer_core.letters import Record, letter, time_of
from yolometer_core.times import EPOCH, ms_of

SOURCE = "sink"
_MILLISECOND = timedelta(milliseconds=1)
_LATEST = datetime(2261, 12, 31, tzinfo=UTC)
_LATEST_MS = int(_LATEST.timestamp()) * 1000


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
        taken.dead.append(letter(record, -1, bad.reason, str(bad), node="", source=SOURCE))
        taken.seen = 1
        return taken
    taken.seen = len(batch.events) + len(batch.refused)
    refused = {one.at for one in batch.refused}
    places: Iterable[int] = (at for at in range(taken.seen) if at not in refused) if refused else range(taken.seen)
    taken.dead += [letter(record, one.at, one.reason, one.detail, node=batch.node, source=SOURCE) for one in batch.refused]
    for at, event in zip(places, batch.events, strict=True):
        if isinstance(event, Gpu):
            if (wrong := _clock(event, bounds)) is not None:
                taken.dead.append(letter(record, at, "clock", wrong, node=batch.node, source=SOURCE))
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


def minutes_of(events: Sequence[Event]) -> set[int]:
    """The minutes, in seconds since 1970, that the samples among the events lie in."""
    found: set[int] = set()
    for event in events:
        if isinstance(event, Gpu):
            begun_ms = ms_of(event.ts)
            first, last = begun_ms + event.offsets_ms[0], begun_ms + event.offsets_ms[-1]
            if last - first < 60_000:
                found.add(first // 60_000 * 60)
                found.add(last // 60_000 * 60)
            else:
                found |= {(begun_ms + offset_ms) // 60_000 * 60 for offset_ms in event.offsets_ms}
    return found


def _clock(event: Gpu, bounds: Bounds) -> str | None:
    begun_ms, offsets_ms = ms_of(event.ts), event.offsets_ms
    first, last = begun_ms + offsets_ms[0], begun_ms + offsets_ms[-1]
    if first >= bounds.from_ms and last <= bounds.to_ms:
        return None
    wrong = "too long ago" if first < bounds.from_ms else "in the future"
    return f"gpu: its samples from {event.ts:%Y-%m-%d %H:%M:%S} UTC are {wrong}; correct the clock of {event.node}."


def _message(record: Record, batch: wire.Batch, taken: Taken) -> Message:
    times = [time for event in taken.events for time in _span(event) if EPOCH <= time < _LATEST]
    return Message(
        ts=time_of(batch.at_ms if batch.at_ms <= _LATEST_MS else record.at_ms),
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
