"""Writing: the one segment of a lane that grows, and how it gives way to the next."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path

from yolometer_agent.spool import frames
from yolometer_agent.spool.lane import Lane
from yolometer_agent.spool.recover import Found
from yolometer_agent.spool.segments import HEADER_BYTES, Header, Segment, Write, create, write_all


class Writer:
    """Appends frames. `last` is the last seq that was given. All methods but `sync` are for the writer's thread only.

    Each raises OSError when the disk does not take it; then nothing of what it was to write is there.
    """

    def __init__(
        self, folder: Path, lane: Lane, found: Found, segment_bytes: int, clock: Callable[[], float], write: Write
    ) -> None:
        self.last = found.last
        self.state = found.state
        self._folder = folder
        self._lane = lane
        self._segment_bytes = segment_bytes
        self._clock = clock
        self._write = write
        self._active: Segment | None = None
        self._fd = -1
        self._is_dirty = False

    def go_on(self) -> None:
        """Take up the last segment where it ended."""
        segment = self._lane.segments[-1]
        with contextlib.suppress(FileNotFoundError):  # someone deleted it: the next segment begins
            fd = os.open(segment.path, os.O_WRONLY | os.O_CLOEXEC)
            with self._lane.lock:
                self._fd, self._active, segment.sealed = fd, segment, False
                self._is_dirty = True  # a process that was killed may not have synced it

    def begin(self, epoch: int) -> None:
        """Numbers start again at 1; the next frame goes into a new segment."""
        self.last = epoch << frames.NUMBER_BITS
        with self._lane.lock:
            self._active = None

    def must_roll(self, size: int) -> bool:
        """Whether a frame of this size needs a new segment."""
        active = self._active
        return active is None or active.sealed or active.size_bytes + size > self._segment_bytes

    def first_bytes(self) -> int:
        """The size of a new segment before its first frame of its own."""
        return HEADER_BYTES + (frames.HEAD_BYTES + len(self.state[1]) if self.state else 0)

    def reclaimed_bytes(self) -> int:
        """How much a roll gives back: all of the active segment when nothing in it is waiting."""
        with self._lane.lock:
            old = self._lane.segments[-1] if self._lane.segments else None
            return old.size_bytes if old is not None and not old.waiting(self._lane.acked) else 0

    def roll(self, wall_ms: int) -> None:
        """Begin a new segment with a copy of the newest state. The order of side effects:

        1. The old segment is fsynced: only the last segment can be torn by a power cut.
        2. The new one gets its name, whole and fsynced: the newest state is always in the last segment.
        3. Writer and reader see it.
        """
        self.sync()
        old = self._lane.segments[-1] if self._lane.segments else None
        header = Header(self.last + 1, old.last if old else self.last, old.newest_wall_ms if old else wall_ms)
        state = frames.encode(frames.STATE, self.state[0], wall_ms, self.state[1]) if self.state else b""
        path, fd, size = create(self._folder, header, state, self._write)
        segment = Segment(path, header.first, self.last, size, size, wall_ms, self._clock(), sealed=False)
        with self._lane.lock:
            self._lane.add(segment)
            self._active, self._fd, old_fd = segment, fd, self._fd
        if old_fd >= 0:
            os.close(old_fd)

    def append(self, frame: bytes, kind: int, wall_ms: int) -> bool:
        """Write one frame; a MESSAGE takes the next seq. False when the active segment cannot take it: roll."""
        with self._lane.lock:
            active = self._active
            if active is None or active.sealed:
                return False
            try:
                write_all(self._fd, frame, active.size_bytes, self._write)
            except OSError:
                with contextlib.suppress(OSError):  # else the next frame is written over what is there
                    os.ftruncate(self._fd, active.size_bytes)
                raise
            active.size_bytes += len(frame)
            active.end = active.size_bytes
            active.newest_wall_ms, active.newest_s = max(active.newest_wall_ms, wall_ms), self._clock()
            if kind == frames.MESSAGE:
                self.last += 1
                active.last = self.last
            self._lane.size_bytes += len(frame)
            self._is_dirty = True
        return True

    def sync(self) -> None:
        """fsync what was written, without the lock: the reader and the writer go on. For any thread."""
        with self._lane.lock:
            if not self._is_dirty or self._fd < 0:
                return
            fd = os.dup(self._fd)
            self._is_dirty = False
        try:
            os.fsync(fd)
        except OSError:
            self._is_dirty = True
            raise
        finally:
            os.close(fd)

    def close(self) -> None:
        """Give the descriptor back."""
        with self._lane.lock:
            fd, self._fd, self._active = self._fd, -1, None
        if fd >= 0:
            os.close(fd)
