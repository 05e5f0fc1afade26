"""Exchange rates with dates: the newest at a time, and money of another currency in that of the list. Unknown stays unknown."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from decimal import Decimal

from yolometer_core.prices._base import ExchangeRate
from yolometer_core.times import us_of

_ONE = Decimal(1)


class Rates:
    """The rates into `currency`. Before the first rate of another currency nothing is known about it."""

    def __init__(self, currency: str, rates: Iterable[ExchangeRate]) -> None:
        self.currency = currency
        self._known: dict[str, tuple[list[int], list[Decimal]]] = {}
        for rate in sorted(rates, key=lambda rate: rate.valid_from):
            starts, values = self._known.setdefault(rate.currency, ([], []))
            starts.append(us_of(rate.valid_from))
            values.append(rate.rate)

    def at(self, currency: str, time_us: int) -> Decimal | None:
        """Units of the list's currency for one unit of `currency` at that time: the newest rate, None where there is none yet."""
        if currency == self.currency:
            return _ONE
        starts, values = self._known.get(currency, ([], []))
        at = bisect_right(starts, time_us)
        return values[at - 1] if at else None

    def changes(self, currency: str) -> list[int]:
        """The times at which the rate of a currency changes."""
        return [] if currency == self.currency else list(self._known.get(currency, ([], []))[0])
