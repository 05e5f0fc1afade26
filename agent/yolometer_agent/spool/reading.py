"""Reading: the reader's place in a lane. It keeps no messages in memory, only where the next one lies."""

from __future__ import annotations

import errno
import os
from collections import deque
from typing import NamedTuple

from yolometer_agent.spool import frames
from yolometer_agent.spool.lane import Lane
from yolometer_agent.spool.segments import HEADER_BYTES, Segment
from yolometer_core.errors import Unavailable


class Spooled(NamedTuple):
    """One message as it was spooled; `wall_ms` is when, in ms since 1970."""

    seq: int
    topic: bytes
    key: bytes
    value: bytes
    wall_ms: int

    @property
    def epoch(self) -> int:
        """The epoch of its number, in whole seconds since 1970."""
        return self.seq >> frames.NUMBER_BITS

    @property
    def number(self) -> int:
        """Its number in the epoch, from 1."""
        return self.seq & frames.LAST_NUMBER


class Reader:
    """Reads a lane from the first message that is not acknowledged; `highest` is the highest seq that it ever gave out."""

    def __init__(self, lane: Lane) -> None:
        self._lane = lane
        self._passed = self.highest = lane.acked
        self._segment: Segment | None = None
        self._offset = HEADER_BYTES
        self._fd: tuple[Segment, int] | None = None
        self._in_flight: deque[tuple[int, int]] = deque()  # of each read: its last seq, and the wall time of its first

    def read(self, max_messages: int, max_bytes: int) -> list[Spooled]:
        """The next messages; at least one when one is there, however large. Unavailable when a file cannot be opened."""
        found: list[Spooled] = []
        room_bytes = max_bytes
        while len(found) < max_messages and (room_bytes > 0 or not found):
            rest = self._read_on(found, max_messages, room_bytes)
            if rest is None:
                break
            room_bytes = rest
        if found:
            with self._lane.lock:
                self._in_flight.append((found[-1].seq, found[0].wall_ms))
            self.highest = max(self.highest, found[-1].seq)
        return found

    def rewind(self) -> None:
        """Go back to the first message that is not acknowledged."""
        with self._lane.lock:
            self._passed, self._segment = self._lane.acked, None
            self._in_flight.clear()

    def oldest_wall_ms(self) -> int | None:
        """When the oldest message that is not acknowledged was spooled; None when there is none. For any thread."""
        with self._lane.lock:
            acked = self._lane.acked
            while self._in_flight and self._in_flight[0][0] <= acked:
                self._in_flight.popleft()
            if self._in_flight:
                return self._in_flight[0][1]
            place, passed = self._place(), max(self._passed, acked)
            end = place[0].end if place else 0
        if place is None:
            return None
        try:
            fd = os.open(place[0].path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return None
        try:
            waiting = (frame for frame in frames.scan(fd, place[1], end) if frame.kind == frames.MESSAGE and frame.seq > passed)
            return next((frame.wall_ms for frame in waiting), None)
        except OSError:
            return None
        finally:
            os.close(fd)

    def close(self) -> None:
        """Give the descriptor back."""
        if self._fd is not None:
            os.close(self._fd[1])
            self._fd = None

    def _place(self) -> tuple[Segment, int] | None:
        """The segment and the offset to go on at; None when all is read. The caller holds the lock."""
        passed = max(self._passed, self._lane.acked)
        segment = next((segment for segment in self._lane.segments if segment.waiting(passed)), None)
        if segment is None:
            return None
        return segment, self._offset if segment is self._segment else HEADER_BYTES

    def _read_on(self, found: list[Spooled], most: int, room_bytes: int) -> int | None:
        """Read on in one segment. Returns how many bytes may still come, None when this was all for now."""
        with self._lane.lock:
            place = self._place()
            if place is None:
                return None
            self._segment, self._offset = segment, offset = place
            end, last, acked = segment.end, segment.last, self._lane.acked
        is_full = False
        try:
            for frame in frames.scan(self._descriptor(segment), offset, end):
                if frame.kind == frames.MESSAGE and frame.seq > max(acked, self._passed):
                    is_full = len(found) >= most or (bool(found) and len(frame.payload) > room_bytes)
                    if is_full:
                        break
                    found.append(Spooled(frame.seq, *frames.unpack_message(frame.payload), frame.wall_ms))
                    room_bytes -= len(frame.payload)
                    self._passed = frame.seq
                offset = frame.end
        except OSError as error:
            if segment.gone:
                return room_bytes
            if error.errno != errno.ENOENT:  # a file that someone deleted is damaged
                raise Unavailable(f"The spool file {segment.path} cannot be read ({error.strerror}); correct it.") from error
        with self._lane.lock:
            self._offset = offset
        if not is_full and (offset < end or last > max(acked, self._passed)):
            self._lane.damaged(segment, max(acked, self._passed), offset)
        return None if is_full else room_bytes

    def _descriptor(self, segment: Segment) -> int:
        if self._fd is None or self._fd[0] is not segment:
            self.close()
            self._fd = segment, os.open(segment.path, os.O_RDONLY | os.O_CLOEXEC)
        return self._fd[1]
