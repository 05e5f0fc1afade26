"""The price of one kind of GPU through all times: a step function, made once from its prices and asked by bisection."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from yolometer_core.errors import BadInput
from yolometer_core.prices._base import ALWAYS_US, NEVER_US, Price, Quote, histories, micro
from yolometer_core.prices.exchange import Rates


class Step(NamedTuple):
    """A part of an interval in which one quote holds, or none is known."""

    begin_us: int
    end_us: int
    quote: Quote | None


class Timeline:
    """Quotes in order of time: each holds from its start to the next one. The first start is before all times."""

    def __init__(self, starts_us: Sequence[int] = (ALWAYS_US,), quotes: Sequence[Quote | None] = (None,)) -> None:
        self.starts_us, self.quotes = starts_us, quotes

    def at(self, time_us: int) -> Quote | None:
        """The quote at a time; None where no price is known."""
        return self.quotes[bisect_right(self.starts_us, time_us) - 1]

    def cuts(self, begin_us: int, end_us: int) -> list[Step]:
        """The interval [begin, end) in pieces of one quote, without gaps; no pieces when it is empty."""
        if end_us < begin_us:
            raise BadInput("An interval of GPU time ends before it begins; give its begin first.")
        if end_us == begin_us:
            return []
        first = bisect_right(self.starts_us, begin_us) - 1
        last = bisect_left(self.starts_us, end_us)
        edges = [begin_us, *self.starts_us[first + 1 : last], end_us]
        return [Step(edges[n], edges[n + 1], self.quotes[first + n]) for n in range(len(edges) - 1)]

    @property
    def changes(self) -> list[tuple[int, int | None]]:
        """The same as changes of micro-units per GPU-hour, for `yolometer_core.maths.cost`."""
        return [(start, quote and quote.micro_per_hour) for start, quote in zip(self.starts_us, self.quotes, strict=True)]


class _Line:
    """The prices of one selector in order of time. A price without an end ends where the next one begins."""

    def __init__(self, rank: int, prices: Sequence[Price]) -> None:
        self.rank = rank
        self.prices = prices
        self.begins = [price.begin_us for price in self.prices]
        nexts = [*self.begins[1:], NEVER_US]
        self.ends = [min(price.end_us, until) for price, until in zip(self.prices, nexts, strict=True)]

    def at(self, time_us: int) -> Price | None:
        n = bisect_right(self.begins, time_us) - 1
        return self.prices[n] if n >= 0 and time_us < self.ends[n] else None


def timeline(prices: Iterable[Price], rates: Rates) -> Timeline:
    """The timeline of prices that all may hold: at each time the one with the closest selector, of these the newest."""
    lines = [_Line(selector.rank, own) for selector, own in histories(prices).items()]
    lines.sort(key=lambda line: -line.rank)
    edges = {ALWAYS_US}
    for line in lines:
        edges.update(line.begins, line.ends)
        for currency in {price.currency for price in line.prices}:
            edges.update(rates.changes(currency))
    starts: list[int] = []
    quotes: list[Quote | None] = []
    for edge in sorted(edges - {NEVER_US}):
        quote = _quote(lines, edge, rates)
        if not starts or quote != quotes[-1]:
            starts.append(edge)
            quotes.append(quote)
    return Timeline(tuple(starts), tuple(quotes))


def _quote(lines: Sequence[_Line], time_us: int, rates: Rates) -> Quote | None:
    price = next((found for line in lines if (found := line.at(time_us)) is not None), None)
    if price is None:
        return None
    rate = rates.at(price.currency, time_us)
    return Quote(price, rates.currency, None if rate is None else micro(price.price * rate), rate)
