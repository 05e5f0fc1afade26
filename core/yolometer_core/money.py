"""Money: Decimal in, Decimal out, micro-units of a currency; never a sum of floats, and unknown is never 0."""

from __future__ import annotations

from decimal import ROUND_HALF_EVEN, Decimal

MICRO = Decimal("0.000001")


def cost_of(gpu_seconds: float | None, price_per_gpu_hour: Decimal | None) -> Decimal | None:
    """What GPU-seconds cost at a price per GPU-hour, to the micro-unit; None when either is unknown, 0 when the price is 0."""
    if gpu_seconds is None or price_per_gpu_hour is None:
        return None
    return (Decimal(repr(gpu_seconds)) * price_per_gpu_hour / 3600).quantize(MICRO, rounding=ROUND_HALF_EVEN)
