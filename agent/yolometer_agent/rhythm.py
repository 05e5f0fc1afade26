"""Rhythm: how often to look through the trees of files: often, unless they are so large that it would become the work."""

from __future__ import annotations

from collections.abc import Callable

SCAN_S = 5.0
SCAN_SHARE = 50


class ScanRhythm:
    """When to look for new files: every 5 s, and so seldom that looking takes a fiftieth of the time. A clock may step back."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._next_s = clock()
        self._every_s = SCAN_S

    def is_due(self, now_s: float) -> bool:
        """Whether it is time to look."""
        return now_s >= self._next_s or self._next_s - now_s > self._every_s

    def looked(self, began_s: float) -> None:
        """It was looked, from `began_s` until now."""
        self._every_s = max(SCAN_S, SCAN_SHARE * (self._clock() - began_s))
        self._next_s = began_s + self._every_s

    def again(self) -> None:
        """Look as soon as it is asked for."""
        self._next_s = self._clock()
