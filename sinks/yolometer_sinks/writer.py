"""Collects events and writes them to a store in batches; waits for a store that is away, and loses nothing it holds."""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable, Sequence

from yolometer_core.errors import BadInput, StoreUnavailable, Unavailable
from yolometer_core.events import Event
from yolometer_sinks.stores._base import Store

Reject = Callable[[Event, BadInput], None]
FIRST_PAUSE_S = 0.2
LONGEST_PAUSE_S = 10.0


class Writer:
    """Writes events to one store: when `max_rows` are together, or when `flush` is called.

    It holds at most `max_held` events. A store that is away is tried `attempts` times with pauses that double, with
    jitter, from 0.2 s up to 10 s. An event that can never be a row is handed to `reject` (the dead letters) and the
    rest is written; without `reject` it is raised as BadInput and everything stays held.

    Not for several threads at once. `sleep` and `random_ratio` (a number from 0 to 1) are parameters for the tests.
    """

    def __init__(
        self,
        store: Store,
        max_rows: int = 10_000,
        max_held: int = 200_000,
        attempts: int = 5,
        reject: Reject | None = None,
        sleep: Callable[[float], None] = time.sleep,
        random_ratio: Callable[[], float] = random.random,
    ) -> None:
        if not 0 < max_rows <= max_held or attempts < 1:
            raise ValueError("max_rows must be from 1 to max_held, and attempts at least 1")
        self._store = store
        self._max_rows = max_rows
        self._max_held = max_held
        self._attempts = attempts
        self._reject = reject
        self._sleep = sleep
        self._random_ratio = random_ratio
        self._held: list[Event] = []
        self.written = 0
        self.rejected = 0
        self.last_error: Unavailable | None = None

    @property
    def held(self) -> int:
        """Events that are taken and not yet in the store."""
        return len(self._held)

    def add(self, events: Sequence[Event]) -> None:
        """Take the events; write when there are enough.

        1. When they do not fit, what is held is written first; when that fails, StoreUnavailable: none was taken.
        2. They are taken.
        3. With `max_rows` or more held, all is written. A store that is away is not an error here: the events are
           held (`last_error` says why) and the next call tries again.
        """
        if len(events) > self._max_held:
            raise ValueError(f"{len(events)} events at once are more than the {self._max_held} that may be held")
        if len(self._held) + len(events) > self._max_held:
            try:
                self.flush()
            except StoreUnavailable as error:
                raise StoreUnavailable(f"The {len(self._held)} events waiting leave no room for more. {error}") from error
        self._held.extend(events)
        if len(self._held) >= self._max_rows:
            with contextlib.suppress(StoreUnavailable):  # held, and last_error says why
                self.flush()

    def flush(self) -> None:
        """Write all that is held, `max_rows` at a time. When it returns, everything taken so far is in the store.

        Raises StoreUnavailable after the last attempt, BadInput without `reject`, BadStore: what is not written
        stays held, in order.
        """
        while self._held:
            batch = self._held[: self._max_rows]
            self._write(batch)
            del self._held[: len(batch)]
        self.last_error = None

    def _write(self, batch: list[Event]) -> None:
        """Write a batch. With `reject`, one with bad events is halved until they are alone; the halves are written in order."""
        try:
            self._attempt(batch)
            self.written += len(batch)
        except BadInput as error:
            if self._reject is None:
                raise
            if len(batch) == 1:
                self._reject(batch[0], error)
                self.rejected += 1
                return
            middle = len(batch) // 2
            self._write(batch[:middle])
            self._write(batch[middle:])

    def _attempt(self, batch: list[Event]) -> None:
        pause_s = FIRST_PAUSE_S
        for attempt in range(1, self._attempts + 1):
            try:
                return self._store.write(batch)
            except StoreUnavailable as error:
                self.last_error = error
                if attempt == self._attempts:
                    raise
            self._sleep(pause_s * (0.5 + self._random_ratio() / 2))
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
