"""What GPU time costs: intervals cut at price changes, in integer micro-units of a currency (docs/prices.md, "Arithmetic").

A price is micro-units per GPU-hour, None where it is not known; a price of 0 is a price. Times are whole microseconds since 1970.
Intervals are half-open: the begin belongs to them, the end does not.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction
from typing import NamedTuple

from yolometer_core.errors import BadInput

HOUR_US = 3_600_000_000
MICROS = 1_000_000
"""Micro-units in one unit of a currency."""

Rate = int | Fraction
Change = tuple[int, Rate | None]
"""From this time on (inclusive) the price is that; None: not known from then on."""


class Piece(NamedTuple):
    """A part of an interval with one price."""

    begin_us: int
    end_us: int
    micro_per_hour: Rate | None


class Cost(NamedTuple):
    """What an interval cost.

    micro        as it is booked, by `metered`; None when no part of it has a price (and it is not empty)
    exact        the same without rounding
    unpriced_us  how much of the interval has no price: microseconds of the interval, whatever the number of GPUs
    """

    micro: int | None
    exact: Fraction | None
    unpriced_us: int


def metered(begin_us: int, end_us: int, micro_per_hour: Rate) -> int:
    """What one GPU costs from begin to end at one price, as whole micro-units read off a meter that never stops.

    It is floor(end x price / hour) - floor(begin x price / hour): adjacent intervals add up to the whole exactly, however it is
    cut; an interval whose cost is a whole number costs that, and any other is off by less than one micro-unit.
    """
    return int(end_us * micro_per_hour // HOUR_US - begin_us * micro_per_hour // HOUR_US)


def cut(begin_us: int, end_us: int, changes: Sequence[Change]) -> list[Piece]:
    """The interval in pieces of one price, without gaps; `changes` are in order of time. Before the first there is no price.

    An empty interval has no pieces. BadInput when the end lies before the begin.
    """
    if end_us < begin_us:
        raise BadInput("An interval of GPU time ends before it begins; give its begin first.")
    pieces: list[Piece] = []
    at = bisect_right(changes, begin_us, key=lambda change: change[0])
    while begin_us < end_us:
        until = min(changes[at][0], end_us) if at < len(changes) else end_us
        pieces.append(Piece(begin_us, until, changes[at - 1][1] if at else None))
        begin_us, at = until, at + 1
    return pieces


def cost(begin_us: int, end_us: int, gpus: int, changes: Sequence[Change]) -> Cost:
    """What `gpus` GPUs cost from begin to end. Where a part has no price, the rest is counted and that part is named beside it.

    No GPUs, or an empty interval, cost 0, also where no price is known.
    """
    priced, exact, unpriced_us = 0, Fraction(0), 0
    pieces = cut(begin_us, end_us, changes) if gpus else []
    for piece in pieces:
        if piece.micro_per_hour is None:
            unpriced_us += piece.end_us - piece.begin_us
            continue
        priced += metered(piece.begin_us, piece.end_us, piece.micro_per_hour) * gpus
        exact += Fraction(piece.end_us - piece.begin_us) * piece.micro_per_hour * gpus / HOUR_US
    if pieces and unpriced_us == end_us - begin_us:
        return Cost(None, None, unpriced_us)
    return Cost(priced, exact, unpriced_us)


def split(total_micro: int, weights: Sequence[float | Decimal | Fraction]) -> list[int]:
    """Whole micro-units in proportion to the weights, by largest remainder: the parts add up to the total, always.

    Of equal remainders the earlier part gets the unit. When all weights are 0, nothing is known and the parts are equal. A
    negative total (a correction) is split as the positive one. BadInput for no weights, or for one that is negative or no number.
    """
    if not weights or not all(math.isfinite(weight) and weight >= 0 for weight in weights):
        raise BadInput("Money is split by weights of 0 or more, at least one; correct the weights.")
    whole = _whole(weights)
    amount, all_weights = abs(total_micro), sum(whole)
    parts = [amount * weight // all_weights for weight in whole]
    left = amount - sum(parts)
    by_remainder = sorted(range(len(whole)), key=lambda n: (-(amount * whole[n] % all_weights), n))
    for n in by_remainder[:left]:
        parts[n] += 1
    return parts if total_micro >= 0 else [-part for part in parts]


def _whole(weights: Sequence[float | Decimal | Fraction]) -> list[int]:
    """The weights as whole numbers in the same proportion; ones where all are 0."""
    exact = [Fraction(weight) for weight in weights]
    scale = math.lcm(*(weight.denominator for weight in exact))
    whole = [int(weight * scale) for weight in exact]
    return whole if any(whole) else [1] * len(whole)
