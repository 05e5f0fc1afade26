"""Runs one piece of work at a time in a thread of its own, and waits for it only so long."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Hung(Exception):
    """The work does not end in time. It still runs; until it ends, nothing else does."""


class Watch(Generic[T]):
    """A thread that works while somebody waits with a limit. A call into a driver cannot be broken off, only left alone.

    What a piece of work gives after its time is thrown away: it is old by then.
    """

    def __init__(self, name: str) -> None:
        self._inbox: queue.SimpleQueue[Callable[[], T] | None] = queue.SimpleQueue()
        self._outbox: queue.SimpleQueue[tuple[T, None] | tuple[None, BaseException]] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._started = self._late = False

    def run(self, work: Callable[[], T], limit_s: float) -> T:
        """What the work returns or raises. Hung when it, or an earlier one, takes too long."""
        if not self._started:
            self._thread.start()
            self._started = True
        if self._late:
            try:
                self._outbox.get_nowait()
            except queue.Empty:
                raise Hung from None
        self._inbox.put(work)
        try:
            result, error = self._outbox.get(timeout=limit_s)
        except queue.Empty:
            self._late = True
            raise Hung from None
        self._late = False
        if error is not None:
            raise error
        return result  # type: ignore[return-value]  # without an error there is a result

    def close(self) -> None:
        """End the thread when it is done; one that hangs ends with the process."""
        self._inbox.put(None)
        if self._started and not self._late:
            self._thread.join(1.0)

    def _run(self) -> None:
        while (work := self._inbox.get()) is not None:
            try:
                self._outbox.put((work(), None))
            except BaseException as error:  # noqa: BLE001  # it is raised again where somebody waits for it
                self._outbox.put((None, error))
            del work


__all__ = ["Hung", "Watch"]
