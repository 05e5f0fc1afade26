"""Health of a service: what it says of itself (`serve` tells it over HTTP), and a watchdog over its progress."""

from __future__ import annotations

import faulthandler
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal

from yolometer_core.service.endpoint import Endpoint, serve
from yolometer_core.service.hiding import scrub
from yolometer_core.service.metrics import Metrics
from yolometer_core.service.stopping import last_words

Status = Literal["ok", "starting", "cold", "degraded", "stuck"]
EXIT_STUCK = 70


class Health:
    """What a service knows of its own state. Any thread may call any method; none of them waits for anything.

    `stuck_after_s` is how long it may be busy without progress. `metrics`, when given, is told of success and cold.
    """

    def __init__(
        self, service: str, *, stuck_after_s: float, metrics: Metrics | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.service, self.stuck_after_s = service, stuck_after_s
        self._metrics, self._clock = metrics, clock
        self._lock = threading.Lock()
        self._started = clock()
        self._succeeded: float | None = None
        self._progressed: float | None = None
        self._busy = 0
        self._beats = 0
        self._cold = False
        self._problem: str | None = None

    def success(self) -> None:
        """Work was finished: acknowledged, inserted, produced. Is progress too."""
        with self._lock:
            self._succeeded = self._clock()
        self.progress()
        if self._metrics is not None:
            self._metrics.success()

    def progress(self) -> None:
        """A step was done: it is not stuck."""
        with self._lock:
            self._progressed = self._clock()
            self._beats += 1

    @contextmanager
    def working(self) -> Iterator[None]:
        """Busy for as long as this lasts: from now on progress is expected. May be nested, also by several threads."""
        self._change_busy(1)
        try:
            yield
        finally:
            self._change_busy(-1)

    def problem(self, text: str | None) -> None:
        """What is wrong at the moment, in one sentence; None when it is well again."""
        with self._lock:
            self._problem = text

    def cold(self, cold: bool) -> None:
        """Whether the state is still being rebuilt."""
        with self._lock:
            self._cold = cold
        if self._metrics is not None:
            self._metrics.cold(cold)

    @property
    def busy(self) -> bool:
        return self._busy > 0

    @property
    def beats(self) -> int:
        """How many steps were done: it stands still when there is no progress."""
        return self._beats

    def told(self) -> dict[str, Any]:
        """The answer of /healthz: ages in seconds, None for what has not happened yet. The worst thing is the status."""
        with self._lock:
            now = self._clock()
            quiet_s = now - (self._started if self._progressed is None else self._progressed)
            status: Status = "ok"
            reason = self._problem
            if self._busy and quiet_s > self.stuck_after_s:
                status, reason = "stuck", f"No progress for {quiet_s:.0f} s; restart it and read its last lines of log."
            elif self._problem:
                status = "degraded"
            elif self._cold:
                status, reason = "cold", "Its state is being rebuilt; no alerts until it is complete."
            elif self._progressed is None:
                status, reason = "starting", "It has not done a first step yet."
            return {
                "service": self.service,
                "status": status,
                "reason": None if reason is None else scrub(reason),
                "busy": self._busy > 0,
                "last_success_age_s": _age(now, self._succeeded),
                "last_progress_age_s": _age(now, self._progressed),
                "uptime_s": _age(now, self._started),
            }

    def _change_busy(self, by: int) -> None:
        with self._lock:
            if not self._busy:
                self._progressed, self._beats = self._clock(), self._beats + 1  # what was before was no wait for this work
            self._busy += by


class Watchdog:
    """Ends a process that is busy and makes no progress for `deadline_s`: exit code 70, so that a supervisor restarts it.

    One sentence is logged and the stacks of all threads are written to stderr first; a stderr that blocks delays the end by
    a few seconds at most. Time in which this process itself did not run (stopped, suspended) does not count.
    """

    def __init__(
        self,
        health: Health,
        deadline_s: float,
        *,
        warn: Callable[[str], object],
        exit: Callable[[int], object] = os._exit,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._health, self._deadline_s, self._warn, self._exit, self._clock = health, deadline_s, warn, exit, clock
        self.tick_s = min(max(deadline_s / 10, 0.05), 5.0)
        self._over = threading.Event()
        self._thread: threading.Thread | None = None
        self._ticked = clock()
        self._beats = health.beats
        self._quiet_s = 0.0

    def start(self) -> None:
        """Watch from now on, in a thread of its own."""
        self._thread = threading.Thread(target=self._run, name="watchdog", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Watch no more."""
        self._over.set()
        if self._thread is not None:
            self._thread.join()

    def tick(self) -> bool:
        """One look; True when the deadline is over. `start` calls it each `tick_s`."""
        now, beats = self._clock(), self._health.beats
        passed_s, self._ticked = now - self._ticked, now
        if beats != self._beats or not self._health.busy:
            self._beats, self._quiet_s = beats, 0.0
        else:
            self._quiet_s += min(passed_s, 2 * self.tick_s)  # more than that: this process was not running
        return self._quiet_s >= self._deadline_s

    def _run(self) -> None:
        while not self._over.wait(self.tick_s):
            if self.tick():
                self._end()
                return

    def _end(self) -> None:
        sentence = f"The {self._health.service} made no progress for {self._quiet_s:.0f} s and ends so that it is started again."
        try:
            last_words(lambda: self._say(sentence))
        finally:
            self._exit(EXIT_STUCK)

    def _say(self, sentence: str) -> None:
        try:
            self._warn(sentence)
        finally:
            _stacks()


def _stacks() -> None:
    try:
        if sys.stderr is not None:
            faulthandler.dump_traceback(sys.stderr, all_threads=True)
    except (OSError, ValueError, RuntimeError):
        pass  # stderr is closed or is no file: the exit code says enough


def _age(now: float, then: float | None) -> float | None:
    return None if then is None else round(max(0.0, now - then), 3)


__all__ = ["EXIT_STUCK", "Endpoint", "Health", "Status", "Watchdog", "serve"]
