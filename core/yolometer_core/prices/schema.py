"""The keys of prices.yaml: what they are called, what they may say, and the prices they become."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from typing import Annotated, Any, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from yolometer_core.prices._base import HIGHEST, KINDS, ExchangeRate, Kind, NodeFacts, Price
from yolometer_core.prices.currencies import is_currency, nearest
from yolometer_core.prices.owned import Owned

_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d{1,2})?", re.ASCII)
_LARGEST = Decimal(10**15)
DIGITS = 6
"""Digits after the point that money has: micro-units."""
LEAST_GPU_W, MOST_GPU_W = Decimal(10), Decimal(5000)
"""What one GPU with its share of the machine draws lies between these, or it is in another unit."""


def _number(value: Any) -> Decimal:
    if not isinstance(value, str) or not _NUMBER.fullmatch(value.strip()):
        said = {"value": repr(value)}
        raise PydanticCustomError("number", "{value} is no number; write digits, with a point and without a unit", said)
    number = Decimal(value.strip())
    if number < 0:
        raise PydanticCustomError("negative", "{value} is negative; write 0 or more", {"value": value})
    if number > _LARGEST:
        raise PydanticCustomError("large", "{value} is too large to be meant; check the unit", {"value": value})
    return number


def _money(value: Any) -> Decimal:
    number = _number(value)
    if number != number.quantize(Decimal(1).scaleb(-DIGITS)):
        said = {"value": value, "digits": DIGITS}
        raise PydanticCustomError("digits", "{value} has more than {digits} digits after the point; round it", said)
    return number


def _time(value: Any) -> datetime:
    try:
        time = datetime.fromisoformat(str(value).strip())
        in_utc = time.astimezone(UTC)
    except (ValueError, OverflowError):
        said = {"value": repr(value)}
        raise PydanticCustomError("time", "{value} is no time; write it as 2026-01-31T00:00:00Z", said) from None
    if time.tzinfo is None:
        said = {"value": value, "utc": time.isoformat()}
        raise PydanticCustomError("zone", "{value} has no zone; write {utc}Z for UTC, or +02:00 behind it for another", said)
    return in_utc


def _currency(value: Any) -> str:
    code = str(value)
    if not is_currency(code):
        raise PydanticCustomError("currency", "{value} is no currency; {hint}", {"value": repr(code), "hint": nearest(code)})
    return code


def _kind(value: Any) -> str:
    if value not in KINDS:
        said = {"value": repr(value), "kinds": ", ".join(KINDS)}
        raise PydanticCustomError("kind", "{value} is no kind of price; write one of {kinds}", said)
    return str(value)


def _yes(value: Any) -> bool:
    if str(value).casefold() not in ("true", "false"):
        raise PydanticCustomError("yes", "{value} is neither true nor false; write one of the two", {"value": repr(value)})
    return str(value).casefold() == "true"


Number = Annotated[Decimal, BeforeValidator(_number)]
Money = Annotated[Decimal, BeforeValidator(_money)]
Time = Annotated[datetime, BeforeValidator(_time)]
Currency = Annotated[str, BeforeValidator(_currency)]
KindOf = Annotated[Kind, BeforeValidator(_kind)]
Yes = Annotated[bool, BeforeValidator(_yes)]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    @model_validator(mode="before")
    @classmethod
    def _left_empty(cls, values: Any) -> Any:
        """A key without a value says nothing: as if it were not there."""
        return {key: value for key, value in values.items() if value is not None} if isinstance(values, dict) else values


class _For(_Part):
    """What a price is for, and when it holds: the same for bought and rented hardware."""

    gpu_model: str = Field(description="model of the GPU, as nvidia-smi names it, or as the other entries do")
    provider: str | None = Field(default=None, description="only for GPUs of this provider")
    region: str | None = Field(default=None, description="only for GPUs in this region")
    node: str | None = Field(default=None, description="only for GPUs of this node")
    currency: Currency | None = Field(default=None, description="currency of the price; that of the file by default")
    valid_from: Time | None = Field(default=None, description="first moment at which it holds; by default it always held")
    valid_to: Time | None = Field(default=None, description="moment from which it no longer holds; by default that of the next")
    source: str | None = Field(default=None, description="where the number is from: an invoice, a page")
    confirmed: Yes = Field(default=False, description="true: the value is unusual and somebody looked at it")


class PriceEntry(_For):
    """A price that somebody asks for a GPU-hour."""

    price: Money = Field(description="money for one GPU for one hour; 0 is free")
    kind: KindOf | None = Field(default=None, description="only for GPUs rented that way: on_demand, spot, reserved, owned")


class OwnedEntry(_For):
    """Hardware that was bought; its price per GPU-hour follows from the other keys (docs/prices.md, "Owned hardware")."""

    gpus: Annotated[int, Field(ge=1, le=100_000)] = Field(description="how many GPUs the other numbers are for, together")
    purchase_price: Money = Field(description="what they cost, with their machines")
    resale: Money = Field(description="what they will be worth at the end of their life; 0 for nothing")
    life_years: Annotated[Number, Field(gt=0, le=30)] = Field(description="years over which the purchase is spread")
    power_price_per_kwh: Money = Field(description="price of a kilowatt-hour")
    pue: Annotated[Number, Field(ge=1, le=3)] = Field(description="energy of the building for each kWh of the machines; 1 to 3")
    power_w: Number | None = Field(default=None, description="mean power of all of them with their machines, in watts")
    measured_kwh: Number | None = Field(default=None, description="instead of power_w: energy that was measured")
    measured_gpu_hours: Number | None = Field(default=None, description="GPU-hours over which that energy was measured")
    people_per_year: Money | None = Field(default=None, description="what the people who run them cost a year")
    space_per_year: Money | None = Field(default=None, description="what the space they stand in costs a year")

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.resale > self.purchase_price:
            raise PydanticCustomError("resale", "resale is more than purchase_price; correct one of the two")
        measured = (self.measured_kwh, self.measured_gpu_hours)
        if (self.power_w is None) == (None in measured) or (self.power_w is not None and measured != (None, None)):
            raise PydanticCustomError("power", "give either power_w, or both measured_kwh and measured_gpu_hours")
        kw = self.bought().gpu_kw
        if kw is None or (not LEAST_GPU_W <= kw * 1000 <= MOST_GPU_W and not self.confirmed):
            drawn = "no power" if kw is None else f"{float(kw * 1000):.4g} W"
            said = {"drawn": drawn, "least": str(LEAST_GPU_W), "most": str(MOST_GPU_W)}
            hint = "{drawn} for each GPU is not between {least} and {most} W; check the unit and gpus, or add `confirmed: true`"
            raise PydanticCustomError("power", hint, said)
        return self

    def bought(self) -> Owned:
        """The same as a value that knows its price."""
        return Owned(**{name: getattr(self, name) for name in Owned.__dataclass_fields__})


class RateEntry(_Part):
    """What one unit of a currency is worth in the currency of the file, from a moment on."""

    currency: Currency = Field(description="the other currency")
    rate: Number = Field(description="what one unit of it is worth in the currency of the file")
    valid_from: Time = Field(description="first moment at which it holds; it holds until the next one")
    source: str | None = Field(default=None, description="where the number is from")
    confirmed: Yes = Field(default=False, description="true: the value is unusual and somebody looked at it")


class NodeEntry(_Part):
    """What is known of some nodes."""

    provider: str | None = Field(default=None, description="who rents them out")
    region: str | None = Field(default=None, description="where they are")
    kind: KindOf | None = Field(default=None, description="how they are rented: on_demand, spot, reserved, owned")


class PriceFile(_Part):
    """The whole file."""

    currency: Currency = Field(description="currency of all totals, and of every entry that names none (ISO 4217)")
    highest: Money = Field(default=HIGHEST, description="a price above this must say `confirmed: true`; more for a weak currency")
    prices: list[PriceEntry] = Field(default=[], description="prices of rented hardware, one entry each")
    owned: list[OwnedEntry] = Field(default=[], description="hardware that was bought, one entry each")
    aliases: dict[str, str] = Field(default={}, description="other names of GPU models: name as a GPU says it, name in this file")
    nodes: dict[str, NodeEntry] = Field(default={}, description="facts of nodes by name or pattern (*, ?); the first that fits")
    exchange_rates: list[RateEntry] = Field(default=[], description="worth of other currencies, with dates")


LineOf = Callable[..., int | None]


def contents(file: PriceFile, line_of: LineOf) -> tuple[tuple[Price, ...], tuple[ExchangeRate, ...], tuple[NodeFacts, ...]]:
    """The prices, exchange rates and facts of nodes in a file."""
    prices = [
        Price(**_common(entry, file.currency, line_of("prices", n)), price=entry.price, kind=entry.kind, source=entry.source)
        for n, entry in enumerate(file.prices)
    ]
    for n, owned in enumerate(file.owned):
        bought = owned.bought()
        source = f"{bought.provenance()} ({owned.source})" if owned.source else bought.provenance()
        common = _common(owned, file.currency, line_of("owned", n))
        prices.append(Price(**common, price=bought.price(), kind="owned", source=source))
    rates = [
        ExchangeRate(entry.currency, entry.rate, entry.valid_from, entry.source, entry.confirmed, line_of("exchange_rates", n))
        for n, entry in enumerate(file.exchange_rates)
    ]
    nodes = [NodeFacts(pattern, facts.provider, facts.region, facts.kind) for pattern, facts in file.nodes.items()]
    return tuple(prices), tuple(rates), tuple(nodes)


def _common(entry: _For, currency: str, line: int | None) -> dict[str, Any]:
    own = ("gpu_model", "provider", "region", "node", "valid_from", "valid_to", "confirmed")
    return {**{name: getattr(entry, name) for name in own}, "currency": entry.currency or currency, "line": line}
