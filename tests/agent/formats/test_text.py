"""Numbers, sizes, durations and text as trainers print them."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from yolometer_agent.formats import _text


@pytest.mark.parametrize(
    ("record", "text"),
    [
        (b"\x1b[34m\x1b[1mengine/trainer: \x1b[0mtask=detect", "engine/trainer: task=detect"),
        (b"\x1b[H\x1b[J39/40: loss=1.2\x07", "39/40: loss=1.2"),
        (b"\x1b[K a\tb\x08\x08", " a\tb"),
        (b"\xff\xfeok \xf0\x9f\x9a\x80", "\ufffd\ufffdok 🚀"),
        (b"\x1b]0;title\x07x\x1b", "x"),
        (b"", ""),
    ],
)
def test_plain_text_has_no_colours(record: bytes, text: str) -> None:
    assert _text.plain(record) == text


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0.5", 0.5),
        ("1e-5", 1e-5),
        ("8.88429e+37", 8.88429e37),
        (" -1 ", -1),
        ("inf", math.inf),
        ("-inf", -math.inf),
        (".5", 0.5),
        ("1.", 1),
    ],
)
def test_a_number(text: str, value: float) -> None:
    assert _text.number(text) == value


@pytest.mark.parametrize("text", ["nan", "-nan", "NaN", "-nan(ind)"])
def test_not_a_number_is_one(text: str) -> None:
    value = _text.number(text)
    assert value is not None
    assert math.isnan(value)


@pytest.mark.parametrize("text", ["", "x", "1_000", "1,5", "0x10", "1.2.3", "--1", "٣", "1e", "nano"])
def test_no_number(text: str) -> None:
    assert _text.number(text) is None


def test_integers() -> None:
    assert [_text.integer(text) for text in ("2,590,425", "2590425", "-3")] == [2590425, 2590425, -3]
    assert [_text.integer(text) for text in ("8.0", "1,23", "", "1e3", "9" * 5000)] == [None] * 5


def test_sizes_know_their_base() -> None:
    assert _text.size_bytes("1.02e+03G", 1000) == 1_020_000_000_000
    assert _text.size_bytes("4000Mb", 1024) == 4000 * 2**20
    assert [_text.size_bytes(text, 1000) for text in ("0G", "nanG", "G", "-1G", "")] == [None] * 5


def test_durations() -> None:
    told = {
        "0.4s": 0.4,
        "1:05": 65,
        "1:02:03": 3723,
        "1 day, 2:03:04": 93784,
        "2 days, 0:00:00": 172800,
        "12ms": 0.012,
        "00:00": 0,
    }
    assert {text: _text.clock_s(text) for text in told} == pytest.approx(told)
    assert [_text.clock_s(text) for text in ("?", "12", "", "1:2:3:4", "-1:00", "s")] == [None] * 6


def test_how_coarse_a_number_is() -> None:
    assert [_text.unit(text) for text in ("0.512", "12", "1.02e+03", "1e-05")] == pytest.approx([1e-3, 1, 10, 1e-5])


@given(st.text(max_size=40), st.binary(max_size=200))
def test_nothing_raises(text: str, data: bytes) -> None:
    _text.plain(data)
    for read in (_text.number, _text.integer, _text.clock_s, _text.unit):
        read(text)
    _text.size_bytes(text, 1000)
