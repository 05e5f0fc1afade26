"""The one place where a number of NVML becomes a value: its unit, and whether a card can mean it at all."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

SENTINELS = frozenset({2**32 - 1, 2**64 - 1, 2**63 - 1, -1})
"""Numbers by which drivers say that there is none. No card means them: they are no whole pages, watts or degrees."""
_EXACT = 2.0**53
_SETTLE_S = 10.0
"""A driver renews its counters in steps, so they can grow by some seconds at once."""


class Unit(NamedTuple):
    """How many of NVML's units make one of ours, and what is possible. `per_s` is the most a counter can grow in a second."""

    per: float = 1.0
    least: float = 0.0
    most: float = _EXACT
    counts: bool = False
    per_s: float | None = None


_SECONDS = Unit(1e9, counts=True, per_s=1.0)  # from nanoseconds
_COUNT = Unit(counts=True)
UNITS: dict[str, Unit] = {
    "gpu_util_ratio": Unit(100, most=1),
    "memory_util_ratio": Unit(100, most=1),
    "memory_used_bytes": Unit(),
    "memory_total_bytes": Unit(least=1),
    "power_w": Unit(1000, most=10_000),
    "power_limit_w": Unit(1000, least=1, most=10_000),
    "energy_j": Unit(1000, counts=True, per_s=10_000),
    "sm_clock_mhz": Unit(most=10_000),
    "memory_clock_mhz": Unit(most=50_000),
    "temperature_c": Unit(most=300),
    "clock_event_reasons": Unit(),
    "throttle_power_s": _SECONDS,
    "throttle_thermal_s": _SECONDS,
    "throttle_hw_thermal_s": _SECONDS,
    "throttle_brake_s": _SECONDS,
    "throttle_sync_s": _SECONDS,
    "pcie_gen": Unit(least=1, most=20),
    "pcie_width": Unit(least=1, most=64),
    "pcie_replays": _COUNT,
    "ecc_corrected": _COUNT,
    "ecc_uncorrected": _COUNT,
    "nvlink_errors": _COUNT,
}


class Values:
    """Makes values of the numbers of one card. What it cannot mean is None and counted in `refused`, by the value's name.

    A counter that goes back, or grows faster than it can, is None once; from there it counts on: a reset is no error for
    ever, and whoever takes differences sees it.
    """

    def __init__(self, refused: Counter[str]) -> None:
        self._refused = refused
        self._last: dict[str, tuple[float, float]] = {}

    def known(self, name: str, raw: float, now_s: float) -> float | None:
        """The value of a number that NVML gave, in our unit."""
        per, least, most, counts, per_s = UNITS[name]
        value = raw / per
        if not least <= value <= most or raw in SENTINELS:
            self._refused[name] += 1
            return None
        if not counts:
            return value
        last = self._last.get(name)
        self._last[name] = value, now_s
        if last is None:
            return value
        if value >= last[0] and (per_s is None or value - last[0] <= per_s * (_SETTLE_S + 1.1 * (now_s - last[1]))):
            return value
        self._refused[name] += 1
        return None

    def refuse(self, name: str) -> None:
        """Count a value that only the caller can see to be impossible."""
        self._refused[name] += 1


def bytes_or_none(said: int | None) -> int | None:
    """A size that NVML gave outside of the samples."""
    return None if said is None or said in SENTINELS or not 0 <= said <= _EXACT else int(said)


__all__ = ["SENTINELS", "UNITS", "Unit", "Values", "bytes_or_none"]
