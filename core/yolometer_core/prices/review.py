"""New prices against those that are in use: a change beyond five times waits for a person, and the last good price goes on."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from datetime import datetime
from decimal import Decimal
from typing import NamedTuple

from yolometer_core.prices._base import ExchangeRate, Price, histories, written
from yolometer_core.prices.book import PriceBook
from yolometer_core.prices.exchange import Rates

MOST_TIMES = 5
REASON = "price_suspect"


class Compared(NamedTuple):
    """How many times the old price the new one is; None where that cannot be said (from or to 0, no exchange rate)."""

    times: Decimal | None

    @property
    def suspect(self) -> bool:
        return self.times is None or self.times > MOST_TIMES or self.times * MOST_TIMES < 1

    @property
    def words(self) -> str:
        if self.times is None:
            return "a change without measure"
        return f"{self.times:.3g} times that" if self.times >= 1 else f"1/{1 / self.times:.3g} of that"


class Suspect(NamedTuple):
    """A change that waits. `key` is what a person confirms, and nothing but this value at this time."""

    key: str
    what: str
    valid_from: datetime | None
    kept: Decimal
    waiting: Decimal
    times: Decimal | None
    line: int | None
    reason: str = REASON


class Review(NamedTuple):
    """The book to go on with, and the changes that are not in it yet."""

    book: PriceBook
    suspects: tuple[Suspect, ...]


def review(old: PriceBook | None, new: PriceBook, confirmed: Collection[str] = ()) -> Review:
    """The new book, but where a price or an exchange rate changed beyond five times, up or down, the last good one goes on.

    A price is compared with the old one of the same selector and start, else with the good one before it. What says
    `confirmed: true`, or whose key is in `confirmed`, is taken. A first price of a selector has nothing to be compared with.
    What is no longer in the new book is gone.
    """
    before = histories(old.prices) if old else {}
    suspects: list[Suspect] = []
    rates = _rates(old, new, confirmed, suspects)
    worth = Rates(new.currency, rates)
    prices: list[Price] = []
    for selector, own in histories(new.prices).items():
        prices += _prices(before.get(selector, []), own, worth, confirmed, suspects)
    order = {(price.selector, price.begin_us): n for n, price in enumerate(new.prices)}
    prices.sort(key=lambda price: order[price.selector, price.begin_us])
    return Review(replace(new, prices=tuple(prices), rates=tuple(rates)), tuple(suspects))


def compared(before: Price, after: Price, rates: Rates) -> Compared | None:
    """How a price changed; None when it did not. Prices in two currencies are compared by the rates at the later start."""
    if before.currency == after.currency:
        return None if before.price == after.price else _times(before.price, after.price)
    old_rate, new_rate = (rates.at(price.currency, after.begin_us) for price in (before, after))
    if old_rate is None or new_rate is None:
        return Compared(None)
    return _times(before.price * old_rate, after.price * new_rate)


def _times(before: Decimal, after: Decimal) -> Compared:
    if before == after:
        return Compared(Decimal(1))
    return Compared(after / before) if before and after else Compared(None)


def _prices(
    old: list[Price], new: list[Price], rates: Rates, confirmed: Collection[str], suspects: list[Suspect]
) -> list[Price]:
    """The prices of one selector as they are taken, in order of time."""
    same_start = {price.begin_us: price for price in old}
    good: Price | None = None
    taken = []
    for price in new:
        earlier = [one for one in old if one.begin_us <= price.begin_us]
        against = same_start.get(price.begin_us) or good or (earlier[-1] if earlier else next(iter(old), None))
        changed = compared(against, price, rates) if against else None
        key = f"{price.words} from {written(price.valid_from)}: {price.price} {price.currency}"
        if against and changed and changed.suspect and not price.confirmed and key not in confirmed:
            suspects.append(Suspect(key, price.words, price.valid_from, against.price, price.price, changed.times, price.line))
            source = f"{REASON}: {price.price} {price.currency} waits for confirmation"
            price = replace(price, price=against.price, currency=against.currency, source=source, confirmed=True)  # noqa: PLW2901
        good = price
        taken.append(price)
    return taken


def _rates(
    old: PriceBook | None, new: PriceBook, confirmed: Collection[str], suspects: list[Suspect]
) -> list[ExchangeRate]:
    """The exchange rates as they are taken; those of a book in another currency say nothing about these."""
    known = old.rates if old and old.currency == new.currency else ()
    same_start = {(rate.currency, rate.valid_from): rate for rate in known}
    good: dict[str, ExchangeRate] = {}
    taken: dict[tuple[str, datetime], ExchangeRate] = {}
    for rate in sorted(new.rates, key=lambda rate: rate.valid_from):
        earlier = sorted((one for one in known if one.currency == rate.currency), key=lambda one: one.valid_from)
        before = [one for one in earlier if one.valid_from <= rate.valid_from] or earlier[:1]
        against = same_start.get((rate.currency, rate.valid_from)) or good.get(rate.currency) or (before[-1] if before else None)
        changed = _times(against.rate, rate.rate) if against else None
        key = f"1 {rate.currency} from {written(rate.valid_from)}: {rate.rate} {new.currency}"
        if against and changed and changed.suspect and not rate.confirmed and key not in confirmed:
            what = f"{rate.currency} in {new.currency}"
            suspects.append(Suspect(key, what, rate.valid_from, against.rate, rate.rate, changed.times, rate.line))
            rate = rate._replace(rate=against.rate, source=f"{REASON}: {rate.rate} waits for confirmation")  # noqa: PLW2901
        good[rate.currency] = taken[rate.currency, rate.valid_from] = rate
    return [taken[rate.currency, rate.valid_from] for rate in new.rates]
