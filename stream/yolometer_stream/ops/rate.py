"""Rate: rolling token rates of a run, from the work it did. State: one ring of buckets a run."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from yolometer_core.errors import BadConfig
from yolometer_core.events import Event, Rate, Work
from yolometer_core.maths.rates import ring_add, ring_query, ring_start
from yolometer_stream.operator import State

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class RateOfRun:
    """Takes Work, gives a Rate a window whenever the newest work of the run has passed the end of a bucket.

    All in event time: `ts` of a Rate is the bucket edge, so old logs give the rates of their day, and each (run, ts,
    window) is said once. Work counts once by (attempt, seq). Work that arrives late, but not more than `lateness_s`,
    counts in the rates said from then on; what was said is not said again. A run that ends says nothing more: a reader
    takes a run without a recent `ts` for one with rate 0.
    """

    windows_s: tuple[int, ...] = (60, 300, 3600)
    bucket_s: int = 5
    lateness_s: int = 900

    def __post_init__(self) -> None:
        if self.bucket_s <= 0 or not self.windows_s or any(w <= 0 or w % self.bucket_s for w in self.windows_s):
            raise BadConfig(f"windows_s must be multiples of bucket_s ({self.bucket_s}); got {self.windows_s}.")

    @property
    def takes(self) -> tuple[type[Event], ...]:
        return (Work,)

    @property
    def gives(self) -> tuple[type[Event], ...]:
        return (Rate,)

    def start(self) -> State:
        return {"ring": ring_start(self.bucket_s, max(self.windows_s), self.lateness_s), "said_s": None}

    def step(self, state: State, event: Event) -> tuple[State, list[Event]]:
        if not isinstance(event, Work):
            return state, []
        ring, end_s = state["ring"], (event.ts - EPOCH).total_seconds()
        ring_add(ring, (event.attempt, event.seq), end_s - event.duration_s, end_s, event.amount_mtok)
        if ring["watermark"] is None:
            return state, []
        edge_s = int(ring["watermark"] // self.bucket_s) * self.bucket_s
        if state["said_s"] is not None and edge_s <= state["said_s"]:
            return state, []
        state["said_s"] = edge_s
        return state, [self._rate(state, event, edge_s, window_s) for window_s in self.windows_s]

    def _rate(self, state: State, event: Work, edge_s: int, window_s: int) -> Rate:
        ring = state["ring"]
        window = ring_query(ring, edge_s, window_s)
        return Rate(
            ts=EPOCH + timedelta(seconds=edge_s),
            node=event.node,
            source=event.source,
            seq=event.seq,
            run_id=event.run_id,
            window_s=window_s,
            rate_mtok_s=window.rate,
            coverage_ratio=min(window.coverage, 1.0),
            active_rate_mtok_s=window.active_rate,
            late=ring["late"],
            duplicates=ring["duplicates"],
        )


OPERATOR = RateOfRun()
