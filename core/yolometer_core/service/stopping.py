"""Stopping: a wish to stop that signals set, and a deadline for a process that does not manage to."""

from __future__ import annotations

import os
import select
import signal
import sys
import threading
import time
import weakref
from collections.abc import Callable
from types import FrameType

EXIT_STOP_TOO_SLOW = 75
WORDS_S = 2.0
_SLICE_S = 1.0


class Stop:
    """A wish to stop: set by SIGTERM and SIGINT, or by a caller. Any number of threads may wait for it."""

    def __init__(self) -> None:
        # An event of the kernel instead of threading.Event: that one has a lock, and a signal that arrives
        # while the main thread holds it would wait for itself.
        self._fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._wished = False
        weakref.finalize(self, os.close, self._fd)

    def on_signals(self, deadline: StopDeadline | None = None) -> None:
        """Stop on SIGTERM and SIGINT; the second one ends the process at once. `deadline` runs from the first one."""
        if deadline is not None:
            deadline.watch(self)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._catch)

    def set(self) -> None:
        self._wished = True
        os.eventfd_write(self._fd, 1)

    def wait(self, seconds: float) -> bool:
        """Sleep up to `seconds`; True when it is time to stop."""
        end = time.monotonic() + seconds
        poll = select.poll()
        poll.register(self._fd, select.POLLIN)
        # In slices: Python runs a handler between two of its steps, so a signal just before poll() would sleep with it.
        while not self._wished and (left_s := end - time.monotonic()) > 0:
            poll.poll(min(left_s, _SLICE_S) * 1000)
        return self._wished

    def fileno(self) -> int:
        """Readable from the wish on: for an event loop, which can wait for it beside its sockets."""
        return self._fd

    @property
    def wished(self) -> bool:
        return self._wished

    def _catch(self, number: int, frame: FrameType | None) -> None:
        if self._wished:
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        self.set()


class StopDeadline:
    """Ends a process that was asked to stop and is still there `seconds` later: exit code 75, one sentence on stderr.

    Its thread waits from the start, so that the handler of a signal has no thread to make.
    """

    def __init__(self, seconds: float, exit: Callable[[int], object] = os._exit) -> None:
        self.seconds = seconds
        self._exit = exit
        self._done = threading.Event()

    def watch(self, stop: Stop) -> None:
        """Begin to count when `stop` is wished, by a signal or by a caller. Needs to be called once."""
        threading.Thread(target=self._run, args=(stop,), name="stop-deadline", daemon=True).start()

    def cancel(self) -> None:
        """The process stopped by itself: do nothing more."""
        self._done.set()

    def _run(self, stop: Stop) -> None:
        poll = select.poll()
        poll.register(stop, select.POLLIN)
        poll.poll()
        if self._done.wait(self.seconds):
            return
        sentence = f"It did not stop within {self.seconds:g} s and was ended; what is not acknowledged is sent again at start."
        try:
            last_words(lambda: _write(sentence))
        finally:
            self._exit(EXIT_STOP_TOO_SLOW)


def last_words(say: Callable[[], object], seconds: float = WORDS_S) -> None:
    """Run `say` for up to `seconds`, then go on: a stderr that nobody reads must not keep a dying process alive."""
    speaker = threading.Thread(target=say, name="last-words", daemon=True)
    speaker.start()
    speaker.join(seconds)


def _write(sentence: str) -> None:
    try:
        if sys.stderr is not None:
            # to the file itself: the lock of the buffer may be held by a thread that hangs
            os.write(sys.stderr.fileno(), f"{sentence}\n".encode())
    except (OSError, ValueError):
        pass  # there is nobody left to tell


__all__ = ["EXIT_STOP_TOO_SLOW", "Stop", "StopDeadline", "last_words"]
