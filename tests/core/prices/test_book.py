"""A book of prices: the closest price holds, time is half-open, unknown is None, and intervals are covered exactly."""

from __future__ import annotations

import pickle
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise, permutations
from typing import Any

import pytest
from _books import book, facts, price, rate, utc
from hypothesis import assume, given
from hypothesis import strategies as st

from yolometer_core.errors import BadConfig, BadInput
from yolometer_core.maths.cost import Cost, cost
from yolometer_core.prices._base import KINDS, Price
from yolometer_core.prices.book import PriceBook
from yolometer_core.times import us_of


def asked(found: PriceBook, gpu_model: str = "A100", time: datetime | None = None, **where: Any) -> Decimal | None:
    quote = found.at(gpu_model, time or utc(6), **where)
    return quote.price.price if quote else None


def spent(found: PriceBook, begin: datetime, end: datetime) -> Any:
    return cost(us_of(begin), us_of(end), 1, found.timeline("A100").changes)


def test_a_price_changes_during_a_run_and_history_stays() -> None:
    two = price(2), price(3, since=utc(5, 4, 12))
    run = utc(5, 4, 11), utc(5, 4, 13)
    assert spent(book(*two), *run).micro == 5_000_000
    assert spent(book(*two, price(4, since=utc(6))), *run).micro == 5_000_000
    segments = book(*two).cuts("A100", *run)
    assert [(one.begin, one.end, one.quote and one.quote.micro_per_hour) for one in segments] == [
        (utc(5, 4, 11), utc(5, 4, 12), 2_000_000),
        (utc(5, 4, 12), utc(5, 4, 13), 3_000_000),
    ]


def test_zero_is_a_price_and_unknown_is_none() -> None:
    found = book(price(0), price(1, "H100", since=utc(3)))
    free, unknown = found.at("A100", utc(6)), found.at("V100", utc(6))
    assert free is not None
    assert free.micro_per_hour == 0
    assert unknown is None
    assert found.at("H100", utc(2, 28, 23)) is None, "before its first price"
    assert found.at(None, utc(6)) is None
    hour = us_of(utc(1)), us_of(utc(1, 1, 1))
    assert cost(*hour, 1, found.timeline("A100").changes) == Cost(0, Fraction(0), 0)
    assert cost(*hour, 1, found.timeline("H100").changes) == Cost(None, None, 3_600_000_000)


def test_the_begin_of_a_price_belongs_to_it_and_the_end_does_not() -> None:
    found = book(price(2, since=utc(2), valid_to=utc(4)))
    microsecond = timedelta(microseconds=1)
    times = (utc(2) - microsecond, utc(2), utc(4) - microsecond, utc(4))
    assert [asked(found, time=time) for time in times] == [None, 2, 2, None]


def test_a_price_without_an_end_ends_where_the_next_begins_and_does_not_come_back() -> None:
    found = book(price(2), price(3, since=utc(2), valid_to=utc(3)))
    assert [asked(found, time=utc(month)) for month in (1, 2, 3)] == [2, 3, None]


LADDER: tuple[tuple[dict[str, str], int], ...] = (
    ({}, 1),
    ({"kind": "spot"}, 2),
    ({"provider": "aws"}, 3),
    ({"provider": "aws", "kind": "spot"}, 4),
    ({"region": "north"}, 5),
    ({"region": "north", "provider": "aws", "kind": "spot"}, 6),
    ({"node": "n1"}, 7),
    ({"node": "n1", "region": "north", "provider": "aws", "kind": "spot"}, 8),
)


def test_the_closest_price_holds_whatever_the_order_of_the_list() -> None:
    here = {"node": "n1", "region": "north", "provider": "aws", "kind": "spot"}
    for known in range(len(LADDER)):
        prices = [price(amount, **where) for where, amount in LADDER[: known + 1]]
        for order in list(permutations(prices))[:: max(1, known * 37)][:40]:
            assert asked(book(*order), **here) == LADDER[known][1]


@pytest.mark.parametrize("wrong", [{"node": "n2"}, {"region": "south"}, {"provider": "gcp"}, {"kind": "reserved"}, {}])
def test_a_price_for_others_does_not_hold(wrong: dict[str, str]) -> None:
    found = book(price(8, node="n1", region="north", provider="aws", kind="spot"))
    where = {"node": "n1", "region": "north", "provider": "aws", "kind": "spot", **wrong} if wrong else {}
    assert asked(found, **where) is None


def test_where_the_closest_price_has_a_gap_the_next_one_holds() -> None:
    found = book(price(1), price(7, node="n1", since=utc(2), valid_to=utc(3)))
    assert [asked(found, time=utc(month), node="n1") for month in (1, 2, 3)] == [1, 7, 1]


