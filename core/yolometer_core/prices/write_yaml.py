"""A list of prices as text for prices.yaml: one price a line, so that two lists can be compared line by line."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from decimal import Decimal
from functools import lru_cache
from typing import Any

import yaml

from yolometer_core.prices._base import Price, written
from yolometer_core.prices.known_names import KNOWN_NAMES
from yolometer_core.prices.names import plain

_KEYS = ("gpu_model", "price", "currency", "provider", "region", "node", "kind", "valid_from", "valid_to", "source", "confirmed")
_DUMPER: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


def file_of(prices: Sequence[Price], currency: str, about: Iterable[str] = ()) -> str:
    """The text of a file with these prices, and the aliases by which the driver's names of their GPUs are known."""
    lines = [*(f"# {line}" for line in about), f"currency: {currency}"]
    aliases = aliases_of(prices)
    if aliases:
        lines += ["# what nvidia-smi calls the models of this file; check them, and add what is missing", "aliases:"]
        lines += [f"  {_quoted(name)}: {_quoted(model)}" for name, model in aliases.items()]
    lines += ["prices:", *(f"  - {_entry(price, currency)}" for price in prices)] if prices else []
    return "\n".join(lines) + "\n"


def aliases_of(prices: Iterable[Price]) -> dict[str, str]:
    """The names that the driver is known to use for the models of these prices, where they are no such model themselves."""
    models = {plain(price.gpu_model): price.gpu_model for price in prices}
    known = {name: models[plain(short)] for short, names in KNOWN_NAMES.items() if plain(short) in models for name in names}
    return {name: model for name, model in sorted(known.items()) if plain(name) not in models}


def _entry(price: Price, currency: str) -> str:
    """One price on one line; what is not said, or is as in the whole file, is left out."""
    said = {key: getattr(price, key) for key in _KEYS}
    if price.currency == currency:
        said["currency"] = None
    return "{" + ", ".join(f"{key}: {_flow(it)}" for key, it in said.items() if it is not None and it is not False) + "}"


def _flow(value: Decimal | datetime | bool | str) -> str:
    """A value as it stands inside a list; text is quoted where it must be."""
    if isinstance(value, Decimal):
        return f"{value:f}"
    if isinstance(value, datetime):
        return written(value)
    return "true" if value is True else _quoted(str(value))


@lru_cache(maxsize=4096)
def _quoted(text: str) -> str:
    listed = yaml.dump([text], Dumper=_DUMPER, default_flow_style=True, allow_unicode=True, width=1 << 30)
    return str(listed).strip().removeprefix("[").removesuffix("]")
