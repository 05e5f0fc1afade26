"""The events about the way of other events: what was dropped, what could not be read, what arrived, how much is covered."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from yolometer_core.events import Event, Utc

DeadReason = Literal[
    "garbage", "version", "type", "field", "key", "empty", "tombstone", "clock", "too_large", "store", "step", "codec"
]


class Loss(Event):
    """Messages of a lane that an agent could not keep: the only data that may be missing, and it says so itself.

    `source` is the lane of the spool, `seq` the first and `last_seq` the last number that is gone.
    """

    table: ClassVar[str] = "loss"
    topic: ClassVar[str | None] = "fact"
    identity: ClassVar[tuple[str, ...]] = ("node", "source", "seq", "reason")

    last_seq: int = Field(ge=0)
    messages: int = Field(ge=0)
    size_bytes: int = Field(ge=0)
    reason: Literal["full", "old", "damaged", "too_large"]


class DeadLetter(Event):
    """A message, or one event of it (`index`), that cannot be understood or stored, with its bytes as they came.

    `source` is the service that found it. `retried_ts` tells that a person sent it again; `version` grows with it.
    """

    table: ClassVar[str] = "dead"
    topic: ClassVar[str | None] = "dead"
    identity: ClassVar[tuple[str, ...]] = ("from_topic", "from_partition", "from_offset", "index", "digest")

    from_topic: str
    from_partition: int = Field(ge=0)
    from_offset: int = Field(ge=0)
    index: int = Field(default=-1, ge=-1)
    reason: DeadReason
    detail: str
    raw_key: bytes
    raw: bytes
    digest: str
    version: int = Field(default=0, ge=0)
    retried_ts: Utc | None = None

    @property
    def key(self) -> str:
        return f"{self.from_topic}/{self.from_partition}"


class Message(Event):
    """A message of an agent as it arrived: by `seq` (its number in the lane `source` of the agent) gaps are found.

    `ts` is when the agent spooled it, `topic`, `partition` and `offset` where it lay in Kafka when it was last read.
    """

    table: ClassVar[str] = "message"

    from_topic: str
    from_partition: int = Field(ge=0)
    from_offset: int = Field(ge=0)
    events: int = Field(ge=0)
    rows: int = Field(ge=0)
    size_bytes: int = Field(ge=0)
    first_ts: Utc | None = None
    last_ts: Utc | None = None


class Coverage(Event):
    """Samples of a node's meter in one hour (`ts` is its start): how many came and how many there should be."""

    table: ClassVar[str] = "coverage"
    topic: ClassVar[str | None] = "rate"
    identity: ClassVar[tuple[str, ...]] = ("node", "source", "ts")

    version: int = Field(ge=0)
    samples: int = Field(ge=0)
    samples_expected: int = Field(ge=0)
    messages: int = Field(ge=0)