def test_facts_of_nodes_make_prices_theirs_and_the_first_that_fits_counts() -> None:
    aws = {"provider": "aws", "region": "north"}
    nodes = (facts("gpu-1", **aws, kind="reserved"), facts("gpu-*", **aws, kind="spot"), facts("*", provider="gcp"))
    found = book(
        price(1, **aws, kind="spot"), price(2, **aws, kind="reserved"), price(3, provider="gcp"), price(4, kind="on_demand"),
        nodes=nodes,
    )  # fmt: skip
    assert [asked(found, node=node) for node in ("gpu-1", "gpu-2", "other", None)] == [2, 1, 3, None]
    assert asked(found, node="gpu-2", kind="reserved") == 2, "what the GPU says itself counts before the facts of its node"


def test_owned_hardware_holds_where_nobody_says_what_a_gpu_is() -> None:
    found = book(price(1, kind="owned"), price(3, provider="aws", kind="on_demand"))
    assert asked(found, node="rack-1") == 1
    assert asked(found, kind="owned") == 1
    assert asked(found, kind="spot") is None
    assert asked(found, provider="aws") is None, "it is rented; of which kind is not known"
    assert asked(book(price(1, kind="owned", provider="us")), provider="us") == 1


@pytest.mark.parametrize(
    ("name", "holds"),
    [
        ("A100-SXM4-80GB", True),
        ("NVIDIA A100-SXM4-80GB", True),
        ("nvidia_a100 sxm4 80gb", True),
        ("NVIDIA-A100-SXM4-80GB", True),
        ("My card", True),
        ("MY-CARD", True),
        ("A100", False),
        ("A100-SXM4-80GB MIG 1g.10gb", False),
        ("A100-SXM4-40GB", False),
        ("NVIDIA", False),
        ("", False),
    ],
)
def test_a_model_is_known_by_its_spelling_or_as_the_list_says_never_by_a_guess(name: str, holds: bool) -> None:
    found = book(price(2, "A100-SXM4-80GB"), aliases=(("My card", "NVIDIA A100-SXM4-80GB"),))
    assert (asked(found, name) == 2) == holds
    assert (found.model_of(name) == "A100-SXM4-80GB") == holds


def test_money_of_another_currency_is_unknown_without_a_rate() -> None:
    euro = price("2.50", currency="EUR")
    known = book(euro, rates=(rate("1.1", utc(2)), rate("1.2", utc(3)), rate("0.007", utc(1), "JPY")))
    quotes = [known.at("A100", time) for time in (utc(1), utc(2), utc(3))]
    assert [quote and quote.micro_per_hour for quote in quotes] == [None, 2_750_000, 3_000_000]
    assert [quote and quote.price.price for quote in quotes] == [Decimal("2.50")] * 3
    assert spent(known, utc(1, 31, 23), utc(2, 1, 1)) == (2_750_000, 2_750_000, 3_600_000_000)
    none = book(euro).at("A100", utc(1))
    assert none is not None
    assert none.micro_per_hour is None


def test_a_time_has_a_zone_and_every_zone_is_the_same_instant() -> None:
    found = book(price(1), price(2, since=utc(3, 29, 1)))
    berlin = timezone(timedelta(hours=2))
    assert asked(found, time=datetime(2026, 3, 29, 3, tzinfo=berlin)) == 2
    assert asked(found, time=datetime(2026, 3, 29, 2, 59, tzinfo=berlin)) == 1
    segments = found.cuts("A100", datetime(2026, 3, 29, 2, tzinfo=berlin), datetime(2026, 3, 29, 4, tzinfo=berlin))
    assert [(one.begin.hour, one.begin.tzinfo) for one in segments] == [(0, UTC), (1, UTC)]
    with pytest.raises(BadInput, match="without a zone"):
        found.at("A100", datetime(2026, 3, 29, 2, 30))
    with pytest.raises(BadInput, match="ends before it begins"):
        found.cuts("A100", utc(2), utc(1))
    assert found.cuts("A100", utc(2), utc(2)) == []


def test_what_contradicts_is_no_book() -> None:
    with pytest.raises(BadConfig, match="both give a price of A100"):
        book(price(1), price(2))
    with pytest.raises(BadConfig, match="is not 0 or more"):
        book(price("NaN"))
    with pytest.raises(BadConfig, match="no currency"):
        PriceBook("XXX")


def test_a_book_is_a_value() -> None:
    one, same = (book(price(1, line=n), rates=(rate("1.1", utc()),), nodes=(facts("*", kind="spot"),)) for n in (3, 4))
    one.at("A100", utc())
    assert one == same
    assert hash(one) == hash(same)
    assert pickle.loads(pickle.dumps(one)) == one  # noqa: S301  # it is our own
    assert [quote.price.price for quote in one.holding(utc())] == [1]


