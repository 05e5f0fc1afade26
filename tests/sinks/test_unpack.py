"""What Kafka's clients pack with zstd is unpacked to the same bytes, and damage is noticed."""

from __future__ import annotations

import io
import os

import pytest
import zstandard
from kafka.record import default_records

from yolometer_sinks.unpack import install, unpacked

KNOWN = os.urandom(3000) + b"x" * 5000


def streamed(data: bytes) -> bytes:
    """As a Java client packs: a frame without the size of its content."""
    out = io.BytesIO()
    with zstandard.ZstdCompressor().stream_writer(out, closefd=False) as writer:
        writer.write(data)
    return out.getvalue()


@pytest.mark.parametrize("packed", [zstandard.compress(KNOWN), streamed(KNOWN)])
def test_frames_of_both_kinds_and_several_of_them(packed: bytes) -> None:
    assert unpacked(packed) == KNOWN
    assert unpacked(packed + packed) == KNOWN * 2
    assert unpacked(b"") == b""


@pytest.mark.parametrize("spoil", [lambda packed: packed[:-1], lambda packed: packed + b"no frame", lambda packed: b"x" + packed])
def test_damage_is_an_error(spoil: object) -> None:
    with pytest.raises(zstandard.ZstdError):
        unpacked(spoil(zstandard.compress(KNOWN)))  # type: ignore[operator]


def test_the_client_uses_it_where_it_used_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    before = default_records.zstd_decode  # a version that has moved it is noticed here
    monkeypatch.setattr(default_records, "zstd_decode", before)
    install()
    assert default_records.zstd_decode is unpacked
    assert before(zstandard.compress(KNOWN)) == KNOWN
