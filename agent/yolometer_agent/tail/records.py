"""Records: splits a byte stream into records at LF or CR, whatever its encoding and however it was cut into reads."""

from __future__ import annotations

import codecs
from collections.abc import Callable, Sequence
from itertools import compress
from typing import Any, NamedTuple

MAX_RECORD_BYTES = 65536
_SNIFF_BYTES = 8
_BOMS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))


class Chunk(NamedTuple):
    """What one read brought: complete records without their end, and what has no end yet.

    `ends(i)` is the position just past the end byte of `records[i]`; it is computed when asked for, so
    chunks nobody asks cost nothing; ask in ascending order. `remainder` is the record that is still being written (at most
    `max_record_bytes`); it comes again, longer or complete, with the next chunk.
    """

    records: list[bytes]
    ends: Callable[[int], int]
    remainder: bytes


class Records:
    """Splits one stream. A *position* counts the bytes of the stream as UTF-8 without NULs and byte order mark.

    Positions are monotone, differ from record to record, and like the records themselves do not depend on how
    the stream was cut into reads. Empty records are dropped but their end bytes count. A record longer than
    `max_record_bytes` is dropped up to its end (`long_records`, `lost_bytes`). Memory is bounded by one read and
    one record. Bytes that are not UTF-8 stay as they are; half a UTF-16 surrogate pair becomes `?`.
    """

    def __init__(self, *, position: int = 0, max_record_bytes: int = MAX_RECORD_BYTES) -> None:
        self.max_record_bytes = max_record_bytes
        self.long_records = 0
        self.lost_bytes = 0
        self._encoding: str | None = None
        self._held = b""
        self._skipping = False
        self._remainder = b""
        self._position = position
        self._read = 0
        self._offset = 0

    @property
    def position(self) -> int:
        """Position of the start of the remainder: everything before it was given as records or dropped."""
        return self._position

    @property
    def offset(self) -> int:
        """Where in the source (raw bytes from its start) to read on after a restart: the start of the remainder."""
        return self._offset

    @property
    def remainder(self) -> bytes:
        """The record that has no end yet."""
        return self._remainder

    def feed(self, data: bytes) -> Chunk | None:
        """Take the next bytes of the source; None when there are none."""
        if not data:
            return None
        self._read += len(data)
        raw = self._held + data if self._held else data
        if self._encoding is None:
            known = _sniff(raw[:_SNIFF_BYTES])
            if known is None:
                self._held = raw
                return Chunk([], _Ends(self._position, (), ()), b"")
            self._encoding, bom_bytes = known
            raw = raw[bom_bytes:]
            self._offset = bom_bytes
        if self._encoding == "utf-8":
            self._held = b""
            text, tail_bytes = raw, None
        else:
            text, self._held, tail_bytes = _from_utf16(raw, self._encoding)
        return self._split(text, tail_bytes)

    def finish(self) -> Chunk:
        """End the source: its remainder becomes a record. The next source begins at `position`.

        A record without an end counts one byte, whatever its length, so that the next source has the same
        positions when a restart in between lost the remainder together with its file.
        """
        if self._encoding is None:
            self._remainder = b" ".join(self._held.replace(b"\0", b"").split())
        records = [self._remainder] if self._remainder else []
        self._position += 1
        chunk = Chunk(records, _Ends(self._position - 1, [b""], [True]), b"")
        self._encoding, self._held, self._skipping, self._remainder = None, b"", False, b""
        self._read = self._offset = 0
        return chunk

    def state(self) -> dict[str, Any]:
        """A JSON dict. Restored, the source must be fed again from `offset`; no bytes are kept."""
        return {
            "offset": self._offset,
            "position": self._position,
            "encoding": self._encoding,
            "skipping": self._skipping,
            "long_records": self.long_records,
            "lost_bytes": self.lost_bytes,
        }

    @classmethod
    def restore(cls, state: dict[str, Any], *, max_record_bytes: int = MAX_RECORD_BYTES) -> Records:
        """The splitter that `state()` described, at the start of what was its remainder. KeyError when it is no state."""
        new = cls(position=state["position"], max_record_bytes=max_record_bytes)
        new._read = new._offset = state["offset"]
        new._encoding = state["encoding"]
        new._skipping = state["skipping"]
        new.long_records = state["long_records"]
        new.lost_bytes = state["lost_bytes"]
        return new

    def _split(self, text: bytes, tail_bytes: int | None) -> Chunk:
        """Split `text`; `tail_bytes` is the raw length of what follows its last end (None: raw and text are alike)."""
        if b"\0" in text:
            if tail_bytes is None:
                tail_bytes = len(text) - 1 - max(text.rfind(b"\n"), text.rfind(b"\r"))
            text = text.replace(b"\0", b"")
        text = text.replace(b"\r", b"\n")
        ended = b"\n" in text
        if self._skipping:
            lost = text.find(b"\n") if ended else len(text)
            self.lost_bytes += lost
            self._position += lost + ended
            self._skipping = not ended
            text = text[lost + 1 :]
        start = self._position
        whole = self._remainder + text if self._remainder else text
        parts = whole.split(b"\n")
        last = parts.pop()
        keep: Sequence[object] = parts
        if len(whole) > self.max_record_bytes:
            if len(last) > self.max_record_bytes:
                self._drop(len(last))
                self._skipping = True
                last = b""
            if self._may_hold_a_long_record(whole):
                keep = self._keep(parts)
        self._remainder = last
        self._position = start + len(whole) - len(last)
        if not last:
            self._offset = self._read - len(self._held)
        elif ended:
            self._offset = self._read - len(self._held) - (len(last) if tail_bytes is None else tail_bytes)
        return Chunk(list(compress(parts, keep)), _Ends(start, parts, keep), last)

    def _may_hold_a_long_record(self, whole: bytes) -> bool:
        """Whether some aligned block of half a longest record has no end: cheaper than the length of every record."""
        block = self.max_record_bytes // 2 + 1
        return any(whole.find(b"\n", at, at + block) < 0 for at in range(0, len(whole) - block + 1, block))

    def _keep(self, parts: list[bytes]) -> Sequence[object]:
        if max(map(len, parts), default=0) <= self.max_record_bytes:
            return parts
        for length in map(len, parts):
            if length > self.max_record_bytes:
                self._drop(length)
        return [0 < len(part) <= self.max_record_bytes for part in parts]

    def _drop(self, length: int) -> None:
        self.long_records += 1
        self.lost_bytes += length


