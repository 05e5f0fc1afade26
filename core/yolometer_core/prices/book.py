"""A book of prices: a frozen value that says what a GPU cost at a time, and cuts an interval where that changes."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from fnmatch import fnmatchcase
from typing import NamedTuple

from yolometer_core.errors import BadConfig, BadInput
from yolometer_core.prices._base import HIGHEST, ExchangeRate, NodeFacts, Price, Quote, folded, histories
from yolometer_core.prices.exchange import Rates
from yolometer_core.prices.names import plain
from yolometer_core.prices.rules import mistakes
from yolometer_core.prices.timeline import Timeline, timeline
from yolometer_core.times import from_us, us_of

TIMELINES_KEPT = 20_000
"""Kinds of GPUs (model, node and so on) whose timelines are remembered; beyond it all are made again."""

_UNKNOWN = Timeline()


class Segment(NamedTuple):
    """A part of an interval (UTC) in which one quote holds, or none is known."""

    begin: datetime
    end: datetime
    quote: Quote | None


@dataclass(frozen=True)
class PriceBook:
    """Prices, exchange rates into `currency`, other names of GPU models, and facts of nodes. BadConfig when they contradict.

    A price holds for a GPU when each part that it names (node, region, provider, kind) is the GPU's. Of several the closest
    holds: a node says more than a region, that more than a provider, that more than a kind. Of the same closeness it is the
    newest. What a GPU does not say comes from the facts of its node, by the first pattern that fits. Where nobody says of what
    kind and provider a GPU is, a price of owned hardware holds too. No price is None, never 0.
    """

    currency: str
    prices: tuple[Price, ...] = ()
    rates: tuple[ExchangeRate, ...] = ()
    aliases: tuple[tuple[str, str], ...] = ()
    nodes: tuple[NodeFacts, ...] = ()
    highest: Decimal = HIGHEST
    _by_model: dict[str, list[Price]] = field(init=False, repr=False, compare=False, default_factory=dict)
    _other_names: dict[str, str] = field(init=False, repr=False, compare=False, default_factory=dict)
    _timelines: dict[tuple[str | None, ...], Timeline] = field(init=False, repr=False, compare=False, default_factory=dict)
    _rates: Rates = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        wrong = mistakes(self.currency, self.prices, self.rates, self.aliases, self.highest)
        if wrong:
            raise BadConfig(f"The prices cannot be used: {wrong[0].says}.")
        for price in self.prices:
            self._by_model.setdefault(plain(price.gpu_model), []).append(price)
        self._other_names.update({plain(name): plain(model) for name, model in self.aliases})
        object.__setattr__(self, "_rates", Rates(self.currency, self.rates))

    def at(
        self, gpu_model: str | None, time: datetime, *, node: str | None = None, provider: str | None = None,
        region: str | None = None, kind: str | None = None,
    ) -> Quote | None:  # fmt: skip
        """The quote of a GPU at a time; None where no price is known. BadInput for a time without a zone."""
        return self.timeline(gpu_model, node=node, provider=provider, region=region, kind=kind).at(_us(time))

    def cuts(
        self, gpu_model: str | None, begin: datetime, end: datetime, *, node: str | None = None, provider: str | None = None,
        region: str | None = None, kind: str | None = None,
    ) -> list[Segment]:  # fmt: skip
        """The interval [begin, end) in segments of one quote, without gaps. BadInput for an end before the begin."""
        found = self.timeline(gpu_model, node=node, provider=provider, region=region, kind=kind)
        return [Segment(from_us(a), from_us(b), quote) for a, b, quote in found.cuts(_us(begin), _us(end))]

    def timeline(
        self, gpu_model: str | None, *, node: str | None = None, provider: str | None = None, region: str | None = None,
        kind: str | None = None,
    ) -> Timeline:  # fmt: skip
        """All quotes of a GPU through time; remembered, so that asking for each minute of each GPU is a bisection."""
        key = (gpu_model, node, provider, region, kind)
        known = self._timelines.get(key)
        if known is None:
            if len(self._timelines) >= TIMELINES_KEPT:
                self._timelines.clear()
            known = self._timelines[key] = self._find(gpu_model, NodeFacts(node or "", provider, region, kind), node)
        return known

    def holding(self, time: datetime) -> list[Quote]:
        """The prices that hold at a time, one for each selector that has one, in the order of the list."""
        time_us, order = _us(time), {id(price): n for n, price in enumerate(self.prices)}
        quotes = (timeline(own, self._rates).at(time_us) for own in histories(self.prices).values())
        return sorted((quote for quote in quotes if quote is not None), key=lambda quote: order[id(quote.price)])

    def model_of(self, gpu_model: str | None) -> str | None:
        """The model whose prices hold for a name: the same one but for spelling, or the one it is another name of."""
        name = plain(gpu_model or "")
        own = self._by_model.get(name) or self._by_model.get(self._other_names.get(name, ""))
        return own[0].gpu_model if own else None

    def _find(self, gpu_model: str | None, said: NodeFacts, node: str | None) -> Timeline:
        model = self.model_of(gpu_model)
        if model is None:
            return _UNKNOWN
        facts = next((facts for facts in self.nodes if node is not None and fnmatchcase(node, facts.pattern)), NodeFacts(""))
        provider, region = folded(said.provider or facts.provider), folded(said.region or facts.region)
        kind = said.kind or facts.kind
        return timeline(
            (price for price in self._by_model[plain(model)] if _holds(price, node, region, provider, kind)), self._rates
        )


def _holds(price: Price, node: str | None, region: str | None, provider: str | None, kind: str | None) -> bool:
    wanted = price.selector
    return (
        wanted.node in (None, node)
        and wanted.region in (None, region)
        and wanted.provider in (None, provider)
        and (wanted.kind in (None, kind) or (wanted.kind == "owned" and kind is None and provider in (None, wanted.provider)))
    )


def _us(time: datetime) -> int:
    if time.tzinfo is None:
        raise BadInput("A price is asked for at a time without a zone; give the time in UTC.")
    return us_of(time)
