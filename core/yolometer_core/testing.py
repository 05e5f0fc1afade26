"""Public fakes, shipped next to the interfaces they stand in for: a clock, a sink and a store that need no outside world."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

from yolometer_core.errors import BadUsage
from yolometer_core.events import Event


class ManualClock:
    """A clock that only moves when told to.

    `monotonic()` never goes back, `wall()` may: `step_back` is what NTP or an operator does to a machine.
    """

    def __init__(self, wall: datetime = datetime(2026, 1, 1, tzinfo=UTC), monotonic_s: float = 1000.0) -> None:
        self._wall = wall
        self._monotonic_s = monotonic_s

    def monotonic(self) -> float:
        """Seconds since some fixed point."""
        return self._monotonic_s

    def wall(self) -> datetime:
        """The time of day, in UTC."""
        return self._wall

    def advance(self, seconds: float) -> None:
        """Let time pass, for both clocks; also fits where a `sleep` is asked for."""
        if seconds < 0:
            raise BadUsage(f"A clock advances by 0 s or more; got {seconds}, use step_back to set the wall clock back.")
        self._monotonic_s += seconds
        self._wall += timedelta(seconds=seconds)

    def step_back(self, seconds: float) -> None:
        """Set the wall clock back (forward if negative); the monotonic clock does not notice."""
        self._wall -= timedelta(seconds=seconds)


class ListSink:
    """A sink that is a list: `write` appends to `events`. Set `error` to let every write fail with it, nothing written."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.error: Exception | None = None

    def write(self, events: Iterable[Event]) -> None:
        """Take events, in order; all or none."""
        if self.error is not None:
            raise self.error
        self.events.extend(events)


class MemoryStore:
    """A store that is a list: every write is kept in `written`, `rows` reads it the way a store reads with FINAL."""

    def __init__(self) -> None:
        self.written: list[Event] = []

    def write(self, events: Iterable[Event]) -> None:
        """Keep events; the same event twice is kept twice and read once."""
        self.written.extend(events)

    def rows(self, table: str) -> list[dict[str, Any]]:
        """The rows of a table: of each `event_id` the one with the highest version (the last written of equals), no deleted ones.

        In the order in which the ids were first written. Events without a version count as version 0.
        """
        latest: dict[str, Event] = {}
        for event in self.written:
            if event.table == table:
                before = latest.get(event.event_id)
                if before is None or getattr(event, "version", 0) >= getattr(before, "version", 0):
                    latest[event.event_id] = event
        return [event.row() for event in latest.values() if not getattr(event, "is_deleted", False)]

    def query(self, sql: str, **parameters: object) -> list[dict[str, Any]]:
        """Not supported: a list knows no SQL."""
        raise BadUsage("A store in memory cannot answer SQL; use rows(table), or chdb://memory for queries.")
