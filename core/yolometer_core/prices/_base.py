"""The words of prices: a price and what it is for, what was found for a GPU at a time, an exchange rate, a mistake in a list."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from decimal import ROUND_HALF_EVEN, Decimal
from typing import Literal, NamedTuple, get_args

from yolometer_core.prices.names import plain
from yolometer_core.times import us_of

Kind = Literal["on_demand", "spot", "reserved", "owned"]
KINDS: tuple[str, ...] = get_args(Kind)
HIGHEST = Decimal(500)
"""A price per GPU-hour above this is more likely one per month, or in cents, and must be confirmed."""
ALWAYS_US, NEVER_US = -(1 << 62), 1 << 62
"""Before and after every time that can be written."""


class Selector(NamedTuple):
    """What a price is for. None says nothing about that, and the price holds for all."""

    gpu_model: str
    node: str | None
    region: str | None
    provider: str | None
    kind: str | None

    @property
    def rank(self) -> int:
        """How close it looks: a node says more than a region, that more than a provider, that more than a kind."""
        return sum(weight for weight, part in zip((8, 4, 2, 1), self[1:], strict=True) if part is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """Money per GPU-hour, for whom and when. `valid_from` belongs to the time, `valid_to` does not; None: open.

    A price of 0 is a price. `confirmed` says that a person looked at an unusual value. `line` is where it was read.
    """

    gpu_model: str
    price: Decimal
    currency: str
    provider: str | None = None
    region: str | None = None
    node: str | None = None
    kind: str | None = None
    valid_from: datetime | None = None
    valid_to: datetime | None = None
    source: str | None = None
    confirmed: bool = False
    line: int | None = field(default=None, compare=False)

    @property
    def selector(self) -> Selector:
        """What it is for; spelling and case of models, regions and providers do not matter."""
        return Selector(plain(self.gpu_model), self.node, folded(self.region), folded(self.provider), self.kind)

    @property
    def begin_us(self) -> int:
        return ALWAYS_US if self.valid_from is None else us_of(self.valid_from)

    @property
    def end_us(self) -> int:
        return NEVER_US if self.valid_to is None else us_of(self.valid_to)

    @property
    def words(self) -> str:
        """What it is for, as a person says it: `H100 (aws, us-east-1, spot)`."""
        parts = [part for part in (self.node and f"node {self.node}", self.provider, self.region, self.kind) if part]
        return f"{self.gpu_model} ({', '.join(parts)})" if parts else self.gpu_model


class ExchangeRate(NamedTuple):
    """From `valid_from` on, one unit of `currency` is worth so many units of the currency of the list."""

    currency: str
    rate: Decimal
    valid_from: datetime
    source: str | None = None
    confirmed: bool = False
    line: int | None = None


class NodeFacts(NamedTuple):
    """What is known of the nodes whose names match `pattern` (`*`, `?` and `[...]`): it makes the prices of a cloud theirs."""

    pattern: str
    provider: str | None = None
    region: str | None = None
    kind: str | None = None


class Quote(NamedTuple):
    """The price that holds for a GPU at a time, and what it is in micro-units of `currency`, the one of all totals.

    `micro_per_hour` is None when the price is in a currency whose exchange rate is not known then: unknown money, never 0.
    """

    price: Price
    currency: str
    micro_per_hour: int | None
    exchange_rate: Decimal | None


class Mistake(NamedTuple):
    """What is wrong in a list of prices, in half a sentence, with the line where there is one."""

    line: int | None
    says: str


def histories(prices: Iterable[Price]) -> dict[Selector, list[Price]]:
    """The prices of each selector in order of time."""
    found: dict[Selector, list[Price]] = {}
    for price in sorted(prices, key=lambda price: price.begin_us):
        found.setdefault(price.selector, []).append(price)
    return found


def folded(text: str | None) -> str | None:
    """A region or provider without regard to case."""
    return text if text is None else text.casefold()


def micro(amount: Decimal) -> int:
    """An amount in micro-units, rounded half to even."""
    return int((amount * 1_000_000).to_integral_value(rounding=ROUND_HALF_EVEN))


def written(time: datetime | None) -> str:
    """A time as it is written in a list of prices."""
    return "the beginning" if time is None else time.isoformat().replace("+00:00", "Z")


def at_line(line: int | None) -> str:
    return "a price" if line is None else f"line {line}"
