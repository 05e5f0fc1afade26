"""Shares: how one GPU is split among the runs on it, in millionths that add up exactly."""

from __future__ import annotations

import math
from collections.abc import Sequence

from yolometer_agent.attribute._base import WHOLE_MICRO


def active_micro(ratios: Sequence[float | None]) -> int | None:
    """The time that the processes of a run were active, in millionths; None when it is not known for all of them."""
    total = 0
    for ratio in ratios:
        if ratio is None or not math.isfinite(ratio) or ratio < 0:
            return None
        total += round(min(ratio, 1.0) * WHOLE_MICRO)
    return total


def split_micro(active: Sequence[int | None]) -> list[int]:
    """One share for each run, by the time that it was active; equal when that is not known for all, or nobody was.

    What rounding leaves goes to the largest remainders, the first ones where they are alike.
    """
    known = [value for value in active if value is not None]
    weights = known if len(known) == len(active) and sum(known) > 0 else [1] * len(active)
    total = sum(weights)
    shares = [WHOLE_MICRO * weight // total for weight in weights]
    rest = WHOLE_MICRO - sum(shares)
    by_remainder = sorted(range(len(weights)), key=lambda at: (-(WHOLE_MICRO * weights[at] % total), at))
    for at in by_remainder[:rest]:
        shares[at] += 1
    return shares


__all__ = ["active_micro", "split_micro"]
