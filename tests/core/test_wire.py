"""The wire: what was sent is read; old bytes are read for ever; what is wrong is refused alone, with its reason."""

from __future__ import annotations

import importlib.util
import math
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from yolometer_core import wire
from yolometer_core.errors import BadInput
from yolometer_core.events import Event, Progress, Settle
from yolometer_core.gpu import METRICS, Gpu, packed

CASES = Path(__file__).parents[1] / "cases" / "wire"
_spec = importlib.util.spec_from_file_location("freeze", CASES / "_freeze.py")
assert _spec and _spec.loader
freeze = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(freeze)

TS = datetime(2026, 11, 30, 12, tzinfo=UTC)


def progress(seq: int = 8, **fields: Any) -> Progress:
    return Progress(**({"ts": TS, "node": "n", "source": "log", "place": "n:/a", "seq": seq, "iterations_done": 1} | fields))


def sent(*events: Event, **head: Any) -> bytes:
    return wire.message(list(map(wire.pack, events)), **({"node": "n", "at_ms": 1} | head))


def changed(raw: bytes, change: Any) -> bytes:
    said = msgpack.unpackb(raw)
    change(said)
    packed_again: bytes = msgpack.packb(said)
    return packed_again


def same(a: Event, b: Event) -> bool:
    """Equal, NaN being equal to itself."""
    return type(a) is type(b) and repr(a) == repr(b)


@pytest.mark.parametrize("path", sorted(CASES.glob("*/*.msgpack")), ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_frozen_bytes_of_every_version_are_read(path: Path) -> None:
    batch = wire.read(path.read_bytes())
    wanted = freeze.examples(path.parent.name)[path.stem]
    assert not batch.refused
    assert len(batch.events) == len(wanted) and all(map(same, batch.events, wanted))
    assert (batch.node, batch.lane, batch.seq, batch.at_ms) == ("node-1", path.stem, (1764504000 << 32) | 7, 1764504000123)


def test_the_version_of_today_is_frozen_and_writes_the_same_bytes() -> None:
    folder = CASES / f"v{wire.MAJOR}_{wire.MINOR}"
    for topic, events in freeze.examples().items():
        assert freeze.written(topic, events) == (folder / f"{topic}.msgpack").read_bytes()


def test_every_type_that_travels_is_among_the_frozen_examples() -> None:
    shown = {event.table for events in freeze.examples().values() for event in events}
    mine = {name for name, form in wire.forms().items() if form.kind.__module__.startswith("yolometer_core")}
    assert shown == mine


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (None, "tombstone"),
        (b"", "garbage"),
        (b"\xff{", "garbage"),
        (b"\xc1" * 40, "garbage"),
        (b"\xdd\xff\xff\xff\xff", "garbage"),
        (b"\x91" * 5000, "garbage"),
        (b'{"v": 1}', "garbage"),
        (msgpack.packb({"v": []}), "garbage"),
        (msgpack.packb([1, 2]), "garbage"),
        (msgpack.packb({"v": [9, 0], "node": "n", "at": 1, "events": [1]}), "version"),
        (msgpack.packb({"v": ["1", 0], "node": "n", "at": 1, "events": [1]}), "version"),
        (msgpack.packb({"v": [1, 0], "at": 1, "events": [1]}), "field"),
        (msgpack.packb({"v": [1, 0], "node": "n", "at": -1, "events": [1]}), "field"),
        (msgpack.packb({"v": [1, 0], "node": "n", "at": True, "events": [1]}), "field"),
        (msgpack.packb({"v": [1, 0], "node": "n", "at": 1, "seq": "3", "events": [1]}), "field"),
        (msgpack.packb({"v": [1, 0], "node": "n", "at": 1, "events": {}}), "field"),
        (msgpack.packb({"v": [1, 0], "node": "n", "at": 1, "events": []}), "empty"),
        (msgpack.packb({"v": [1, 0], "node": "n", "at": 1, "events": [1] * 10_001}), "too_large"),
    ],
)
def test_what_is_no_message_is_refused_with_its_reason(raw: bytes | None, reason: str) -> None:
    with pytest.raises(wire.BadWire) as refused:
        wire.read(raw)
    assert refused.value.reason == reason
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"iterations_done": "abc"}, "field"),
        ({"iterations_done": math.nan}, "field"),
        ({"iterations_done": -1}, "field"),
        ({"epoch": -1}, "field"),
        ({"iterations_done": 2**63}, "field"),
        ({"iterations_done": None}, "field"),
        ({"train_s": math.inf}, "field"),
        ({"ts": "2026-01-01T00:00:00"}, "field"),
        ({"ts": 10**18}, "field"),
        ({"ts": 1.5}, "field"),
        ({"losses": "abc"}, "field"),
        ({"place": 7}, "field"),
        ({"seq": -1}, "field"),
    ],
)
def test_a_bad_event_is_refused_and_its_neighbours_are_read(fields: dict[str, Any], reason: str) -> None:
    def spoil(said: Any) -> None:
        said["events"][1][1] |= fields

    batch = wire.read(changed(sent(progress(8), progress(16), progress(24)), spoil))
    assert [event.seq for event in batch.events] == [8, 24]
    assert [(refused.at, refused.reason) for refused in batch.refused] == [(1, reason)]


