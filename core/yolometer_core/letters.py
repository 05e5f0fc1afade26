"""Dead letters: how a message that cannot be used is kept, so that it can be looked at and sent again. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import NamedTuple

import msgpack

from yolometer_core import wire
from yolometer_core.delivery import DeadLetter, DeadReason
from yolometer_core.times import from_ms

MOST_RAW_BYTES = 850_000
"""So much of a message is kept; no message of ours is longer (wire.MOST_BYTES)."""
_MOST_BYTES = 900_000
_LATEST_MS = int(datetime(2261, 12, 31, tzinfo=UTC).timestamp()) * 1000


class Record(NamedTuple):
    """A message as it lay in Kafka, `topic` by its full name; `at_ms` is the time Kafka knows of it, in ms since 1970."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    at_ms: int


def letter(record: Record, at: int, reason: DeadReason, detail: str, *, node: str, source: str) -> DeadLetter:
    """The dead letter of a message (`at` -1), or of the event number `at` of it, as a message that holds only that one.

    The same message gives the same letter (`event_id`), whichever service finds it, and however often.
    """
    raw = record.value or b""
    if at >= 0:
        raw = alone(raw, at)
    cut = f" (the first {MOST_RAW_BYTES} of its {len(raw)} bytes are kept)" if len(raw) > MOST_RAW_BYTES else ""
    return DeadLetter(
        ts=time_of(record.at_ms),
        node=node or "unknown",
        source=source,
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


def packed(letters: Iterable[DeadLetter]) -> list[wire.Packed]:
    """Letters as they travel; each fits into a message, also one that holds a whole message."""
    return wire.batches(letters, _MOST_BYTES)[0]


def alone(raw: bytes, at: int) -> bytes:
    """One event of a message, as a message that holds nothing else: it can be sent again as it is."""
    said = msgpack.unpackb(raw)
    found: bytes = msgpack.packb({**said, "lane": None, "seq": None, "events": [said["events"][at]]})
    return found


def time_of(at_ms: int) -> datetime:
    """A time in ms since 1970, as far as the store knows times."""
    return from_ms(min(max(at_ms, 0), _LATEST_MS))
