"""What a list of prices that can be used still leaves open: gaps, jumps, money that cannot be converted, prices nobody has."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from yolometer_core.prices._base import NEVER_US, Mistake, Price, at_line, histories, written
from yolometer_core.prices.book import PriceBook
from yolometer_core.prices.exchange import Rates
from yolometer_core.prices.review import compared
from yolometer_core.times import from_us


def warnings(book: PriceBook) -> list[Mistake]:
    """All of it, in order of lines; nothing is an empty list."""
    found = [*_gaps(book), *_jumps(book), *_without_rate(book), *_without_node(book)]
    return sorted(found, key=lambda warning: warning.line or 0)


def _gaps(book: PriceBook) -> Iterator[Mistake]:
    """Times without a price, after the first price of a selector, where no wider price holds either."""
    for selector, prices in histories(book.prices).items():
        first = prices[0]
        line = book.timeline(
            first.gpu_model, node=selector.node, region=selector.region, provider=selector.provider, kind=selector.kind
        )
        for begin_us, end_us, quote in line.cuts(max(first.begin_us, line.starts_us[0]), NEVER_US):
            if quote is None:
                before = next((price for price in reversed(prices) if price.end_us <= begin_us), first)
                until = "" if end_us == NEVER_US else f" to {written(from_us(end_us))}"
                since = written(from_us(begin_us))
                yield Mistake(before.line, f"{first.words} has no price from {since}{until}; hours then are shown as unpriced")


def _jumps(book: PriceBook) -> Iterator[Mistake]:
    rates = Rates(book.currency, book.rates)
    for prices in histories(book.prices).values():
        for before, after in pairwise(prices):
            times = compared(before, after, rates)
            if times is not None and times.suspect and not after.confirmed:
                yield Mistake(
                    after.line, f"{after.words} goes from {before.price} {before.currency} to {after.price} {after.currency} at"
                    f" {written(after.valid_from)}, {times.words} in {at_line(before.line)}; it waits for `confirmed: true`"
                )  # fmt: skip


def _without_rate(book: PriceBook) -> Iterator[Mistake]:
    rates = Rates(book.currency, book.rates)
    for price in book.prices:
        known = rates.changes(price.currency)
        if price.currency == book.currency or (known and (price.valid_from is None or known[0] <= price.begin_us)):
            continue
        since = f" before {written(from_us(known[0]))}" if known else ""
        says = f"no exchange rate of {price.currency} into {book.currency} is known{since}; what it costs is unknown then"
        yield Mistake(price.line, says)


def _without_node(book: PriceBook) -> Iterator[Mistake]:
    """Prices of a provider, region or kind that no entry under `nodes` speaks of."""
    alone = [price for price in book.prices if not _reached(book, price)]
    if alone:
        first = alone[0]
        others = f" (and {len(alone) - 1} more)" if len(alone) > 1 else ""
        yield Mistake(
            first.line, f"{first.words}{others} holds for no node, as nothing under `nodes` says so; add the provider, region and"
            " kind of your nodes there"
        )  # fmt: skip


def _reached(book: PriceBook, price: Price) -> bool:
    lines = [book.timeline(price.gpu_model, node=price.node)]
    if price.node is None:
        lines += [book.timeline(price.gpu_model, provider=it.provider, region=it.region, kind=it.kind) for it in book.nodes]
    return any(quote is not None and quote.price.selector == price.selector for line in lines for quote in line.quotes)
