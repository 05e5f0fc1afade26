"""Frames: how one message or one state lies in a segment file, with a checksum, and how files of them are read."""

from __future__ import annotations

import errno
import os
import struct
from collections.abc import Iterator
from typing import NamedTuple
from zlib import crc32

MESSAGE, STATE = 1, 2
"""The kinds: a message is sent; a state holds the positions of the agent as of message `seq`, and is never sent."""

NUMBER_BITS = 32
LAST_NUMBER = (1 << NUMBER_BITS) - 1

_CRC = struct.Struct("<I")
_REST = struct.Struct("<IBQq")  # bytes of the payload, kind, seq, wall time in ms; the checksum is over these and the payload
HEAD_BYTES = _CRC.size + _REST.size
_LENGTHS = struct.Struct("<HI")  # bytes of the topic, bytes of the key
_CHUNK_BYTES = 64 * 1024


class Frame(NamedTuple):
    """One whole frame; `end` is the offset in its file right after it."""

    kind: int
    seq: int
    wall_ms: int
    payload: bytes
    end: int


def encode(kind: int, seq: int, wall_ms: int, payload: bytes) -> bytes:
    """The bytes of a frame."""
    rest = _REST.pack(len(payload), kind, seq, wall_ms)
    return b"".join((_CRC.pack(crc32(payload, crc32(rest))), rest, payload))


def pack_message(topic: bytes, key: bytes, value: bytes) -> bytes:
    """The payload of a MESSAGE."""
    return b"".join((_LENGTHS.pack(len(topic), len(key)), topic, key, value))


def unpack_message(payload: bytes) -> tuple[bytes, bytes, bytes]:
    """Topic, key and value of a MESSAGE."""
    topic_bytes, key_bytes = _LENGTHS.unpack_from(payload)
    key_at = _LENGTHS.size + topic_bytes
    value_at = key_at + key_bytes
    return payload[_LENGTHS.size : key_at], payload[key_at:value_at], payload[value_at:]


def scan(fd: int, start: int, end: int) -> Iterator[Frame]:
    """The frames of a file from offset `start`, none reaching past `end`. Stops at the first one that is not whole.

    The caller sees by the `end` of the last frame whether all was good. Reads with pread in small pieces: it keeps no more
    in memory than one piece and one frame, and sees nothing past `end`, where a writer may be at work.
    """
    chunk, base = b"", start
    while start < end:
        at = start - base
        if len(chunk) - at < HEAD_BYTES:
            chunk, base, at = pread(fd, min(_CHUNK_BYTES, end - start), start), start, 0
            if len(chunk) < HEAD_BYTES:
                return
        size = HEAD_BYTES + _REST.unpack_from(chunk, at + _CRC.size)[0]
        if start + size > end:
            return
        if len(chunk) - at < size:
            chunk, base, at = pread(fd, max(size, min(_CHUNK_BYTES, end - start)), start), start, 0
            if len(chunk) < size:
                return
        frame = _decode(memoryview(chunk)[at : at + size], start + size)
        if frame is None:
            return
        yield frame
        start += size


def pread(fd: int, size: int, at: int) -> bytes:
    """Like os.pread, but what the disk cannot read is empty: it is damaged."""
    try:
        return os.pread(fd, size, at)
    except OSError as error:
        if error.errno == errno.EIO:
            return b""
        raise


def _decode(raw: memoryview, end: int) -> Frame | None:
    """The frame in exactly these bytes; None when they are damaged."""
    if crc32(raw[_CRC.size :]) != _CRC.unpack_from(raw)[0]:
        return None
    _, kind, seq, wall_ms = _REST.unpack_from(raw, _CRC.size)
    return Frame(kind, seq, wall_ms, bytes(raw[HEAD_BYTES:]), end)
