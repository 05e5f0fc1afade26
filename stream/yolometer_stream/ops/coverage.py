"""Coverage: how many samples of a node came in each hour, and how many there should be. State: counts of the last hours."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from yolometer_core.delivery import Coverage
from yolometer_core.events import Event
from yolometer_core.gpu import Gpu
from yolometer_core.times import EPOCH, from_ms
from yolometer_stream.operator import State

_MS = timedelta(milliseconds=1)
HOUR_MS, MINUTE_MS = 3_600_000, 60_000


@dataclass(frozen=True)
class CoverageOfNode:
    """Takes Gpu, gives the Coverage of an hour (event time) of a node and source whenever a minute or an hour has passed.

    Expected are the periods since the last tick that was seen, times the GPUs there are now; the first message of a source
    expects what it brings. So a gap counts as missing in the hours where it lies, however long after it the next message
    comes, as far back as `hours` reach. A message with a `seq` that its source has passed changes nothing. The row of an hour
    is said again when it has grown; its `version` is the `seq` of the message at which it was said. What a source that ends
    sent in its last minute is not said any more.
    """

    hours: int = 3

    @property
    def takes(self) -> tuple[type[Event], ...]:
        return (Gpu,)

    @property
    def gives(self) -> tuple[type[Event], ...]:
        return (Coverage,)

    def start(self) -> State:
        return {"sources": {}}

    def step(self, state: State, event: Event) -> tuple[State, list[Event]]:
        if not isinstance(event, Gpu):
            return state, []
        source = state["sources"].get(event.source)
        if source is None:
            source = state["sources"][event.source] = _unseen()
        if event.seq <= source["seq"]:
            return state, []
        source["seq"] = event.seq
        unsaid = source["unsaid"]
        for hour in self._count(source, event):
            if hour not in unsaid:
                unsaid.append(hour)
        minute = source["last_ms"] // MINUTE_MS
        if source["said_min"] == minute:
            return state, []
        source["said_min"], source["unsaid"] = minute, []
        hours = source["hours"]
        return state, [_row(event, hour, hours[hour]) for hour in unsaid if hour in hours]

    def _count(self, source: dict[str, Any], event: Gpu) -> list[str]:
        """Add a message to the hours it lies in; returns which hours these are."""
        gpus, period_ms, offsets_ms = len(event.gpu_uuid), event.period_s * 1000, event.offsets_ms
        start_ms: int = (event.ts - EPOCH) // _MS
        first_ms, end_ms = start_ms + offsets_ms[0], start_ms + offsets_ms[-1]
        last_ms: int | None = source["last_ms"]
        if last_ms is not None and end_ms < last_ms - self.hours * HOUR_MS:
            # its clock was far ahead and was set right: what it said in between lies in hours that are still to come
            last_ms, source["hours"] = None, {}
        source["last_ms"] = newest_ms = end_ms if last_ms is None else max(end_ms, last_ms)
        oldest = newest_ms // HOUR_MS - self.hours + 1
        first, last = first_ms // HOUR_MS, end_ms // HOUR_MS
        # samples, samples expected, messages
        grown = {first: [0, 0, 1]}
        if first == last:
            grown[first][0] = gpus * len(offsets_ms)
        else:
            for offset_ms in offsets_ms:
                grown.setdefault((start_ms + offset_ms) // HOUR_MS, [0, 0, 0])[0] += gpus
        before_ms = first_ms - period_ms if last_ms is None else last_ms
        for hour, ticks in _expected(end_ms, before_ms, period_ms, oldest):
            grown.setdefault(hour, [0, 0, 0])[1] += ticks * gpus
        hours: dict[str, list[int]] = source["hours"]
        touched = [str(hour) for hour, counts in grown.items() if hour >= oldest and any(counts)]
        for name in touched:
            counts, more = hours.setdefault(name, [0, 0, 0]), grown[int(name)]
            for at in range(3):
                counts[at] += more[at]
        if len(hours) > self.hours:
            source["hours"] = {name: counts for name, counts in hours.items() if int(name) >= oldest}
        return touched


def _unseen() -> dict[str, Any]:
    return {"seq": -1, "last_ms": None, "said_min": None, "hours": {}, "unsaid": []}


def _expected(end_ms: int, before_ms: float, period_ms: float, oldest: int) -> list[tuple[int, int]]:
    """How many ticks there should be in each hour, after `before_ms` until `end_ms`.

    They are counted back from the last tick, so that they lie on its grid: end - k * period for k from 0 to total - 1.
    """
    total = round((end_ms - before_ms) / period_ms)
    if total <= 0:
        return []
    start_ms = end_ms - (total - 1) * period_ms
    if start_ms // HOUR_MS == end_ms // HOUR_MS:
        return [(end_ms // HOUR_MS, total)]
    found = []
    for hour in range(max(int(start_ms // HOUR_MS), oldest), end_ms // HOUR_MS + 1):
        past_ms = end_ms - (hour + 1) * HOUR_MS
        newest = 0 if past_ms < 0 else int(past_ms // period_ms) + 1
        eldest = min(int((end_ms - hour * HOUR_MS) // period_ms), total - 1)
        found.append((hour, max(eldest - newest + 1, 0)))
    return found


def _row(event: Gpu, hour: str, counts: list[int]) -> Coverage:
    samples, expected, messages = counts
    return Coverage(
        ts=from_ms(int(hour) * HOUR_MS),
        node=event.node,
        source=event.source,
        seq=event.seq,
        version=event.seq,
        samples=samples,
        samples_expected=expected,
        messages=messages,
    )


OPERATOR = CoverageOfNode()
