"""The limit on dead letters trips when most are bad or many in a row are, and not before."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from yolometer_core.errors import Bad, BadConfig, BadDeploy
from yolometer_core.service.limits import DeadLimit


def tripped_at(limit: DeadLimit, outcomes: str) -> int | None:
    """The number of the message (from 1) that trips it; `.` is a good one, `x` a bad one."""
    for number, outcome in enumerate(outcomes, 1):
        try:
            limit.seen(outcome == ".", "it is no message")
        except BadDeploy:
            return number
    return None


@pytest.mark.parametrize(
    ("outcomes", "at"),
    [
        ("." * 1000, None),
        ("x" * 19, None),  # too few to judge
        ("x" * 20, 20),
        ("x" * 10 + "." * 10, None),  # half is not more than half
        ("." * 9 + "x" * 11, 20),
        ("." * 10 + "x" * 10, None),
        ("." * 10 + "x" * 11, 21),
        (".x" * 500, None),  # half of them, for ever
        ("." * 200 + "x" * 49, None),
        ("." * 200 + "x" * 49 + ".", None),
        ("." * 200 + "x" * 50, 250),  # in a row, before the window is bad enough
        (("." * 20 + "x" * 30) * 4, 41),  # 21 of 41
        ("x" * 9 + "." * 500 + "xx.x", None),  # old ones are forgotten
    ],
)
def test_it_trips_exactly_when_it_should(outcomes: str, at: int | None) -> None:
    assert tripped_at(DeadLimit(), outcomes) == at


@given(
    outcomes=st.text(alphabet=".x", max_size=120),
    ratio=st.sampled_from([0.0, 0.2, 0.5, 0.9, 1.0]),
    window=st.integers(1, 30),
    row=st.integers(1, 15),
    least=st.integers(1, 30),
)
def test_it_is_its_definition(outcomes: str, ratio: float, window: int, row: int, least: int) -> None:
    least = min(least, window)

    def bad_now(number: int) -> bool:
        last = outcomes[max(0, number - window) : number]
        many = number >= least and last.count("x") > ratio * len(last)
        return outcomes[number - 1] == "x" and (many or outcomes[:number].endswith("x" * row))

    expected = next((number for number in range(1, len(outcomes) + 1) if bad_now(number)), None)
    assert tripped_at(DeadLimit(ratio, window, row, least), outcomes) == expected


def test_it_says_how_many_why_and_what_to_do_and_stays_tripped() -> None:
    limit = DeadLimit(max_consecutive=3)
    assert limit.tripped is None
    limit.seen(False, "no magic bytes")
    limit.seen(False, "no magic bytes")
    with pytest.raises(BadDeploy) as caught:
        limit.seen(False, "version 9 is unknown.")
    said = str(caught.value)
    assert said.startswith("3 messages in a row") and "version 9 is unknown)" in said and "roll this version back" in said
    assert limit.tripped == said and isinstance(caught.value, Bad)
    with pytest.raises(BadDeploy, match="3 messages in a row"):
        limit.seen(True)


@pytest.mark.parametrize(
    "wrong", [{"max_ratio": 1.5}, {"max_ratio": float("nan")}, {"max_consecutive": 0}, {"min_seen": 0}, {"window": 5}]
)
def test_a_limit_that_cannot_work_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(BadConfig, match="limit on dead letters"):
        DeadLimit(**wrong)
