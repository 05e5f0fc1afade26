"""Rates of a run and of the box: what is said when, in event time, and that the order of runs does not matter."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from yolometer_core.errors import BadConfig
from yolometer_core.events import Event, Rate, Settle, Work
from yolometer_core.testing import MemoryStore
from yolometer_stream.advance import States, advance
from yolometer_stream.ops import rate, rate_box

START = datetime(2020, 3, 1, 12, tzinfo=UTC)
OPS: dict[str, Any] = {"rate": rate.OPERATOR, "rate_box": rate_box.OPERATOR}


def work(seq: int, end_s: float, amount: float = 100.0, duration_s: float = 10.0, run: str = "r1", attempt: int = 1) -> Work:
    said = {"node": "n1", "source": "train.log", "seq": seq, "run_id": run, "attempt": attempt}
    return Work(ts=START + timedelta(seconds=end_s), duration_s=duration_s, amount_mtok=amount, **said)


def a_rate(run: str | None, at_s: float, rate_mtok_s: float, window_s: int = 60) -> Rate:
    said = {"node": "n1", "source": "s", "seq": 0, "coverage_ratio": 0.5, "active_rate_mtok_s": 2 * rate_mtok_s}
    return Rate(ts=START + timedelta(seconds=at_s), run_id=run, window_s=window_s, rate_mtok_s=rate_mtok_s, **said)


def said(events: Iterable[Event], operators: dict[str, Any] = OPS) -> list[Rate]:
    states: States = {}
    return [rate for event in events for rate in advance(operators, states, event) if isinstance(rate, Rate)]


def of(rates: Iterable[Rate], run: str | None, window_s: int) -> list[tuple[float, float]]:
    return [((r.ts - START).total_seconds(), r.rate_mtok_s) for r in rates if (r.run_id, r.window_s) == (run, window_s)]


def test_a_rate_is_said_once_a_bucket_and_window_at_the_edge_of_the_bucket() -> None:
    got = said([work(1, 11.0), work(2, 12.0, duration_s=1.0), work(3, 13.0, duration_s=1.0), work(4, 21.0)])
    assert of(got, "r1", 300) == [(10, 90 / 300), (20, pytest.approx((300 + 70 + 20) / 300))]
    assert {r.window_s for r in got} == {60, 300, 3600}
    assert got[0].active_rate_mtok_s == pytest.approx(10.0)


def test_a_long_window_is_said_every_sixtieth_of_it_at_edges_that_all_runs_share() -> None:
    got = said([work(n, 5.0 * n + 3, duration_s=5.0) for n in range(1, 50)])
    assert [t for t, _ in of(got, "r1", 60)] == [5 * n for n in range(1, 50)]
    hour = of(got, "r1", 3600)
    assert [t for t, _ in hour] == [0, 60, 120, 180, 240]
    assert [rate for _, rate in hour] == pytest.approx([max(t - 3, 0) * 20 / 3600 for t, _ in hour])
    assert of(got, None, 3600) == of(got, "r1", 3600)


def test_a_state_from_when_all_windows_were_said_together_goes_on() -> None:
    states: States = {"rate": {"r1": rate.OPERATOR.start()}}
    advance(OPS, states, work(1, 3590.0))
    assert states["rate"]["r1"]["said_s"] % 60 == 50, "one edge of a bucket is all that is remembered"
    assert {r.window_s for r in advance(OPS, states, work(2, 3599.0)) if isinstance(r, Rate)} == {60, 300}
    assert {r.window_s for r in advance(OPS, states, work(3, 3600.0)) if isinstance(r, Rate)} == {60, 300, 3600}


def test_a_run_that_lags_two_edges_of_the_hour_still_corrects_the_row_of_the_box() -> None:
    got = of(said([work(1, 59.0), work(2, 121.0), work(1, 62.0, run="r2")]), None, 3600)
    assert got == [(0, 0.0), (120, pytest.approx(190 / 3600)), (60, pytest.approx(80 / 3600)), (120, pytest.approx(270 / 3600))]


def test_old_logs_give_the_rates_of_their_day() -> None:
    assert {r.ts.year for r in said([work(1, 10.0)])} == {2020}


def test_work_counts_once_however_often_it_comes() -> None:
    got = said([work(1, 10.0), work(1, 10.0), work(1, 10.0), work(2, 20.0)])
    assert of(got, "r1", 60)[-1] == (20, 200 / 60)
    assert (got[-1].duplicates, got[-1].late) == (2, 0)


def test_the_same_seq_of_another_attempt_is_other_work() -> None:
    assert of(said([work(1, 10.0), work(1, 20.0, attempt=2)]), "r1", 60)[-1] == (20, 200 / 60)


def test_late_work_counts_from_then_on_and_too_late_work_is_counted_as_late() -> None:
    got = said([work(2, 2000.0), work(1, 1980.0), work(3, 1100.0), work(4, 2010.0)])
    assert of(got, "r1", 60) == [(2000, 100 / 60), (2010, 300 / 60)]
    assert got[-1].late == 1


def test_work_inside_a_bucket_waits_for_its_end() -> None:
    assert said([work(1, 10.0), work(2, 14.9, duration_s=1.0)]) == said([work(1, 10.0)])


def test_windows_must_fit_the_buckets() -> None:
    with pytest.raises(BadConfig, match="multiples"):
        rate.RateOfRun(windows_s=(60, 63))


def test_the_box_adds_the_latest_rates_of_its_runs() -> None:
    got = said([a_rate("a", 10, 1.0), a_rate("b", 15, 2.0), a_rate("a", 20, 4.0)], {"rate_box": rate_box.OPERATOR})
    assert of(got, None, 60) == [(10, 1.0), (15, 3.0), (20, 6.0)]
    assert [r.active_rate_mtok_s for r in got] == [2.0, None, None]


def test_a_run_that_said_nothing_for_a_window_counts_nothing_and_is_forgotten() -> None:
    states: States = {}
    ops = {"rate_box": rate_box.OPERATOR}
    for at in (10, 69, 70, 200):
        got = [r for r in advance(ops, states, a_rate("a" if at == 10 else "b", at, 1.0)) if isinstance(r, Rate)]
        assert of(got, None, 60) == [(at, 2.0 if at == 69 else 1.0)]
    assert set(states["rate_box"]["n1"]["60"]["runs"]) == {"b"}
    assert advance(ops, states, a_rate("a", 10, 1.0)) == []


def test_the_box_hears_itself_and_other_events_without_answering() -> None:
    state = rate_box.OPERATOR.start()
    assert rate_box.OPERATOR.step(state, a_rate(None, 10, 1.0)) == ({}, [])
    assert rate_box.OPERATOR.step(state, Settle(ts=START, node="n1", source="s", seq=0, place="p")) == ({}, [])


TALK = st.dictionaries(
    st.sampled_from("abc"), st.lists(st.tuples(st.integers(1, 40), st.integers(0, 80)), max_size=12), min_size=1
)


@settings(max_examples=100, deadline=None)
@given(talk=TALK, data=st.data())
def test_the_box_is_the_sum_by_definition_in_any_order_of_the_runs(
    talk: dict[str, list[tuple[int, int]]], data: st.DataObject
) -> None:
    rates: list[tuple[float, Rate]] = []
    for run, steps in talk.items():
        at = 0
        for step, value in steps:
            at += 5 * step
            delay = data.draw(st.integers(0, rate_box.OPERATOR.correct_s - 1))
            rates.append((at + delay, a_rate(run, at, value / 8)))
    arrived = [event for _, event in sorted(rates, key=lambda pair: pair[0])]
    store = MemoryStore()
    store.write(said(arrived, {"rate_box": rate_box.OPERATOR}))
    want = {}
    for t in {event.ts for event in arrived}:
        recent = [event for event in sorted(arrived, key=lambda e: e.ts) if t - timedelta(seconds=60) < event.ts <= t]
        want[t] = sum({event.run_id: event.rate_mtok_s for event in recent}.values())
    assert {row["ts"]: row["rate_mtok_s"] for row in store.rows("rate")} == want


def test_a_run_that_lags_too_far_gives_no_row_of_its_own_but_counts_from_then_on() -> None:
    got = said([a_rate("a", 400, 1.0, 300), a_rate("b", 310, 2.0, 300)], {"rate_box": rate_box.OPERATOR})
    assert of(got, None, 300) == [(400, 1.0), (400, 3.0)]


def test_both_together_give_run_and_box() -> None:
    got = said([work(1, 10.0), work(1, 10.0, 200.0, run="r2"), work(2, 20.0), work(2, 20.0, 200.0, run="r2")])
    store = MemoryStore()
    store.write(got)
    box = {(r["ts"] - START).seconds: r["rate_mtok_s"] for r in store.rows("rate") if r["run_id"] is None and r["window_s"] == 60}
    assert box == {10: pytest.approx(5.0), 20: pytest.approx(10.0)}