class _Ends:
    """End positions of the kept parts, counted on from the last one asked for: in order they cost one pass together."""

    __slots__ = ("_at", "_keep", "_kept", "_none", "_part", "_parts", "_start")

    def __init__(self, start: int, parts: Sequence[bytes], keep: Sequence[object]) -> None:
        self._start, self._parts, self._keep = start, parts, keep
        self._none: object = b"" if keep is parts else False
        self._kept, self._part, self._at = 0, 0, start

    def __call__(self, index: int) -> int:
        if index + 1 < self._kept:
            self._kept, self._part, self._at = 0, 0, self._start
        while self._kept <= index:
            piece = slice(self._part, self._part + index + 1 - self._kept)
            parts = self._parts[piece]
            if not parts:
                raise IndexError(index)
            self._kept += len(parts) - self._keep[piece].count(self._none)
            self._part += len(parts)
            self._at += sum(map(len, parts)) + len(parts)
        return self._at


def _sniff(head: bytes) -> tuple[str, int] | None:
    """Encoding and length of the byte order mark, None while `head` is too short to tell: more bytes never change an answer."""
    for bom, encoding in _BOMS:
        if head.startswith(bom):
            return encoding, len(bom)
        if bom.startswith(head):
            return None
    for encoding, at in (("utf-16-le", 1), ("utf-16-be", 0)):
        if not head[at::2].strip(b"\0") and b"\0" not in head[1 - at :: 2]:
            return (encoding, 0) if len(head) >= _SNIFF_BYTES else None
    return "utf-8", 0


def _from_utf16(raw: bytes, encoding: str) -> tuple[bytes, bytes, int]:
    """UTF-8 of the complete characters, the bytes of a cut one, and the raw length of what follows the last end."""
    decode = codecs.utf_16_le_decode if encoding == "utf-16-le" else codecs.utf_16_be_decode
    text, used = decode(raw, "surrogatepass", False)
    tail = text[max(text.rfind("\n"), text.rfind("\r")) + 1 :]
    return text.encode("utf-8", "replace"), raw[used:], len(tail.encode("utf-16-le", "surrogatepass"))
