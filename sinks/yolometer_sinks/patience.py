"""Patience: does something until it works, says what is away and for how long, and gives up only to stop."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

import tenacity

from yolometer_core.errors import Unavailable
from yolometer_core.service import logs
from yolometer_core.service.health import Health
from yolometer_core.service.stopping import Stop

T = TypeVar("T")
FIRST_PAUSE_S = 0.2
LONGEST_PAUSE_S = 30.0


class Stopped(Exception):  # no error: it was asked to stop
    """It is time to stop, and what was begun is not done: it is done again at the next start."""


class Patience:
    """Retries what is Unavailable for ever, with pauses that double, with jitter, up to `longest_s`. For one thread."""

    def __init__(
        self, stop: Stop, health: Health, *, longest_s: float = LONGEST_PAUSE_S, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._stop, self._health, self._longest_s, self._clock = stop, health, longest_s, clock
        self._log = logs.logger("sink")
        self._away_s: float | None = None  # since when it is away

    def until(self, do: Callable[[], T]) -> T:
        """Do it until it works. Any other error comes out at once; Stopped when it is time to stop."""
        retrying = tenacity.Retrying(
            retry=tenacity.retry_if_exception_type(Unavailable),
            wait=tenacity.wait_random_exponential(multiplier=FIRST_PAUSE_S, max=self._longest_s),
            sleep=self._pause,
            before_sleep=self._say,
        )
        done = retrying(do)
        if self._away_s is not None:
            self._log.info(f"It goes on after {self._clock() - self._away_s:.1f} s")
            self._away_s = None
            self._health.problem(None)
        return done

    def _pause(self, seconds: float) -> None:
        if self._stop.wait(seconds):
            raise Stopped

    def _say(self, state: tenacity.RetryCallState) -> None:
        """The first failure is a line in the log, every one is the state of health."""
        error = state.outcome.exception() if state.outcome else None
        now = self._clock()
        if self._away_s is None:
            self._away_s = now
            self._log.warning(f"Waiting: {error}")
        self._health.problem(f"{error} (for {now - self._away_s:.0f} s; nothing is lost, Kafka keeps the messages)")
