"""Rate: rolling token rates of a run, from the work it did. State: one ring of buckets a run."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from yolometer_core.errors import BadConfig
from yolometer_core.events import Event, Rate, Work
from yolometer_core.maths.rates import ring_add, ring_query, ring_start
from yolometer_core.times import EPOCH
from yolometer_stream.operator import State


@dataclass(frozen=True)
class RateOfRun:
    """Takes Work, gives the Rate of a window whenever the newest work of the run has passed an edge of that window.

    Edges are `step_s` apart: every bucket for short windows, a sixtieth of the window for long ones, which change slowly.
    All in event time: `ts` of a Rate is the edge, so old logs give the rates of their day, and each (run, ts, window)
    is said once. Work counts once by (attempt, seq). Work that arrives late, but not more than `lateness_s`,
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
        said_s = state["said_s"]
        if said_s is not None and edge_s <= said_s:
            return state, []
        state["said_s"] = edge_s
        said: list[Event] = []
        for window_s in self.windows_s:
            step_s = self.step_s(window_s)
            if said_s is None or edge_s // step_s > said_s // step_s:
                said.append(self._rate(state, event, edge_s - edge_s % step_s, window_s))
        return state, said

    def step_s(self, window_s: int) -> int:
        """How far apart the edges of a window are, in whole buckets: 5, 5 and 60 seconds for 60, 300 and 3600."""
        return max(window_s // 60 // self.bucket_s, 1) * self.bucket_s

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
