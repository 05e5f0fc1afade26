"""What makes a list of prices wrong: values that cannot be meant, prices that contradict one another, names that lead nowhere."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from itertools import pairwise

from yolometer_core.prices._base import HIGHEST, KINDS, ExchangeRate, Mistake, Price, at_line, histories, written
from yolometer_core.prices.currencies import is_currency, nearest
from yolometer_core.prices.names import plain

SPREAD = 50
"""Prices of one model that lie further apart than so many times: one of them is in another unit (cents, a month, a node)."""


def mistakes(
    currency: str, prices: Sequence[Price], rates: Sequence[ExchangeRate], aliases: Iterable[tuple[str, str]],
    highest: Decimal = HIGHEST, alias_lines: Mapping[str, int | None] | None = None,
) -> list[Mistake]:  # fmt: skip
    """All that is wrong, in order of lines; nothing is an empty list."""
    found = [mistake for price in prices for mistake in _of_a_price(price, highest)]
    if not is_currency(currency):
        found.append(Mistake(None, f"{currency!r} is no currency; {nearest(currency)}"))
    if not found:  # only prices that are right for themselves can be compared
        found = [*_models(prices), *_overlaps(prices), *_spread(prices), *_aliases(prices, aliases, alias_lines or {})]
    found += _rates(currency, rates)
    return sorted(found, key=lambda mistake: mistake.line or 0)


def _of_a_price(price: Price, highest: Decimal) -> Iterator[Mistake]:
    """What is wrong with one price for itself."""
    if not plain(price.gpu_model):
        yield Mistake(price.line, "the GPU model has no name; write it as nvidia-smi shows it, or as the others write it")
    if not price.price.is_finite() or price.price < 0:
        yield Mistake(price.line, f"the price {price.price} is not 0 or more; write money per GPU-hour")
    elif price.price > highest and not price.confirmed:
        yield Mistake(
            price.line, f"{price.price} {price.currency} is more than a GPU-hour costs ({highest}); write the price of one GPU"
            " for one hour (not of a month, of a whole node, or in cents), or add `confirmed: true`"
        )  # fmt: skip
    if not is_currency(price.currency):
        yield Mistake(price.line, f"{price.currency!r} is no currency; {nearest(price.currency)}")
    if price.kind is not None and price.kind not in KINDS:
        yield Mistake(price.line, f"{price.kind!r} is no kind of price; write one of {', '.join(KINDS)}")
    for name, value in (("node", price.node), ("region", price.region), ("provider", price.provider)):
        if value is not None and not value.strip():
            yield Mistake(price.line, f"the {name} is empty; name it or leave the key out")
    if price.node is not None and any(letter in price.node for letter in "*?["):
        yield Mistake(price.line, f"a price is for one node, not for {price.node!r}; say what such nodes are under `nodes`")
    if price.end_us <= price.begin_us:
        ends = written(price.valid_to)
        yield Mistake(price.line, f"valid_to {ends} is not after valid_from {written(price.valid_from)}; correct one of the two")


def _models(prices: Iterable[Price]) -> Iterator[Mistake]:
    """One model in two spellings would look like two."""
    spelt: dict[str, Price] = {}
    for price in prices:
        first = spelt.setdefault(plain(price.gpu_model), price)
        if first.gpu_model != price.gpu_model:
            yield Mistake(
                price.line, f"{price.gpu_model!r} is the same GPU model as {first.gpu_model!r} ({at_line(first.line)});"
                " write both the same"
            )  # fmt: skip


def _overlaps(prices: Iterable[Price]) -> Iterator[Mistake]:
    """Of one selector, at most one price may hold at a time. A price without an end ends where the next one begins."""
    for own in histories(prices).values():
        for before, after in pairwise(own):
            if before.begin_us != after.begin_us and (before.valid_to is None or before.end_us <= after.begin_us):
                continue
            since = written(after.valid_from)
            both = f"{at_line(before.line)} and {at_line(after.line)} both give a price of {after.words} from {since} on"
            yield Mistake(after.line, f"{both}; end the first one then, or remove one")


def _spread(prices: Iterable[Price]) -> Iterator[Mistake]:
    """A price in cents or per month stands out among the others of its model, also below the highest one allowed."""
    cheapest: dict[tuple[str, str], Price] = {}
    for price in prices:
        key = (plain(price.gpu_model), price.currency)
        if price.price > 0 and not price.confirmed and (key not in cheapest or price.price < cheapest[key].price):
            cheapest[key] = price
    for price in prices:
        low = cheapest.get((plain(price.gpu_model), price.currency))
        if low is not None and not price.confirmed and price.price > SPREAD * low.price:
            times = f"{price.price / low.price:.3g}"
            yield Mistake(
                price.line, f"{price.price} {price.currency} for {price.gpu_model} is {times} times the {low.price} of"
                f" {at_line(low.line)}; write both per GPU-hour, or add `confirmed: true` to the unusual one"
            )  # fmt: skip


def _aliases(
    prices: Iterable[Price], aliases: Iterable[tuple[str, str]], lines: Mapping[str, int | None]
) -> Iterator[Mistake]:  # fmt: skip
    models = {plain(price.gpu_model): price.gpu_model for price in prices}
    seen: dict[str, str] = {}
    for name, model in aliases:
        if plain(model) not in models:
            near = difflib.get_close_matches(plain(model), models, n=1, cutoff=0.5)
            hint = f"did you mean {models[near[0]]!r}" if near else "add one, or remove the alias"
            yield Mistake(lines.get(name), f"the alias {name!r} leads to {model!r}, which has no price; {hint}")
        elif plain(name) in models:
            yield Mistake(lines.get(name), f"the alias {name!r} has prices of its own; remove the alias, or those prices")
        if plain(seen.setdefault(plain(name), model)) != plain(model):
            yield Mistake(lines.get(name), f"the alias {name!r} leads to two models; keep one")


def _rates(currency: str, rates: Iterable[ExchangeRate]) -> Iterator[Mistake]:
    seen: dict[tuple[str, object], ExchangeRate] = {}
    for rate in rates:
        if not is_currency(rate.currency):
            yield Mistake(rate.line, f"{rate.currency!r} is no currency; {nearest(rate.currency)}")
        if not rate.rate.is_finite() or rate.rate <= 0:
            says = f"the exchange rate {rate.rate} is not above 0; write what one {rate.currency} is in {currency}"
            yield Mistake(rate.line, says)
        if rate.currency == currency:
            yield Mistake(rate.line, f"an exchange rate of {currency} into itself says nothing; remove it")
        first = seen.setdefault((rate.currency, rate.valid_from), rate)
        if first is not rate:
            both = f"{at_line(first.line)} and {at_line(rate.line)} both give a rate of {rate.currency}"
            yield Mistake(rate.line, f"{both} from {written(rate.valid_from)} on; remove one")
