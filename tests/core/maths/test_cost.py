"""Cost of GPU time: exact at price changes, additive however it is cut, and split without losing a micro-unit."""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from yolometer_core.errors import BadInput
from yolometer_core.maths.cost import HOUR_US, Change, Cost, cost, cut, metered, split

TIMES = st.integers(-10 * HOUR_US, 500_000 * HOUR_US)
PRICES = st.one_of(st.none(), st.just(0), st.integers(0, 600_000_000))
CHANGES = st.lists(st.tuples(TIMES, PRICES), max_size=8, unique_by=lambda change: change[0]).map(sorted)
TWO_DOLLARS, THREE_DOLLARS = 2_000_000, 3_000_000


def test_a_price_that_changes_in_the_middle() -> None:
    changes: list[Change] = [(-(10**15), TWO_DOLLARS), (12 * HOUR_US, THREE_DOLLARS)]
    assert cost(11 * HOUR_US, 13 * HOUR_US, 1, changes) == Cost(5_000_000, Fraction(5_000_000), 0)
    third: list[Change] = [*changes, (13 * HOUR_US, 9_000_000)]
    assert cost(11 * HOUR_US, 13 * HOUR_US, 1, third) == Cost(5_000_000, Fraction(5_000_000), 0)


def test_a_change_belongs_to_what_comes_after_it() -> None:
    changes: list[Change] = [(0, TWO_DOLLARS), (HOUR_US, THREE_DOLLARS)]
    assert cost(HOUR_US, 2 * HOUR_US, 1, changes).micro == THREE_DOLLARS
    assert cost(0, HOUR_US, 1, changes).micro == TWO_DOLLARS
    assert cut(HOUR_US, 2 * HOUR_US, changes) == [(HOUR_US, 2 * HOUR_US, THREE_DOLLARS)]
    assert cut(0, HOUR_US, changes) == [(0, HOUR_US, TWO_DOLLARS)]


def test_unknown_is_not_zero_and_zero_is_not_unknown() -> None:
    hour: tuple[int, int] = (0, HOUR_US)
    assert cost(*hour, 1, []) == Cost(None, None, HOUR_US)
    assert cost(*hour, 4, [(0, None)]) == Cost(None, None, HOUR_US)
    assert cost(*hour, 4, [(0, 0)]) == Cost(0, Fraction(0), 0)
    assert cost(*hour, 2, [(HOUR_US // 2, TWO_DOLLARS)]) == Cost(TWO_DOLLARS, Fraction(TWO_DOLLARS), HOUR_US // 2)
    assert cost(*hour, 0, []) == Cost(0, Fraction(0), 0), "a node without GPUs costs nothing, whatever they would cost"
    assert cost(5, 5, 8, []) == Cost(0, Fraction(0), 0)


def test_an_interval_that_ends_before_it_begins_is_refused() -> None:
    with pytest.raises(BadInput, match="ends before it begins"):
        cost(1, 0, 1, [])


@given(TIMES, TIMES, CHANGES)
def test_the_pieces_cover_the_interval_exactly(a: int, b: int, changes: list[Change]) -> None:
    begin, end = min(a, b), max(a, b)
    pieces = cut(begin, end, changes)
    edges = [begin, *(piece.end_us for piece in pieces)]
    assert [piece.begin_us for piece in pieces] == edges[:-1]
    assert edges[-1] == end
    assert all(piece.begin_us < piece.end_us for piece in pieces)
    for piece in pieces:
        by_definition = [price for time, price in changes if time <= piece.begin_us]
        assert piece.micro_per_hour == (by_definition[-1] if by_definition else None)
        assert not any(piece.begin_us < time < piece.end_us for time, _ in changes)


@given(st.lists(TIMES, min_size=2, max_size=12), CHANGES, st.integers(1, 16))
def test_parts_of_an_interval_add_up_to_it(cuts: list[int], changes: list[Change], gpus: int) -> None:
    edges = sorted(cuts)
    whole = cost(edges[0], edges[-1], gpus, changes)
    parts = [cost(a, b, gpus, changes) for a, b in pairwise(edges)]
    assert sum(part.micro or 0 for part in parts) == (whole.micro or 0)
    assert sum(part.exact or 0 for part in parts) == (whole.exact or 0)
    assert sum(part.unpriced_us for part in parts) == whole.unpriced_us
    if whole.micro is not None and whole.exact is not None:
        assert abs(whole.micro - whole.exact) < gpus * (len(changes) + 1)
        assert whole.exact.denominator > 1 or len(changes) > 1 or whole.micro == whole.exact


@given(TIMES, TIMES, CHANGES, PRICES)
def test_a_price_that_is_added_later_never_changes_history(a: int, b: int, changes: list[Change], price: int | None) -> None:
    begin, end = min(a, b), max(a, b)
    later = max([end, *(time + 1 for time, _ in changes)])
    assert cost(begin, end, 3, [*changes, (later, price)]) == cost(begin, end, 3, changes)


@given(TIMES, st.integers(0, 10**6), st.integers(1, 400))
def test_whole_hours_cost_what_they_say(begin: int, price: int, hours: int) -> None:
    assert metered(begin, begin + hours * HOUR_US, price) == hours * price


WEIGHTS = st.one_of(
    st.integers(0, 10**9),
    st.floats(0, 1e12, allow_nan=False),
    st.decimals(0, 10**9, allow_nan=False, places=6),
    st.fractions(0, 1000),
)


@given(st.integers(-(10**15), 10**15), st.lists(WEIGHTS, min_size=1, max_size=20))
def test_parts_of_money_add_up_and_are_off_by_less_than_one(total: int, weights: list[int | float | Decimal | Fraction]) -> None:
    parts = split(total, weights)
    assert sum(parts) == total
    assert parts == split(total, list(weights))
    assert [-part for part in parts] == split(-total, weights)
    exact = [Fraction(weight) for weight in weights]
    for part, weight in zip(parts, exact, strict=True):
        share = Fraction(total) * weight / sum(exact) if any(exact) else Fraction(total, len(exact))
        assert abs(part - share) < 1


def test_money_is_split_by_largest_remainder_and_the_earlier_one_wins_a_tie() -> None:
    assert split(100, [1, 1, 1]) == [34, 33, 33]
    assert split(101, [1, 1, 1]) == [34, 34, 33]
    assert split(10, [0.25, 0.5, 0.25]) == [3, 5, 2]
    assert split(7, [0, 3, 0]) == [0, 7, 0]
    assert split(7, [0, 0]) == [4, 3], "nothing is known: equal parts"
    assert split(-7, [1, 1]) == [-4, -3]
    assert split(0, [1, 2]) == [0, 0]


@pytest.mark.parametrize("weights", [[], [1, -1], [math.nan], [1, math.inf], [Decimal("NaN")]])
def test_weights_that_are_none_are_refused(weights: list[float | Decimal]) -> None:
    with pytest.raises(BadInput, match="weights of 0 or more"):
        split(10, weights)
