"""A limit on dead letters: a bad deploy stops instead of dead-lettering the whole stream. Pure: no clock, no client."""

from __future__ import annotations

from collections import deque

from yolometer_core.errors import BadConfig, BadDeploy


class DeadLimit:
    """Counts good and bad messages and trips when too many are bad.

    It trips when more than `max_ratio` of the last `window` messages were bad, once `min_seen` were seen, or when
    `max_consecutive` in a row were bad. A tripped limit stays tripped: a restart of the service begins anew.
    BadConfig for a limit that cannot work. One thread only.
    """

    def __init__(self, max_ratio: float = 0.5, window: int = 200, max_consecutive: int = 50, min_seen: int = 20) -> None:
        if not 0.0 <= max_ratio <= 1.0:
            raise BadConfig(f"The limit on dead letters has max_ratio {max_ratio}; give a share from 0 to 1.")
        if max_consecutive < 1 or not 1 <= min_seen <= window:
            raise BadConfig("The limit on dead letters needs max_consecutive >= 1 and window >= min_seen >= 1; correct it.")
        self._max_ratio, self._max_consecutive, self._min_seen = max_ratio, max_consecutive, min_seen
        self._last: deque[bool] = deque(maxlen=window)  # True is a bad one
        self._bad = self._in_a_row = 0
        self._problem: str | None = None

    @property
    def tripped(self) -> str | None:
        """The sentence that it stopped with; None while all is well."""
        return self._problem

    def seen(self, ok: bool, reason: str = "") -> None:
        """Count one message; `reason` says why a bad one was refused. BadDeploy when this one trips the limit, and ever after."""
        if self._problem:
            raise BadDeploy(self._problem)
        if len(self._last) == self._last.maxlen:
            self._bad -= self._last[0]
        self._last.append(not ok)
        self._bad += not ok
        self._in_a_row = 0 if ok else self._in_a_row + 1
        if ok:
            return  # a good one can still leave the ratio too high, but the limit stops at a bad one: it has a reason
        if self._in_a_row >= self._max_consecutive:
            self._trip(f"{self._in_a_row} messages in a row", reason)
        if len(self._last) >= self._min_seen and self._bad > self._max_ratio * len(self._last):
            self._trip(f"{self._bad} of the last {len(self._last)} messages", reason)

    def _trip(self, how_many: str, reason: str) -> None:
        because = f" (the last: {reason.strip().rstrip('.')})" if reason.strip() else ""
        self._problem = (
            f"{how_many} could not be understood{because}; roll this version back or correct what sends them, then start again "
            "(nothing is lost, they are kept as dead letters)."
        )
        raise BadDeploy(self._problem)


__all__ = ["DeadLimit"]
