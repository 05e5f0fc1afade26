"""Follow: one file, polled, through growth, rotation, truncation, deletion and rebirth, with nothing lost or repeated."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

from yolometer_agent.tail.identity import Mark
from yolometer_agent.tail.records import MAX_RECORD_BYTES, Chunk, Records
from yolometer_core.errors import BadInput

Signature = tuple[int, int, int]


class Batch(NamedTuple):
    """What one poll brought.

    `incarnation` counts the files that were found at the path, from 0; `fresh` marks the first batch of one.
    `size_bytes` is the size of the file as far as known. `at_end` says that nothing more was there to read.
    """

    chunk: Chunk
    incarnation: int
    fresh: bool
    size_bytes: int
    at_end: bool


class Follow:
    """Follows the file at `path`, from its start or from where `state` ended.

    A file is the same as before while its device and inode are, it has not become shorter than what was read,
    and still begins with the bytes that were read of it; when it is opened again, the last bytes before the
    offset must be the same too. Else it is the next *incarnation* and is read from its start. What is left
    of the old one is read first: through the open descriptor, or under its new name in the same folder. A
    last record without an end is then given as it is. Positions go on over incarnations (`base`).

    What cannot be told: content replaced in place, between two polls, by at least as much with the same first KiB.
    """

    def __init__(
        self,
        path: str | Path,
        state: dict[str, Any] | None = None,
        *,
        max_record_bytes: int = MAX_RECORD_BYTES,
        idle_close_s: float = 60.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Never touches the file. BadInput when `state` is not a state of this class.

        `idle_close_s`: seconds without new bytes after which the descriptor is closed. `clock`: seconds, may step.
        """
        self.path = Path(path)
        self._name = os.fspath(path)
        self.problem: str | None = None
        self.incarnation = 0
        self.base = 0
        self._idle_close_s = idle_close_s
        self._clock = clock
        self._active_s = clock()
        self._fd = -1
        self._device = self._inode = 0
        self._begun = False
        self._renumbered = False
        self._settled: Signature | None = None
        self._records = Records(max_record_bytes=max_record_bytes)
        self._mark = Mark()
        if state is not None:
            self._restore(state, max_record_bytes)
        self._offset = self._records.offset

    @property
    def long_records(self) -> int:
        """How many records were dropped because they were too long."""
        return self._records.long_records

    @property
    def position(self) -> int:
        """Position of the start of the record that has no end yet, counted on over incarnations."""
        return self._records.position

    @property
    def is_open(self) -> bool:
        """Whether a descriptor is held."""
        return self._fd >= 0

    def poll(self, max_bytes: int = 1 << 18) -> Batch | None:
        """Read up to `max_bytes` of what is new; None when there is nothing or it cannot be read (`problem`: one sentence).

        Never blocks, never raises OSError. The order of side effects:

        1. Look at the path (the only system call when nothing has changed).
        2. A changed file is opened if needed, and its identity is verified on the descriptor.
        3. Bytes are read, then the head is verified once more: bytes read before a replacement was seen are not given.
        4. A file that was replaced is read to its end before its last record is given and the next one begins.
        5. Only then offset, mark and records move on in memory, and the batch is returned.
        6. The caller hands the batch on, then saves `state()`. A crash before that gives the same batch, with the
           same positions, again.
        """
        try:
            return self._step(max_bytes)
        except OSError as error:
            self.problem = f"{self.path} cannot be read ({error.strerror}); it is tried again at every poll."
            return None

    def state(self) -> dict[str, Any]:
        """Where to go on after the last batch, as a JSON dict."""
        return {
            "path": str(self.path),
            "device": self._device,
            "inode": self._inode,
            "offset": self._records.offset,
            "mark": self._mark.state(),
            "records": self._records.state(),
            "incarnation": self.incarnation,
            "base": self.base,
            "begun": self._begun,
        }

    def close(self) -> None:
        """Give the descriptor back; the next poll opens it again."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __enter__(self) -> Follow:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _restore(self, state: dict[str, Any], max_record_bytes: int) -> None:
        try:
            self._records = Records.restore(state["records"], max_record_bytes=max_record_bytes)
            self._mark = Mark.restore(state["mark"])
            self._device, self._inode = state["device"], state["inode"]
            self.incarnation, self.base, self._begun = state["incarnation"], state["base"], state["begun"]
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise BadInput(f"The saved state of {self.path} is damaged; remove it to read the file from its start.") from error
        # Device numbers may be dealt anew by a reboot; the inode and the mark must do until the file is open.
        self._renumbered = True

    def _step(self, max_bytes: int) -> Batch | None:
        seen = self._look()
        same = seen is not None and seen.st_ino == self._inode and (seen.st_dev == self._device or self._renumbered)
        if not self._begun:
            if seen is None or seen.st_size == 0:
                self._rest()
                return None
            self._open_new()
            same = True
        elif seen is not None and same:
            if self._settled == _signature(seen):
                self._rest()
                return None
            if seen.st_size < self._offset or not self._open_again(self.path):
                return self._end(max_bytes)
        elif self._fd < 0:
            # A file without bytes is no successor yet: its writer may still have lines for the old one.
            if seen is None or seen.st_size == 0:
                return None
            if not self._open_moved():
                return self._end(max_bytes)
        # One byte more than is known to be there: a short read shows the end, and needs no large buffer.
        wanted = min(max_bytes, max(seen.st_size - self._offset, 0) + 1) if seen is not None and same else max_bytes
        data = self._read(wanted)
        if data is None:
            return self._end(max_bytes)
        replaced = seen is not None and not same and seen.st_size > 0
        ended = len(data) < wanted
        if same and seen is not None:
            self._settled = _signature(seen) if ended else None
        if data:
            return self._hand_on(data, seen.st_size if same and seen is not None else 0, ended and not replaced)
        if replaced:
            return self._end(max_bytes)
        self._rest()
        return None

    def _look(self) -> os.stat_result | None:
        """What is at the path; None when nothing readable is. OSError when that cannot be told."""
        self.problem = None
        try:
            seen = os.stat(self._name)  # noqa: PTH116 - hot: one for each file and poll
        except (FileNotFoundError, NotADirectoryError):
            return None
        if not stat.S_ISREG(seen.st_mode):
            self.problem = _not_regular(self.path, seen.st_mode)
            return None
        return seen

    def _open_new(self) -> None:
        self.close()
        self._fd, seen = _open(self.path)
        self._device, self._inode, self._renumbered = seen.st_dev, seen.st_ino, False

    def _open_again(self, path: Path) -> bool:
        """Have the current incarnation open, from `path` if need be; False when that is not it."""
        if self._fd >= 0:
            return True
        fd, seen = _open(path)
        same = False
        try:
            same = seen.st_ino == self._inode and seen.st_size >= self._offset and self._mark.matches(fd, seam=True)
        finally:
            if not same:
                os.close(fd)
        if same:
            self._fd, self._device, self._renumbered = fd, seen.st_dev, False
        return same

    def _open_moved(self) -> bool:
        """Find the current incarnation under another name of the same folder."""
        with os.scandir(self.path.parent) as entries:
            names = [entry.path for entry in entries if entry.inode() == self._inode]
        for name in names:
            try:
                if self._open_again(Path(name)):
                    return True
            except OSError:
                continue
        return False

    def _read(self, max_bytes: int) -> bytes | None:
        """The next bytes; None when the content before them is no longer what was read."""
        try:
            data = os.pread(self._fd, max_bytes, self._offset)
            return data if self._mark.matches(self._fd) else None
        except OSError:
            self.close()
            raise

    def _hand_on(self, data: bytes, size_bytes: int, at_end: bool) -> Batch | None:
        chunk = self._records.feed(data)
        if chunk is None:
            return None
        self._mark.add(data, self._offset)
        self._offset += len(data)
        self._active_s = self._clock()
        fresh, self._begun = not self._begun, True
        return Batch(chunk, self.incarnation, fresh, max(size_bytes, self._offset), at_end)

    def _end(self, max_bytes: int) -> Batch | None:
        """End this incarnation: its last record if it had no end, else the first bytes of the next one."""
        batch = Batch(self._records.finish(), self.incarnation, False, self._offset, False)
        self.close()
        self.base = self._records.position
        self.incarnation += 1
        self._begun, self._settled, self._mark, self._offset = False, None, Mark(), 0
        return batch if batch.chunk.records else self._step(max_bytes)

    def _rest(self) -> None:
        now_s = self._clock()
        if now_s < self._active_s:
            self._active_s = now_s
        elif now_s - self._active_s >= self._idle_close_s:
            self.close()


def _open(path: Path) -> tuple[int, os.stat_result]:
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    seen = os.fstat(fd)
    if not stat.S_ISREG(seen.st_mode):
        os.close(fd)
        raise OSError(0, "not a regular file")
    return fd, seen


def _signature(seen: os.stat_result) -> Signature:
    return seen.st_size, seen.st_mtime_ns, seen.st_ctime_ns


def _not_regular(path: Path, mode: int) -> str:
    kinds = {stat.S_IFDIR: "a folder", stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket"}
    return f"{path} is {kinds.get(stat.S_IFMT(mode), 'a device')}, not a regular file; name a file that a training writes."
