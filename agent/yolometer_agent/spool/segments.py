"""Segments: the files of a spool. Each is named by the epoch and number of its first message and begins with a header."""

from __future__ import annotations

import contextlib
import os
import re
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

from yolometer_agent.spool import frames
from yolometer_core.errors import BadStore

VERSION = 1
Write = Callable[[int, bytes | memoryview, int], int]
"""Like os.pwrite: writes bytes at an offset of a descriptor and returns how many it took."""

_MAGIC = b"YOLOSPL\n"
_HEADER = struct.Struct("<8sIQQq")  # magic, version, first seq, last seq before it, newest wall time in ms before it
HEADER_BYTES = _HEADER.size + 4  # and the checksum
_NAME = re.compile(r"(\d{10})-(\d{10})\.seg")


@dataclass(eq=False)
class Segment:
    """One file, as known in memory. `last` is the last seq that can be read from it, `first - 1` when there is none."""

    path: Path
    first: int
    last: int
    size_bytes: int
    end: int
    """The offset up to which it can be read."""
    newest_wall_ms: int
    newest_s: float
    """When its newest frame was written, on the clock that does not step."""
    sealed: bool = True
    """Nothing more is written to it."""
    gone: bool = False
    """It was deleted or replaced."""

    def waiting(self, acked: int) -> int:
        """How many of its messages come after `acked`."""
        return max(0, self.last - max(acked, self.first - 1))


class Header(NamedTuple):
    """What a segment says about itself and about the one before it."""

    first: int
    previous_last: int
    previous_wall_ms: int

    def encode(self) -> bytes:
        """As bytes, with the checksum."""
        head = _HEADER.pack(_MAGIC, VERSION, *self)
        return head + crc32(head).to_bytes(4, "little")


def name_of(seq: int) -> str:
    """The file name of a segment whose first message is `seq`."""
    return f"{seq >> frames.NUMBER_BITS:010d}-{seq & frames.LAST_NUMBER:010d}.seg"


def paths_in(folder: Path) -> list[tuple[int, Path]]:
    """The segments in a folder, oldest first, each with its first seq. What else lies there is left alone."""
    found = []
    with contextlib.suppress(FileNotFoundError):
        for path in folder.iterdir():
            match = _NAME.fullmatch(path.name)
            if match:
                found.append(((int(match[1]) << frames.NUMBER_BITS) | int(match[2]), path))
    return sorted(found)


def read_header(path: Path) -> Header | None:
    """The header, None when it is damaged. BadStore for a whole header of another version."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        raw = frames.pread(fd, HEADER_BYTES, 0)
    finally:
        os.close(fd)
    if len(raw) < HEADER_BYTES or crc32(raw[:-4]).to_bytes(4, "little") != raw[-4:]:
        return None
    magic, version, *rest = _HEADER.unpack(raw[:-4])
    if magic != _MAGIC:
        return None
    if version != VERSION:
        raise BadStore(f"The spool file {path} has version {version}, this program reads version {VERSION}; update it.")
    return Header(*rest)


def create(folder: Path, header: Header, state: bytes, write: Write) -> tuple[Path, int, int]:
    """Make a segment of a header and a state frame (or nothing), on disk for good. Returns its path, descriptor and size.

    It is whole from the moment that it has its name. OSError when the disk does not take it; then nothing is left behind.
    """
    path = folder / name_of(header.first)
    temporary = path.with_name(path.name + ".tmp")
    data = header.encode() + state
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        write_all(fd, data, 0, write)
        os.fsync(fd)
        temporary.replace(path)
        sync_folder(folder)
    except BaseException:
        os.close(fd)
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
    return path, fd, len(data)


def write_all(fd: int, data: bytes, at: int, write: Write) -> None:
    """Write all of `data` at offset `at`. OSError when not all of it fits."""
    view = memoryview(data)
    while view:
        took = write(fd, view, at)
        view, at = view[took:], at + took


def sync_folder(folder: Path) -> None:
    """Make the names in a folder survive a power cut."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