def test_no_more_timelines_are_remembered_than_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("yolometer_core.prices.book.TIMELINES_KEPT", 10)
    found = book(price(1))
    assert all(asked(found, node=f"n{n}") == 1 for n in range(100))
    assert len(found._timelines) <= 10


HOURS = st.integers(0, 60).map(lambda n: utc() + timedelta(hours=n))
PLACES = st.fixed_dictionaries(
    {
        "node": st.sampled_from([None, "n1"]),
        "region": st.sampled_from([None, "north"]),
        "provider": st.sampled_from([None, "aws"]),
        "kind": st.sampled_from([None, *KINDS]),
        "since": st.one_of(st.none(), HOURS),
        "valid_to": st.one_of(st.none(), HOURS),
        "currency": st.sampled_from(["USD", "EUR"]),
    }
)


@st.composite
def books(draw: st.DrawFn) -> PriceBook:
    """Any book of one model that does not contradict itself."""
    kept: list[Price] = []
    for where in draw(st.lists(PLACES, max_size=8)):
        one = price(draw(st.integers(0, 9)), confirmed=True, **where)
        try:
            book(*kept, one)
        except BadConfig:
            continue
        kept.append(one)
    rates = draw(st.lists(st.tuples(HOURS, st.sampled_from(["1.1", "1.2"])), max_size=3, unique_by=lambda pair: pair[0]))
    found: PriceBook = book(*kept, rates=tuple(rate(amount, since) for since, amount in rates))
    return found


def by_definition(found: PriceBook, time: datetime, where: dict[str, str]) -> Price | None:
    """The price that holds, without any index: of those that may hold now, the closest."""
    may = []
    for one in found.prices:
        begins = one.valid_from is None or one.valid_from <= time
        own = [other for other in found.prices if other.selector == one.selector and other.begin_us > one.begin_us]
        over = [one.valid_to] if one.valid_to else []
        over += [other.valid_from for other in own if other.valid_from] if one.valid_to is None else []
        if begins and all(time < end for end in over) and all(getattr(one, key) in (None, value) for key, value in where.items()):
            may.append(one)
    weights = {"node": 8, "region": 4, "provider": 2, "kind": 1}
    return max(may, key=lambda one: sum(weight for key, weight in weights.items() if getattr(one, key)), default=None)


@given(books(), HOURS, st.sampled_from(["spot", "owned", "reserved"]))
def test_the_price_at_a_time_is_the_one_by_definition(found: PriceBook, time: datetime, kind: str) -> None:
    where = {"node": "n1", "region": "north", "provider": "aws", "kind": kind}
    quote = found.at("A100", time, **where)
    want = by_definition(found, time, where)
    assert (quote.price if quote else None) == want
    if quote and quote.price.currency == "EUR":
        rates = [one.rate for one in sorted(found.rates, key=lambda one: one.valid_from) if one.valid_from <= time]
        assert quote.micro_per_hour == (int(quote.price.price * rates[-1] * 1_000_000) if rates else None)


@given(books(), HOURS, HOURS)
def test_segments_cover_the_interval_exactly_and_say_what_asking_says(found: PriceBook, a: datetime, b: datetime) -> None:
    begin, end = min(a, b), max(a, b)
    where = {"node": "n1", "region": "north", "provider": "aws", "kind": "spot"}
    segments = found.cuts("A100", begin, end, **where)
    edges = [begin, *(one.end for one in segments)]
    assert [one.begin for one in segments] == edges[:-1]
    assert edges[-1] == end
    assert all(one.quote != following.quote for one, following in pairwise(segments))
    for one in segments:
        assert one.begin < one.end
        inside = one.begin + (one.end - one.begin) / 2
        assert one.quote == found.at("A100", one.begin, **where) == found.at("A100", inside, **where)


@given(books(), PLACES, HOURS, HOURS)
def test_a_price_that_is_added_later_never_changes_what_was_spent(
    found: PriceBook, where: dict[str, Any], a: datetime, b: datetime
) -> None:
    begin, end = min(a, b), max(a, b)
    later = price(7, confirmed=True, **{**where, "since": max(end, where["since"] or end)})
    try:
        longer = book(*found.prices, later, rates=found.rates)
    except BadConfig:
        assume(False)
    here = {"node": "n1", "region": "north", "provider": "aws", "kind": where["kind"]}
    before, after = (
        cost(us_of(begin), us_of(end), 1, one.timeline("A100", **here).changes) for one in (found, longer)
    )  # fmt: skip
    assert before == after
