"""Rate of the box: the rates of the runs of a node added up. State: the latest rates of each run, for each window."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from datetime import timedelta

from yolometer_core.events import Event, Rate
from yolometer_core.times import EPOCH
from yolometer_stream.operator import State

Said = list[float | None]  # one rate of a run: ts in seconds, MTok/s, coverage, active MTok/s, late, duplicates


@dataclass(frozen=True)
class RateOfBox:
    """Takes the Rates of runs, gives Rates of the node (`run_id` null) at every time at which one of its runs gave one.

    The row at T adds, for every run, its latest rate at T; a run that said nothing in (T - window, T] adds 0. The rates
    of different runs come in any order (they come from different partitions): a rate that arrives after newer ones of
    other runs corrects the rows it belongs to, which are said again, as long as they are younger than `correct_s`
    seconds of event time. So the rows do not depend on that order, unless runs are more than `correct_s` apart; what is
    older gives no row of its own and counts in the younger rows. A rate counts once by (run, window, ts), and one that
    no young row needs any more is forgotten: it changes no row when it comes again.

    `coverage_ratio` is the highest of the runs (at least that share was covered); `active_rate_mtok_s` is null when more
    than one run counts, because how the runs overlapped is not known here. `late` and `duplicates` are sums.
    """

    correct_s: int = 60
    """At least: two steps of a window of 3600 s are 120 s, and a run that lags 60 s may lag two edges."""

    @property
    def takes(self) -> tuple[type[Event], ...]:
        return (Rate,)

    @property
    def gives(self) -> tuple[type[Event], ...]:
        return (Rate,)

    def start(self) -> State:
        return {}

    def step(self, state: State, event: Event) -> tuple[State, list[Event]]:
        # What this operator gives comes back to it, for it is a Rate of the same node: null is where the loop ends.
        if not isinstance(event, Rate) or event.run_id is None:
            return state, []
        window = state.setdefault(str(event.window_s), {"newest": None, "times": [], "runs": {}})
        ts = (event.ts - EPOCH).total_seconds()
        window["newest"] = ts if window["newest"] is None else max(window["newest"], ts)
        line = window["newest"] - max(self.correct_s, event.window_s // 30)
        runs: dict[str, list[Said]] = window["runs"]
        said = runs.get(event.run_id, [])
        at = bisect_left(said, ts, key=_ts)
        if at < len(said) and _ts(said[at]) == ts:
            return state, []
        row: Said = [ts, event.rate_mtok_s, event.coverage_ratio, event.active_rate_mtok_s, event.late, event.duplicates]
        said.insert(at, row)
        runs[event.run_id] = said
        window["times"] = sorted({t for t in (*window["times"], ts) if t > line})
        until = min(_ts(said[at + 1]) if at + 1 < len(said) else math.inf, ts + event.window_s)
        window["runs"] = {run: kept for run, rates in runs.items() if (kept := _recent(rates, line, event.window_s))}
        return state, [_row(event, window["runs"], t) for t in window["times"] if ts <= t < until]


def _ts(said: Said) -> float:
    return said[0] or 0.0


def _recent(said: list[Said], line: float, window_s: int) -> list[Said]:
    """What rows younger than `line` can still need: the rates since, and the last one before."""
    first = max(bisect_right(said, line, key=_ts) - 1, 0)
    return [rate for rate in said[first:] if _ts(rate) > line - window_s]


def _row(event: Rate, runs: dict[str, list[Said]], t: float) -> Rate:
    """The row of the node at t; its `source` and `seq` come from t, for no single run says it."""
    latest = [said[at - 1] for said in runs.values() if (at := bisect_right(said, t, key=_ts))]
    counted = [rate for rate in latest if _ts(rate) > t - event.window_s]
    return Rate(
        ts=EPOCH + timedelta(seconds=t),
        node=event.node,
        source="rate_box",
        seq=max(int(t), 0),
        run_id=None,
        window_s=event.window_s,
        rate_mtok_s=math.fsum(rate[1] or 0.0 for rate in counted),
        coverage_ratio=max(rate[2] or 0.0 for rate in counted),
        active_rate_mtok_s=counted[0][3] if len(counted) == 1 else None,
        late=int(sum(rate[4] or 0 for rate in counted)),
        duplicates=int(sum(rate[5] or 0 for rate in counted)),
    )


OPERATOR = RateOfBox()
