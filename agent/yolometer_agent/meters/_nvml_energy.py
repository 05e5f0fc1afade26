"""The energy of a GPU from its power, for cards without a counter of their own."""

from __future__ import annotations

GAP_PERIODS = 2.5


class Energy:
    """How the energy of one GPU is known, decided once for the life of the meter; pure but for what it remembers.

    `source` is `counter` (the driver's), `power` (trapezes over samples of the power that follow each other), or None while
    nothing is decided. Integrated energy begins at 0 J with the first sample of the power. Across a gap (no power, or a
    sample missing for more than `GAP_PERIODS` periods) nothing is added: the energy is None there and at the first sample
    after it, and then goes on from where it was, so a difference across a gap says what is known and no more.
    """

    def __init__(self, period_s: float) -> None:
        self.source: str | None = None
        self._gap_s = GAP_PERIODS * period_s
        self._joules = 0.0
        self._last: tuple[float, float] | None = None
        self._begun = False

    def integrated(self, power_w: float | None, at_s: float) -> float | None:
        """The energy with this sample of the power; `at_s` of a steady clock."""
        last, self._last = self._last, None if power_w is None else (at_s, power_w)
        if power_w is None:
            return None
        if not self._begun:
            self._begun = True
            return self._joules
        if last is None or at_s - last[0] > self._gap_s:
            return None
        self._joules += (last[1] + power_w) / 2 * (at_s - last[0])
        return self._joules


__all__ = ["GAP_PERIODS", "Energy"]
