"""A batch of the sink: what came of some messages, and how far it reaches in each partition."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

from yolometer_core.events import Event
from yolometer_core.letters import Record
from yolometer_sinks.collect import Taken

Part = tuple[str, int]
"""A partition: its topic and its number."""


@dataclass
class Batch:
    """Messages in the order in which they came. `next_offsets` is where reading goes on after them, by partition."""

    begun_s: float
    taken: list[Taken] = field(default_factory=list)
    next_offsets: dict[Part, int] = field(default_factory=dict)
    rows: int = 0
    size_bytes: int = 0
    built: dict[str, Any] | None = None
    """The events as columns, where somebody made them already."""
    is_prepared: bool = False

    def add(self, taken: Taken) -> None:
        record = taken.record
        self.taken.append(taken)
        self.next_offsets[record.topic, record.partition] = record.offset + 1
        self.rows += taken.rows
        self.size_bytes += len(record.value or b"")

    def without(self, parts: Collection[Part]) -> Batch:
        """The same without the messages of some partitions: another process has them now."""
        kept = Batch(self.begun_s)
        for taken in self.taken:
            if (taken.record.topic, taken.record.partition) not in parts:
                kept.add(taken)
        return kept

    @property
    def events(self) -> list[Event]:
        return [event for taken in self.taken for event in taken.events]

    def origin(self, event: Event) -> tuple[Record, int]:
        """The message that this very event came in, and its place there."""
        for taken in self.taken:
            for place, one in zip(taken.places, taken.events, strict=True):
                if one is event:
                    return taken.record, place
        raise KeyError(event.event_id)

    def __bool__(self) -> bool:
        return bool(self.taken)
