"""New prices against the ones in use: beyond five times a change waits, and the last good price goes on."""

from __future__ import annotations

from decimal import Decimal

import pytest
from _books import book, price, rate, utc
from hypothesis import given
from hypothesis import strategies as st

from yolometer_core.prices.book import PriceBook
from yolometer_core.prices.review import review


def at(found: PriceBook, month: int, gpu_model: str = "A100") -> int | None:
    quote = found.at(gpu_model, utc(month))
    return quote and quote.micro_per_hour


@pytest.mark.parametrize(
    ("before", "after", "waits"),
    [
        ("2", "10", False),
        ("2", "10.000001", True),
        ("10", "2", False),
        ("10", "1.999999", True),
        ("0", "0", False),
        ("0", "0.000001", True),
        ("2", "0", True),
        ("2", "2.00", False),
    ],
)
def test_beyond_five_times_up_or_down_it_waits(before: str, after: str, waits: bool) -> None:
    for new in (book(price(after)), book(price(before), price(after, since=utc(3)))):
        found = review(book(price(before)), new)
        assert bool(found.suspects) == waits
        assert at(found.book, 4) == Decimal(before if waits else after) * 1_000_000
        if not waits:
            assert found.book == new


def test_a_suspect_is_data_that_says_what_waits() -> None:
    found = review(book(price(2)), book(price(2, line=3), price("20.5", since=utc(3), line=4)))
    (one,) = found.suspects
    assert one.key == "A100 from 2026-03-01T00:00:00Z: 20.5 USD"
    assert (one.what, one.valid_from, one.kept, one.waiting) == ("A100", utc(3), Decimal(2), Decimal("20.5"))
    assert (one.times, one.line, one.reason) == (Decimal("10.25"), 4, "price_suspect")
    kept = found.book.at("A100", utc(4))
    assert kept is not None
    assert kept.price.source == "price_suspect: 20.5 USD waits for confirmation"


def test_it_is_taken_once_it_is_confirmed_and_only_that_value() -> None:
    old, new = book(price(2)), book(price(2), price(20, since=utc(3)))
    key = review(old, new).suspects[0].key
    assert review(old, new, [key]) == (new, ())
    marked = book(price(2), price(20, since=utc(3), confirmed=True))
    assert review(old, marked) == (marked, ())
    assert len(review(old, book(price(2), price(90, since=utc(3))), [key]).suspects) == 1


def test_what_comes_after_a_suspect_is_compared_with_the_last_good_price() -> None:
    found = review(book(price(2)), book(price(2), price(20, since=utc(2)), price(21, since=utc(3)), price(3, since=utc(4))))
    assert [one.waiting for one in found.suspects] == [20, 21]
    assert [at(found.book, month) for month in (1, 2, 3, 4)] == [2_000_000, 2_000_000, 2_000_000, 3_000_000]


def test_steps_that_are_each_small_may_go_far() -> None:
    steps = book(price(2), price(9, since=utc(2)), price(40, since=utc(3)))
    assert review(book(price(2)), steps) == (steps, ())


def test_history_is_compared_start_by_start() -> None:
    old = book(price(2), price(9, since=utc(3)))
    found = review(old, book(price("0.2"), price(9, since=utc(3))))
    assert [(one.valid_from, one.kept, one.waiting) for one in found.suspects] == [(None, Decimal(2), Decimal("0.2"))]
    assert found.book.at("A100", utc(4)) == old.at("A100", utc(4))


def test_a_list_whose_history_was_cut_off_is_compared_with_the_price_of_that_time() -> None:
    old = book(price(2), price(4, since=utc(3)))
    assert review(old, book(price(11, since=utc(6)))).suspects == ()
    assert review(old, book(price(21, since=utc(6)))).suspects[0].kept == 4
    assert review(book(price(4, since=utc(3))), book(price(21, since=utc(2)))).suspects[0].kept == 4


