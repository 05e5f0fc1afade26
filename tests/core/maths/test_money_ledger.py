"""The ledger: a function of the set of entries, half-open periods, corrections by revision, closed periods with adjustments."""

from __future__ import annotations

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from yolometer_core.maths.ledger import CLOSES_AFTER_US, Adjustment, Entry, standing, statement, totals

DAY_US = 86_400_000_000
MARCH_31, APRIL_1, APRIL_2, APRIL_3 = (day * DAY_US for day in (89, 90, 91, 92))
LATE = MARCH_31 + DAY_US - 600_000_000  # 23:50

ENTRIES = st.lists(
    st.builds(
        Entry, st.sampled_from("ab"), st.integers(0, 2), st.sampled_from([5, 9, 10, 20, 29, 30, 35]), st.integers(-9, 9),
        st.integers(0, 5), st.sampled_from([None, "refund"]),
    ),
    max_size=12,
)  # fmt: skip


def test_usage_that_arrives_after_the_month_closed() -> None:
    entries = [Entry("rest", 0, MARCH_31, 120_000_000, MARCH_31)]
    march = (0, APRIL_1, APRIL_1)
    assert statement(entries, *march) == (120_000_000, 120_000_000, ())
    entries.append(Entry("late", 0, LATE, 5_000_000, APRIL_2))
    assert statement(entries, *march) == (120_000_000, 125_000_000, (Adjustment("late", 0, APRIL_2, 5_000_000, "late"),))
    entries.append(Entry("late", 1, LATE, 3_000_000, APRIL_3, "reclassified as spot"))
    found = statement(entries, *march)
    assert (found.as_closed_micro, found.restated_micro) == (120_000_000, 123_000_000)
    assert found.adjustments[1] == Adjustment("late", 1, APRIL_3, -2_000_000, "reclassified as spot")
    april = totals(entries, APRIL_1, APRIL_1 + 30 * DAY_US, APRIL_3, DAY_US)
    assert april.period_micro == 0, "a late entry belongs to its own month"


def test_a_period_closes_two_days_after_its_end() -> None:
    on_time, late = (Entry("a", 0, 5, 10, 10 + CLOSES_AFTER_US + n) for n in (0, 1))
    assert statement([on_time], 0, 10) == (10, 10, ())
    assert statement([late], 0, 10).as_closed_micro == 0


def test_a_correction_that_moves_an_entry_into_another_period() -> None:
    entries = [Entry("a", 0, 5, 10, 5), Entry("a", 1, 15, 10, 100)]
    assert statement(entries, 0, 10, 50).adjustments == (Adjustment("a", 1, 100, -10, "correction"),)
    assert statement(entries, 10, 20, 50).adjustments == (Adjustment("a", 1, 100, 10, "correction"),)


def test_a_second_delivery_changes_nothing_also_when_it_is_late() -> None:
    once, again = Entry("a", 0, 5, 10, 5), Entry("a", 0, 5, 10, 500)
    assert statement([once, again], 0, 10, 50) == statement([once], 0, 10, 50)
    assert totals([again, once], 0, 10, 600, 600) == totals([once], 0, 10, 600, 600)


def test_of_one_revision_the_first_that_arrived_holds() -> None:
    first, second = Entry("a", 0, 5, 10, 5), Entry("a", 0, 5, 11, 500)
    for order in ([first, second], [second, first]):
        assert statement(order, 0, 10, 50) == statement([first], 0, 10, 50)
        assert totals(order, 0, 10, 600, 600).period_micro == 10


def test_periods_are_half_open() -> None:
    entries = [Entry(str(t), 0, t, 1, 0) for t in (9, 10, 19, 20)]
    assert totals(entries, 10, 20, 99, 0).period_micro == 2
    assert statement(entries, 10, 20).restated_micro == 2
    assert totals(entries, 0, 0, 20, 10).window_micro == 2, "(10, 20]"


def test_the_future_is_kept_and_not_counted_until_it_is_due() -> None:
    entries = [Entry("a", 0, 5, 10, 5), Entry("b", 0, 9, 1, 5)]
    assert totals(entries, 0, 10, 8, 100) == (10, 10, 2, 1)
    assert totals(entries, 0, 10, 9, 100) == (11, 11, 2, 0)


@given(ENTRIES, st.randoms(), st.integers(0, 40), st.integers(0, 5))
def test_the_order_of_arrival_at_the_ledger_does_not_matter(entries: list[Entry], random: Random, now: int, by: int) -> None:
    shuffled = [*entries, *entries[:3]]
    random.shuffle(shuffled)
    assert totals(shuffled, 10, 30, now, 15, by) == totals(entries, 10, 30, now, 15, by)
    assert statement(shuffled, 10, 30, by) == statement(entries, 10, 30, by)


@given(ENTRIES, st.integers(0, 5))
def test_adjustments_explain_the_difference(entries: list[Entry], closed: int) -> None:
    found = statement(entries, 10, 30, closed)
    assert found.as_closed_micro + sum(one.micro for one in found.adjustments) == found.restated_micro
    assert found.as_closed_micro == totals(entries, 10, 30, 99, 0, closed).period_micro
    assert found.restated_micro == totals(entries, 10, 30, 99, 0).period_micro
    assert all(one.arrival_us > closed and one.micro for one in found.adjustments)


@given(ENTRIES)
def test_the_highest_revision_holds(entries: list[Entry]) -> None:
    for name, entry in standing(entries).items():
        assert entry.rev == max(one.rev for one in entries if one.id == name)


@given(ENTRIES, st.integers(11, 29))
def test_adjacent_periods_add_up(entries: list[Entry], between: int) -> None:
    whole, first, second = (totals(entries, a, b, 99, 0).period_micro for a, b in ((10, 30), (10, between), (between, 30)))
    assert first + second == whole