@pytest.mark.parametrize("item", [1, [], ["progress"], ["progress", 1], [1, {}], {"progress": {}}])
def test_what_is_no_event_is_refused_alone(item: Any) -> None:
    batch = wire.read(changed(sent(progress()), lambda said: said["events"].append(item)))
    assert len(batch.events) == 1 and [(refused.at, refused.reason) for refused in batch.refused] == [(1, "garbage")]


def test_an_unknown_type_is_refused_alone() -> None:
    batch = wire.read(changed(sent(progress()), lambda said: said["events"].append(["prophecy", {}])))
    assert [(refused.at, refused.reason) for refused in batch.refused] == [(1, "type")]


def test_newer_minor_versions_and_their_fields_are_read() -> None:
    def newer(said: Any) -> None:
        said["v"] = [wire.MAJOR, wire.MINOR + 7, "more"]
        said["zone"] = "eu"
        said["events"][0][1]["mood"] = [1, {"a": 2}]

    assert wire.read(changed(sent(progress()), newer)).events == [progress()]


def test_an_event_without_topic_does_not_travel() -> None:
    with pytest.raises(BadInput, match="no topic"):
        wire.pack(Settle(ts=TS, node="n", source="s", seq=0, place="p"))


def test_batches_keep_the_order_of_a_key_and_the_limit_of_bytes() -> None:
    events = [progress(seq, place=f"n:/{seq % 3}") for seq in range(300)]
    found, bad = wire.batches(events, most_bytes=2000)
    assert not bad
    assert {(batch.topic, batch.key) for batch in found} == {("fact", f"n:/{at}") for at in range(3)}
    for at in range(3):
        mine = [wire.read(wire.message(batch.events, node="n", at_ms=1)) for batch in found if batch.key == f"n:/{at}"]
        assert [event.seq for batch in mine for event in batch.events] == list(range(at, 300, 3))
    assert all(sum(map(len, batch.events)) <= 2000 for batch in found)


def test_one_event_that_is_too_large_is_told_and_the_others_go() -> None:
    found, bad = wire.batches([progress(), progress(16, losses=(0.5,) * 1000), progress(24)], most_bytes=3000)
    assert [len(batch.events) for batch in found] == [2]
    assert [event.seq for event, _ in bad] == [16] and "bytes" in str(bad[0][1])


def test_a_number_no_message_can_hold_is_told() -> None:
    _, bad = wire.batches([progress(2**70)])
    assert len(bad) == 1


def a_gpu(times: int = 3, gpus: int = 2, **fields: Any) -> Gpu:
    said = {"ts": TS, "node": "n", "source": "nvml", "seq": 1, "period_s": 1.0, "offsets_ms": tuple(range(0, times * 1000, 1000)),
            "gpu_uuid": tuple(f"GPU-{at}" for at in range(gpus)), "columns": {}}  # fmt: skip
    empty = dict.fromkeys(("gpu_model", "run_id", "user", "team", "attribution_source"), (None,) * gpus)
    return Gpu(**(said | empty | fields))


def test_gpu_samples_become_rows_with_unknown_as_none() -> None:
    event = a_gpu(2, 2, columns=packed({"power_w": [1.0, None, 3.0, 4.5]}))
    rows = list(wire.read(sent(event)).events[0].samples_of())  # type: ignore[attr-defined]
    assert [(row["gpu_uuid"], (row["ts"] - TS).total_seconds(), row["power_w"]) for row in rows] == [
        ("GPU-0", 0, 1.0), ("GPU-0", 1, None), ("GPU-1", 0, 3.0), ("GPU-1", 1, 4.5)]  # fmt: skip
    assert all(row["energy_j"] is None for row in rows)


@pytest.mark.parametrize(
    "fields",
    [
        {"offsets_ms": ()},
        {"gpu_uuid": (), "gpu_model": (), "run_id": (), "user": (), "team": (), "attribution_source": ()},
        {"offsets_ms": (0, 0, 1)},
        {"offsets_ms": (-5, 0, 1)},
        {"gpu_uuid": ("GPU-a", "GPU-a")},
        {"run_id": (None,)},
        {"columns": {"power_w": b"\0" * 7}},
        {"period_s": 0.0},
        {"period_s": math.nan},
        {"offsets_ms": tuple(range(60_000))},
    ],
)
def test_gpu_samples_that_do_not_fit_are_refused(fields: dict[str, Any]) -> None:
    raw = changed(sent(a_gpu()), lambda said: said["events"][0][1].update(fields))
    assert [refused.reason for refused in wire.read(raw).refused] == ["field"]


def test_an_unknown_metric_of_a_newer_agent_is_no_mistake() -> None:
    event = wire.read(sent(a_gpu(columns={"fan_ratio": b"abc"}))).events[0]
    assert isinstance(event, Gpu) and event.samples == 6
    assert math.isnan(event.values(next(iter(METRICS)))[0])


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(raw: bytes) -> None:
    try:
        wire.read(raw)
    except wire.BadWire as refused:
        assert refused.reason  # noqa: PT017  # both ways are right, a third one is not


@given(st.data())
def test_a_damaged_message_is_read_or_refused(data: st.DataObject) -> None:
    raw = bytearray(sent(progress(8), a_gpu(columns=packed({"power_w": [1.0] * 6}))))
    raw[data.draw(st.integers(0, len(raw) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    try:
        wire.read(bytes(raw))
    except wire.BadWire as refused:
        assert refused.reason  # noqa: PT017  # as above