def test_other_selectors_and_first_prices_have_nothing_to_be_compared_with() -> None:
    new = book(price(2), price("0.2", kind="spot"), price(90, "H100"))
    assert review(book(price(2)), new) == (new, ())
    assert review(None, new) == (new, ())


def test_without_an_old_book_a_jump_inside_the_list_waits_too() -> None:
    found = review(None, book(price(2), price(20, since=utc(3))))
    assert len(found.suspects) == 1
    assert at(found.book, 4) == 2_000_000


def test_what_is_gone_is_gone() -> None:
    found = review(book(price(2), price(3, "H100")), book(price(2)))
    assert found.suspects == ()
    assert at(found.book, 1, "H100") is None


def test_spelling_does_not_make_another_selector() -> None:
    found = review(book(price(2, "A100 80GB", provider="AWS")), book(price(20, "a100-80gb", provider="aws")))
    assert found.suspects[0].kept == 2


def test_prices_in_two_currencies_are_compared_by_the_exchange_rate() -> None:
    yen = price(300, currency="JPY", since=utc(2))
    known = (rate("0.0067", utc(1), "JPY"),)
    old = book(price(2))
    assert review(old, book(price(2), yen, rates=known)).suspects == ()
    dearer = price(3000, currency="JPY", since=utc(2))
    assert review(old, book(price(2), dearer, rates=known, highest=Decimal(9999))).suspects
    (one,) = review(old, book(price(2), yen)).suspects
    assert one.times is None, "without a rate nobody can say"


def test_an_exchange_rate_that_jumps_waits_like_a_price() -> None:
    euro = price(2, currency="EUR")
    old = book(euro, rates=(rate("1.1", utc(1)),))
    new = book(euro, rates=(rate("1.1", utc(1)), rate("11.2", utc(3)), rate("1.2", utc(4))))
    found = review(old, new)
    (one,) = found.suspects
    assert (one.key, one.kept, one.waiting) == ("1 EUR from 2026-03-01T00:00:00Z: 11.2 USD", Decimal("1.1"), Decimal("11.2"))
    assert [at(found.book, month) for month in (2, 3, 4)] == [2_200_000, 2_200_000, 2_400_000]
    assert [one.waiting for one in review(old, new, [one.key]).suspects] == [Decimal("1.2")], "down again is a jump too"
    marked = book(euro, rates=(rate("1.1", utc(1)), rate("11.2", utc(3), confirmed=True)))
    assert review(old, marked) == (marked, ())
    edited = review(old, book(euro, rates=(rate("0.11", utc(1)),)))
    assert at(edited.book, 2) == 2_200_000


AMOUNTS = st.integers(0, 40)
LISTS = st.lists(st.tuples(AMOUNTS, st.sampled_from([None, "spot"]), st.integers(1, 9)), max_size=8, unique_by=lambda it: it[1:])


def of(entries: list[tuple[int, str | None, int]]) -> PriceBook:
    found: PriceBook = book(*(price(amount, kind=kind, since=utc(month)) for amount, kind, month in entries))
    return found


@given(LISTS, LISTS)
def test_no_price_that_goes_on_jumps_and_confirming_all_gives_the_new_list(
    old: list[tuple[int, str | None, int]], new: list[tuple[int, str | None, int]]
) -> None:
    found = review(of(old), of(new))
    assert [one.selector for one in found.book.prices] == [one.selector for one in of(new).prices]
    waiting = {(one.what, one.valid_from) for one in found.suspects}
    for after, wanted in zip(found.book.prices, of(new).prices, strict=True):
        assert (after.price == wanted.price and after.source == wanted.source) != ((wanted.words, wanted.valid_from) in waiting)
    keys = [one.key for one in found.suspects]
    again = review(of(old), of(new), keys)
    while again.suspects:  # what was compared with a kept price is compared with the confirmed one now
        assert not {one.key for one in again.suspects} & set(keys)
        keys += [one.key for one in again.suspects]
        again = review(of(old), of(new), keys)
    assert again.book == of(new)
    assert review(found.book, found.book).book == found.book
