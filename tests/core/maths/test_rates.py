"""Rates: the ring equals the definition for late, repeated and reordered samples, wraps around, and stays small."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from yolometer_core.errors import BadConfig
from yolometer_core.maths import rates
from yolometer_core.maths.rates import Increment, Reading, counter, error_bounds, exact, ring_add, ring_query, ring_start

QUARTERS = st.integers(0, 2400).map(lambda n: n / 4)  # binary-exact times, on and off the edges of 5-s buckets
SAMPLES = st.lists(
    st.tuples(
        st.integers(1, 2), st.integers(0, 30), QUARTERS, st.sampled_from([0.0, 0.25, 1.0, 5.0, 10.0, 12.5, 300.0]), QUARTERS
    ),
    max_size=40,
)


@settings(max_examples=200, deadline=None)
@given(
    samples=SAMPLES, at=st.integers(0, 200), steps=st.sampled_from([1, 3, 12, 24]), lateness=st.sampled_from([0.0, 60.0, 130.0])
)
def test_the_ring_equals_the_definition(
    samples: list[tuple[int, int, float, float, float]], at: int, steps: int, lateness: float
) -> None:
    state, accepted, seen, watermark = ring_start(5.0, 120.0, lateness), [], set(), -math.inf
    for attempt, seq, t0, length, amount in samples:
        if (attempt, seq) in seen:
            want = "duplicate"
        elif t0 + length <= watermark - lateness:
            want = "late"
        else:
            want, watermark = "ok", max(watermark, t0 + length)
            seen.add((attempt, seq))
            accepted.append((t0, t0 + length, amount))
        assert ring_add(state, (attempt, seq), t0, t0 + length, amount) == want
        state = json.loads(json.dumps(state, allow_nan=False))
    t, w = (max(watermark, 0.0) + at if at % 2 else max(watermark, lateness) - lateness * at / 200), steps * 5.0
    got = ring_query(state, t, w)
    want_window = exact(accepted, got.query_time, w)
    assert t - 5 < got.query_time <= t
    assert got.amount == pytest.approx(want_window.amount, abs=1e-9)
    assert got.rate == pytest.approx(want_window.rate, abs=1e-9)
    crowded = any(len(slot) >= 2 + 2 * rates.PIECES_MAX for slot in state["slots"].values())
    if not crowded:
        assert got.coverage == pytest.approx(want_window.coverage, abs=1e-9)
    assert got.coverage >= want_window.coverage - 1e-9


def test_times_of_today_are_as_good_as_small_ones() -> None:
    state, samples, now = ring_start(5, 3600, 900), [], 1.79e9 + 0.123
    for seq in range(1000):
        samples.append((now, now + 7.777777, 10.0))
        assert ring_add(state, (1, seq), *samples[-1]) == "ok"
        now += 7.777777
    got = ring_query(state, now, 3600)
    assert got.rate == pytest.approx(exact(samples, got.query_time, 3600).rate, rel=1e-6)
    assert got.coverage == pytest.approx(1.0, abs=1e-6)
    assert max(map(len, state["slots"].values())) == 4, "touching samples leave one piece a bucket"


def test_the_ring_wraps_around_and_stays_small() -> None:
    state = ring_start(5, 60, 30)
    for n in range(5000):
        ring_add(state, (1, n), 10.0 * n, 10.0 * n + 10, 100.0)
    assert len(state["slots"]) == state["buckets"] == 19
    assert ring_query(state, 50_000, 60) == (600.0, 10.0, 1.0, 10.0, 50_000)
    assert ring_query(state, 50_061, 60) == (0.0, 0.0, 0.0, None, 50_060)


def test_a_sample_longer_than_the_ring_costs_no_more_than_the_ring() -> None:
    state = ring_start(5, 60, 30)
    assert ring_add(state, (1, 1), 0.0, 1e9, 1e9) == "ok"
    assert len(state["slots"]) == 19
    assert ring_query(state, 1e9, 60).rate == pytest.approx(1.0)


def test_the_memory_for_duplicates_is_bounded_and_nothing_counts_twice() -> None:
    state = ring_start(5, 60, 30)
    for n in range(rates.KEYS_KEPT + 500):
        ring_add(state, (1, n), float(n), float(n + 1), 1.0)
    assert len(state["seen"]) == rates.KEYS_KEPT
    for n in range(rates.KEYS_KEPT + 500):
        assert ring_add(state, (1, n), float(n), float(n + 1), 1.0) in ("late", "duplicate")


def test_more_keys_inside_the_lateness_than_can_be_kept_become_late() -> None:
    state = ring_start(5, 60, 10_000)
    for n in range(rates.KEYS_MAX + 300):
        assert ring_add(state, (1, n), n / 100, (n + 1) / 100, 1.0) == "ok"
    assert len(state["seen"]) == rates.KEYS_MAX
    results = [ring_add(state, (1, n), n / 100, (n + 1) / 100, 1.0) for n in range(rates.KEYS_MAX + 300)]
    assert results == ["late"] * 300 + ["duplicate"] * rates.KEYS_MAX
    assert ring_query(state, 100, 60).amount <= rates.KEYS_MAX + 300


@pytest.mark.parametrize(
    ("t0", "t1", "amount"),
    [(10.0, 9.0, 1.0), (0.0, 1.0, -1.0), (0.0, math.inf, 1.0), (0.0, 1.0, math.nan), (-math.inf, 1.0, 1.0)],
)
def test_what_makes_no_sense_is_rejected(t0: float, t1: float, amount: float) -> None:
    state = ring_start(5, 60, 30)
    assert ring_add(state, (1, 1), t0, t1, amount) == "rejected"
    assert (state["rejected"], state["slots"], state["watermark"]) == (1, {}, None)


@pytest.mark.parametrize("w", [0.0, 7.0, 65.0, -5.0])
def test_a_window_that_does_not_fit_is_refused(w: float) -> None:
    with pytest.raises(BadConfig, match="multiple"):
        ring_query(ring_start(5, 60, 30), 100, w)


def test_a_ring_without_buckets_is_refused() -> None:
    with pytest.raises(BadConfig, match="bucket > 0"):
        ring_start(0, 60, 30)


def test_many_pieces_in_one_bucket_are_covered_at_most_by_the_gaps_closed() -> None:
    state, samples = ring_start(5, 60, 30), [(n / 2, n / 2 + 0.125, 1.0) for n in range(10)]
    for seq, sample in enumerate(samples):
        ring_add(state, (1, seq), *sample)
    got, want = ring_query(state, 5, 5), exact(samples, 5, 5)
    assert got.amount == pytest.approx(want.amount)
    assert want.coverage < got.coverage <= 1


def test_a_value_below_the_one_before_is_a_reset_and_below_the_base_too() -> None:
    rows = [Reading(1, 1, 10.0, 50.0), Reading(1, 2, 20.0, 70.0), Reading(1, 3, 30.0, 20.0)]
    got = counter(rows, {1: (0.0, 60.0)})
    assert [i.amount for i in got.increments] == [50.0, 20.0, 20.0]
    assert (got.resets, got.consumed, got.progress, got.redone) == (2, 90.0, 20.0, 70.0)


def test_an_attempt_that_nobody_announced_has_an_unknown_base() -> None:
    got = counter([Reading(2, 1, 10.0, 900.0)], {})
    assert got.increments == (Increment(2, 1, 10.0, 10.0, 0.0),)
    assert (got.unknown_base, got.consumed, got.progress, got.redone) == (1, 0.0, 900.0, 0.0)


def test_no_rows_no_work() -> None:
    assert counter([], {1: (0.0, 0.0)}) == ((), 0.0, 0.0, 0.0, 0, 0, 0)


@given(values=st.lists(st.integers(0, 1000), min_size=1, max_size=20), order=st.randoms(use_true_random=False))
def test_a_counter_does_not_depend_on_order_or_repetition(values: list[int], order: object) -> None:
    rows = [Reading(1 + n // 7, n, 10.0 * n, float(value)) for n, value in enumerate(values)]
    mixed = rows * 2
    order.shuffle(mixed)  # type: ignore[attr-defined]
    assert counter(mixed, {1: (0.0, 0.0)})[:6] == counter(rows, {1: (0.0, 0.0)})[:6]


def test_bounds_of_the_simpler_schemes() -> None:
    assert error_bounds(max_rate=120.0, sample_s=10.0, g=5.0, w=60.0) == (20.0, 10.0, 2.5)
