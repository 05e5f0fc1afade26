"""Small books of prices for these tests."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

from yolometer_core.prices._base import ExchangeRate, NodeFacts, Price
from yolometer_core.prices.book import PriceBook

CASES = Path(__file__).parents[2] / "cases" / "prices"


def utc(month: int = 1, day: int = 1, hour: int = 0, *, year: int = 2026) -> datetime:
    return datetime(year, month, day, hour, tzinfo=UTC)


def price(amount: str | int, gpu_model: str = "A100", since: datetime | None = None, **more: Any) -> Price:
    return Price(**{"gpu_model": gpu_model, "price": Decimal(amount), "currency": "USD", "valid_from": since, **more})


def rate(amount: str, since: datetime, currency: str = "EUR", confirmed: bool = False) -> ExchangeRate:
    return ExchangeRate(currency, Decimal(amount), since, None, confirmed)


def book(*prices: Price, **more: Any) -> PriceBook:
    return PriceBook("USD", prices, **more)


def facts(pattern: str, **more: Any) -> NodeFacts:
    return NodeFacts(pattern, **more)
