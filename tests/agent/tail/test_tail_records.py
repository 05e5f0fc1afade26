"""Records: any cutting, any restart, any encoding gives the same records at the same positions."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from yolometer_agent.tail.records import Records

LIMIT = 12


def whole(raw: bytes, limit: int = LIMIT) -> tuple[list[tuple[int, bytes]], Records]:
    records = Records(max_record_bytes=limit)
    chunk = records.feed(raw)
    return ([] if chunk is None else [(chunk.ends(i), r) for i, r in enumerate(chunk.records)]), records


def in_pieces(raw: bytes, cuts: list[tuple[int, bool]], limit: int = LIMIT) -> tuple[list[tuple[int, bytes]], Records]:
    """Read `cuts[i][0]` bytes at a time, restarting from a JSON state after those marked True."""
    records, at, out = Records(max_record_bytes=limit), 0, []
    steps = iter(cuts)
    while at < len(raw):
        size, restart = next(steps, (len(raw), False))
        chunk = records.feed(raw[at : at + size])
        at += size
        assert chunk is not None
        assert len(chunk.remainder) <= limit
        out += [(chunk.ends(i), r) for i, r in enumerate(chunk.records)]
        if restart:
            records = Records.restore(json.loads(json.dumps(records.state())), max_record_bytes=limit)
            at = records.offset
    return out, records


BYTES = [b"\n", b"\r", b"\r\n", b"\0", b"\0\0\0", b"a", b"12", "é━🚀".encode(), b"\xff", b"\xe2", b"x" * 11, b"y" * 30]
TEXTS = ["\n", "\r\n", "\0", "ab", "é", "━", "🚀", "\ud83d", "\udc00", "\ufeff", "z" * 13]
pieces = st.lists(st.sampled_from(BYTES), max_size=30).map(b"".join)
texts = st.lists(st.sampled_from(TEXTS), max_size=20).map("".join)
utf16 = st.builds(
    lambda text, order, bom: (("\ufeff" if bom else "abcd") + text).encode(f"utf-16-{order}", "surrogatepass"),
    texts,
    st.sampled_from(["le", "be"]),
    st.booleans(),
)
raws = st.one_of(pieces, pieces.map(lambda raw: b"\xef\xbb\xbf" + raw), utf16, st.binary(max_size=40))
cuttings = st.lists(st.tuples(st.integers(1, 9), st.booleans()), max_size=60)


@settings(max_examples=600, deadline=None)
@given(raws, cuttings)
def test_cuts_and_restarts_change_nothing(raw: bytes, cuts: list[tuple[int, bool]]) -> None:
    expected, at_once = whole(raw)
    got, cut = in_pieces(raw, cuts)
    assert got == expected
    assert cut.remainder == at_once.remainder
    # NULs around the remainder may or may not be read again: they are nothing.
    same = {"offset": 0} if b"\0" in raw else {}
    assert {**cut.state(), **same} == {**at_once.state(), **same}
    ends = [end for end, _ in got]
    assert ends == sorted(set(ends))


@settings(max_examples=200, deadline=None)
@given(pieces)
def test_records_are_what_a_plain_reading_gives(raw: bytes) -> None:
    clean = raw.replace(b"\0", b"")
    expected, at, last = [], 0, clean.replace(b"\r", b"\n").rfind(b"\n")
    for part in clean[: last + 1].replace(b"\r", b"\n").split(b"\n"):
        at += len(part) + 1
        if 0 < len(part) <= LIMIT:
            expected.append((at, part))
    # These three bytes at the start decide the encoding, which the other test covers.
    if raw[:1] not in (b"\xff", b"\0") and raw[1:2] != b"\0":
        assert whole(raw)[0] == expected or len(raw) < 2


def test_ends_may_be_asked_in_any_order() -> None:
    chunk = Records(max_record_bytes=4).feed(b"\n\na\r\n\nlong one\nbb\n\nccc\nd")
    assert chunk is not None
    assert chunk.records == [b"a", b"bb", b"ccc"]
    assert [chunk.ends(index) for index in (2, 0, 0, 1, 2, 1)] == [23, 4, 4, 18, 23, 18]
    with pytest.raises(IndexError):
        chunk.ends(3)


def test_crlf_counts_both_bytes_and_ends_at_the_first() -> None:
    assert whole(b"ab\r\n\r\ncd\n")[0] == [(3, b"ab"), (9, b"cd")]


def test_every_redraw_is_a_record_and_live_before_the_newline() -> None:
    records = Records()
    chunk = records.feed(b"\r\x1b[K 1/3\r\x1b[K 2/3\r\x1b[K 3/3 half")
    assert chunk is not None
    assert chunk.records == [b"\x1b[K 1/3", b"\x1b[K 2/3"]
    assert chunk.remainder == b"\x1b[K 3/3 half"


def test_nul_and_bad_bytes() -> None:
    expected, records = whole(b"a\0b\n\0\0\n\xff\xfe\xe2\n", 100)
    assert expected == [(3, b"ab"), (8, b"\xff\xfe\xe2")]
    assert records.offset == 11


def test_a_hole_of_nuls_is_no_long_record_and_needs_no_rereading() -> None:
    records = Records()
    for _ in range(10):
        records.feed(bytes(50_000))
    assert records.offset == 500_000
    chunk = records.feed(b"alive\n")
    assert chunk is not None
    assert chunk.records == [b"alive"]
    assert records.long_records == 0


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("bom", ["", "\ufeff"])
def test_utf16_byte_by_byte(encoding: str, bom: str) -> None:
    text = "Epoch 1/3\r\n━━ 🚀 é\nrest"
    got, records = in_pieces((bom + text).encode(encoding), [(1, False)] * 200, 100)
    assert [record for _, record in got] == [b"Epoch 1/3", "━━ 🚀 é".encode()]
    assert records.remainder == b"rest"
    assert records.offset == len((bom + text[:-4]).encode(encoding))


def test_utf8_bom_is_dropped() -> None:
    assert whole(b"\xef\xbb\xbfab\n")[0] == [(3, b"ab")]


def test_five_mebibytes_without_a_newline() -> None:
    records = Records()
    for _ in range(80):
        chunk = records.feed(b"x" * 65536)
        assert chunk is not None
        assert not chunk.records
        assert len(chunk.remainder) <= 65536
    assert records.long_records == 1
    chunk = records.feed(b"x\nnormal\n")
    assert chunk is not None
    assert [(chunk.ends(0), chunk.records[0])] == [(80 * 65536 + 2 + 7, b"normal")]
    assert (records.long_records, records.lost_bytes) == (1, 80 * 65536 + 1)


def test_two_mebibytes_of_redraws_lose_nothing() -> None:
    frame = b"\r\x1b[K" + b"1/300  4.2G  1.25 2.26 0.78 19 640: 33%" * 4
    raw = frame * (2 * 2**20 // len(frame)) + b"\nnormal\n"
    got, records = in_pieces(raw, [(4096, False)] * 600, 65536)
    assert len(got) == raw.count(b"\r") + 1
    assert got[-1] == (len(raw), b"normal")
    assert records.long_records == 0


def test_finish_gives_the_remainder_and_the_next_source_goes_on() -> None:
    records = Records()
    records.feed(b"one\ntwo")
    chunk = records.finish()
    assert chunk.records == [b"two"]
    assert chunk.ends(0) == 5
    assert chunk.remainder == b""
    assert records.position == 5
    assert records.offset == 0
    nxt = records.feed("\ufeffa\n".encode("utf-16-le"))
    assert nxt is not None
    assert nxt.records == [b"a"]
    assert nxt.ends(0) == 7
    lost = Records.restore({**Records().state(), "position": 4, "offset": 4, "encoding": "utf-8"})
    lost.finish()
    assert lost.position == 5
    short = Records()
    short.feed(b"7")
    assert short.finish().records == [b"7"]


def test_no_bytes_no_chunk() -> None:
    assert Records().feed(b"") is None
