"""Spool: one lane of numbered messages on disk, between one thread that writes and one that sends. It waits for no network."""

from __future__ import annotations

import contextlib
import errno
import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from threading import Lock
from typing import Any

from yolometer_agent.spool import frames
from yolometer_agent.spool.lane import Lane, Loss
from yolometer_agent.spool.reading import Reader, Spooled
from yolometer_agent.spool.recover import recover
from yolometer_agent.spool.segments import HEADER_BYTES, Segment, Write, sync_folder
from yolometer_agent.spool.writing import Writer
from yolometer_agent.tail.checkpoint import Checkpoint
from yolometer_core.errors import BadConfig, BadInput, BadUsage, Unavailable

_CURSOR_S = 1.0
_LATEST_EPOCH = 2**31 - 1  # so that a seq fits into a signed 64-bit column
_RETRIED = frozenset(
    {
        *(errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO, errno.EACCES, errno.EPERM, errno.ENOENT),
        *(errno.EMFILE, errno.ENFILE),
    }
)


class SpoolFull(Unavailable):
    """The spool has reached its largest size and must drop nothing: append again when messages were sent."""


def boot_id() -> str:
    """What Linux calls this boot of the machine; empty when it does not say."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""


class Spool:
    """The messages of one folder. One process per folder: the caller holds the lock.

    A message is known by its seq: `epoch << 32 | number`. Numbers are contiguous in an epoch, from 1; a new epoch begins when
    numbers might have been lost (a new folder, a system that crashed, damage), and is the time in whole seconds, or more.
    So seq only grows. `append`, `append_state` are for the writer's thread; `read`, `ack`, `rewind` for the reader's thread;
    all else is for any thread; `close` comes last.

    `max_bytes` bounds all files together; with `drop` the oldest are dropped then, and when older than `max_age_s`. Without,
    nothing is ever dropped. A segment has `segment_bytes`, at most a quarter of `max_bytes`; a message at most half a segment.
    After a kill nothing is lost that `append` returned for; after a power cut at most the last `fsync_s`.
    """

    def __init__(
        self,
        folder: str | Path,
        *,
        max_bytes: int,
        max_age_s: float,
        segment_bytes: int = 4 * 1024 * 1024,
        fsync_s: float = 1.0,
        drop: bool = True,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
        boot_id: Callable[[], str] = boot_id,
        write: Write = os.pwrite,
    ) -> None:
        """Open the folder, which need not exist. Unavailable when it cannot be read, BadStore for another version."""
        self.folder = Path(folder)
        self._max_bytes, self._max_age_s, self._fsync_s, self._drop = max_bytes, max_age_s, fsync_s, drop
        self._clock, self._wall, self._boot_id = clock, wall, boot_id()
        self._most_bytes = (segment_bytes := min(segment_bytes, max_bytes // 4)) // 2 - HEADER_BYTES
        if self._most_bytes < 2 * HEADER_BYTES:
            raise BadConfig(f"A spool of {max_bytes} bytes in segments of {segment_bytes} bytes is too small; give it more.")
        self._checkpoint = Checkpoint(self.folder / "cursor")
        found = recover(self.folder, self._checkpoint, now_s=clock(), wall_ms=self._wall_ms(), boot_id=self._boot_id)
        self.damage = self._checkpoint.problem
        """One sentence about a damaged cursor file that was found at start, else None."""
        self.torn_bytes = found.torn_bytes
        """How many bytes were cut off the end at start."""
        self.problem: str | None = None
        """One sentence about why the last fsync or cursor did not get to disk, else None."""
        self.epoch = self._next_epoch(found.highest_epoch) if found.epoch is None else found.epoch
        self._is_new_epoch = found.epoch is None
        self._has_begun = self._is_closed = False
        self._cursor = found.cursor
        self._lane = Lane(found.segments, found.acked, found.losses)
        self._writer = Writer(self.folder, self._lane, found, segment_bytes, clock, write)
        self._reader = Reader(self._lane)
        self._saving = Lock()
        self._saved_changes, self._saved_s, self._synced_s = 0, clock(), clock()
        self._delete(self._lane.take_done())

    # ---- the writer's side

    def append(self, topic: bytes, key: bytes, value_of: Callable[[int, int], bytes]) -> int:
        """Put one message on disk and return its seq. `value_of` is given its epoch and number, and gives its value.

        Unavailable when the disk does not take it (SpoolFull when the spool is full and must not drop): the number is used
        for the next one. BadInput when it is too large.
        """
        self._begin()
        seq = self._writer.last + 1
        value = value_of(seq >> frames.NUMBER_BITS, seq & frames.LAST_NUMBER)
        self._put(frames.MESSAGE, seq, frames.pack_message(topic, key, value))
        return seq

    def append_state(self, state: bytes) -> None:
        """Put on disk what holds as of all messages before it. Errors as for `append`."""
        self._begin()
        seq = self._writer.last
        self._put(frames.STATE, seq, state)
        self._writer.state = seq, state

    def last_state(self) -> tuple[int, bytes] | None:
        """The newest whole state, with the seq of the last message before it (0: none); None when there is none."""
        return self._writer.state

    # ---- the reader's side

    def read(self, max_messages: int, max_bytes: int) -> list[Spooled]:
        """The next messages that were not read, oldest first; empty when there are none now. At least one if there is one.

        Damage is passed over and reported in `losses`. Unavailable when a file cannot be opened.
        """
        found = self._reader.read(max_messages, max_bytes)
        self._delete(self._lane.take_done())
        return found

    def ack(self, seq: int) -> None:
        """All messages up to and including `seq` are delivered. Late and repeated ones do nothing; BadUsage for one not read."""
        if seq > self._reader.highest:
            raise BadUsage(f"Message {seq} was not read yet; acknowledge only what was sent.")
        self._lane.acknowledge(seq)
        self._delete(self._lane.take_done())

    def rewind(self) -> None:
        """Read again from the first message that is not acknowledged."""
        self._reader.rewind()

    # ---- both

    def losses(self) -> list[Loss]:
        """What was lost since the last call. After a crash the last ones may be given again."""
        return self._lane.drain_losses()

    @property
    def size_bytes(self) -> int:
        """The size of all segments."""
        return self._lane.size_bytes

    @property
    def messages_waiting(self) -> int:
        """How many messages are not acknowledged."""
        return self._lane.waiting()

    @property
    def oldest_wall_ms(self) -> int | None:
        """When the oldest message that is not acknowledged was spooled, in ms since 1970; None when there is none."""
        return self._reader.oldest_wall_ms()

    def tick(self) -> None:
        """Do what is due: fsync, drop what is too old, save the cursor. Call it each second; `problem` tells of failures."""
        if self._clock() - self._synced_s >= self._fsync_s:
            self._sync()
        while self._drop and (dropped := self._lane.drop_old(self._clock() - self._max_age_s)):
            self._delete([dropped])
        if self._lane.changes != self._saved_changes and self._clock() - self._saved_s >= _CURSOR_S:
            self._try_save()

    def close(self) -> None:
        """fsync, and mark that the stop was clean. A disk that does not take the mark costs a new epoch at the next start."""
        if self._is_closed:
            return
        if self._lane.segments and not self._is_new_epoch:
            with contextlib.suppress(Unavailable):
                self._begin()  # what a killed process left is synced and marked too
        is_synced = self._sync()
        self._writer.close()
        self._reader.close()
        if self._lane.segments or self._lane.changes != self._saved_changes:
            self._try_save(is_clean=is_synced)
        self._has_begun, self._is_closed = False, True

    def _begin(self) -> None:
        """Before the first append: the mark that a stop from now on is not clean, and the epoch, are on disk for good."""
        if self._has_begun and self._writer.last & frames.LAST_NUMBER != frames.LAST_NUMBER:
            return
        if self._is_closed:
            raise BadUsage(f"The spool {self.folder} is closed; open it again.")
        if self._has_begun:  # all numbers of the epoch are used
            self.epoch, self._is_new_epoch = self._next_epoch(self.epoch), True
        last = self.epoch << frames.NUMBER_BITS if self._is_new_epoch else self._writer.last
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.folder.chmod(0o700)
            sync_folder(self.folder.parent)
            self._save({"epoch": self.epoch, "boot_id": self._boot_id, "last": last, "clean": False})
            if self._is_new_epoch:
                self._writer.begin(self.epoch)
            else:
                self._writer.go_on()
        except OSError as error:
            raise self._refused(error) from error
        self._has_begun, self._is_new_epoch = True, False

    def _put(self, kind: int, seq: int, payload: bytes) -> None:
        wall_ms = self._wall_ms()
        frame = frames.encode(kind, seq, wall_ms, payload)
        if len(frame) > self._most_bytes:
            raise BadInput(f"A message has {len(frame)} bytes, more than this spool takes ({self._most_bytes}); make it smaller.")
        self._refuse_if_full(len(frame))
        try:
            if self._writer.must_roll(len(frame)):
                self._roll(wall_ms)
            while not self._append(frame, kind, wall_ms):  # the reader found damage in the segment just now
                self._roll(wall_ms)
        except OSError as error:
            raise self._refused(error) from error
        if self._clock() - self._synced_s >= self._fsync_s:
            self._sync()

    def _roll(self, wall_ms: int) -> None:
        self._writer.roll(wall_ms)
        self._delete(self._lane.take_done())

    def _append(self, frame: bytes, kind: int, wall_ms: int) -> bool:
        while self._drop and (dropped := self._lane.drop_full(self._max_bytes - len(frame))):
            self._delete([dropped])
        return self._writer.append(frame, kind, wall_ms)

    def _refuse_if_full(self, size: int) -> None:
        if self._drop:
            return
        if self._writer.must_roll(size):
            size += self._writer.first_bytes() - self._writer.reclaimed_bytes()
        if self._lane.size_bytes + size > self._max_bytes:
            raise SpoolFull(f"The spool {self.folder} is full ({self._max_bytes} bytes); wait until messages are sent.")

    def _sync(self) -> bool:
        self._synced_s = self._clock()
        try:
            self._writer.sync()
        except OSError as error:
            self.problem = str(self._refused(error))
            return False
        self.problem = None
        return True

    def _save(self, mark: dict[str, Any] | None = None) -> None:
        """Write the cursor file. Until the first append it keeps what it said about the epoch and the last stop."""
        with self._saving:
            self._saved_s = self._clock()
            with self._lane.lock:
                changes = self._lane.changes
                moved: dict[str, Any] = {"acked": self._lane.acked, "losses": [list(loss) for loss in self._lane.losses]}
                if self._has_begun:
                    moved["last"] = self._writer.last
            cursor = {**self._cursor, **moved, **(mark or {})}
            self._checkpoint.save(cursor)
            self._cursor, self._saved_changes = cursor, changes

    def _try_save(self, *, is_clean: bool = False) -> None:
        try:
            self._save({"clean": is_clean} if self._has_begun else None)
        except Unavailable as error:
            self.problem = str(error)

    def _delete(self, segments: Iterable[Segment]) -> None:
        """Delete files of segments that are out of the lane, after the cursor says so, or a loss would not survive a kill."""
        if not segments:
            return
        if self._lane.changes != self._saved_changes:
            self._try_save()
        for segment in segments:
            with contextlib.suppress(OSError):  # what stays is deleted at the next start
                segment.path.unlink()

    def _next_epoch(self, highest: int) -> int:
        return max(min(int(self._wall()), _LATEST_EPOCH), highest + 1)

    def _wall_ms(self) -> int:
        return int(self._wall() * 1000)

    def _refused(self, error: OSError) -> Unavailable:
        """What a person reads; an error that is no matter of the disk is raised as it is."""
        if error.errno not in _RETRIED:
            raise error
        return Unavailable(f"The spool {self.folder} cannot be written ({error.strerror}); make room or correct the folder.")
