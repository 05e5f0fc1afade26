"""Mark: recognises the content of a file by its first KiB and by the last bytes that were read of it."""

from __future__ import annotations

import hashlib
import os
from typing import Any

HEAD_BYTES = 1024
SEAM_BYTES = 256


class Mark:
    """What was read of one file, as two digests: of the *head* (up to 1 KiB) and of the *seam* (up to 256 bytes before the end).

    The head grows with the file, so a file of 120 bytes has one. It answers only "is this still the content that
    was read here?": two files with the same head are two files.
    """

    def __init__(self) -> None:
        self._head_bytes = 0
        self._head = b""
        self._hasher = hashlib.blake2b(digest_size=16)
        self._tail = b""
        self._seam_at = 0
        self._seam_bytes = 0
        self._seam = b""

    def add(self, data: bytes, offset: int) -> None:
        """Take bytes that were read at `offset` of the file. After `restore`, call `matches` once before."""
        if self._head_bytes < HEAD_BYTES:
            new = data[self._head_bytes - offset : HEAD_BYTES - offset]
            self._hasher.update(new)
            self._head_bytes += len(new)
            self._head = self._hasher.digest()
        if len(data) < SEAM_BYTES and offset == self._seam_at + self._seam_bytes:
            data, offset = self._tail + data, self._seam_at
        # Over a network file system the newest page may read as NULs first and be filled in later.
        self._tail = data[-SEAM_BYTES:].rpartition(b"\0")[2]
        self._seam_bytes = len(self._tail)
        self._seam_at = offset + len(data) - self._seam_bytes
        self._seam = _digest(self._tail)

    def matches(self, fd: int, *, seam: bool = False) -> bool:
        """Whether the open file still begins with the marked head (on request: still has the marked seam). May raise OSError."""
        if self._head_bytes:
            hasher = hashlib.blake2b(os.pread(fd, self._head_bytes, 0), digest_size=16)
            if hasher.digest() != self._head:
                return False
            if self._head_bytes < HEAD_BYTES:
                self._hasher = hasher
        if not seam:
            return True
        self._tail = os.pread(fd, self._seam_bytes, self._seam_at)
        return not self._seam_bytes or _digest(self._tail) == self._seam

    def state(self) -> dict[str, Any]:
        """A JSON dict."""
        return {
            "head_bytes": self._head_bytes,
            "head": self._head.hex(),
            "seam_at": self._seam_at,
            "seam_bytes": self._seam_bytes,
            "seam": self._seam.hex(),
        }

    @classmethod
    def restore(cls, state: dict[str, Any]) -> Mark:
        """The mark that `state()` described. KeyError or ValueError when it is none."""
        new = cls()
        new._head_bytes, new._head = state["head_bytes"], bytes.fromhex(state["head"])
        new._seam_at, new._seam_bytes, new._seam = state["seam_at"], state["seam_bytes"], bytes.fromhex(state["seam"])
        return new


def _digest(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=16).digest()
