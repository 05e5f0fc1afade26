"""The audit on a real ClickHouse: every kind of hole is seen, counted once, and explained where an agent said so."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from yolometer.audit import Check, audit
from yolometer_core.delivery import Coverage, DeadLetter, Loss, Message
from yolometer_core.gpu import Gpu
from yolometer_sinks.rollups import recompute
from yolometer_sinks.stores._base import Store

HOUR = datetime.now(UTC).replace(minute=0, second=0, microsecond=0) - timedelta(hours=3)
EPOCH_S = int(HOUR.timestamp())
SINCE, UNTIL = HOUR - timedelta(hours=1), HOUR + timedelta(hours=4)


def seq(number: int) -> int:
    return (EPOCH_S << 32) | number


def messages(numbers: Iterable[int], node: str = "n1", lane: str = "gpu") -> list[Message]:
    return [
        Message(ts=HOUR + timedelta(seconds=number), node=node, source=lane, seq=seq(number), from_topic=f"yolometer.{lane}",
                from_partition=0, from_offset=number, events=1, rows=8, size_bytes=100)
        for number in numbers
    ]  # fmt: skip


def loss(first: int, last: int, node: str = "n1", lane: str = "gpu") -> Loss:
    return Loss(ts=HOUR, node=node, source=lane, seq=seq(first), last_seq=seq(last), messages=last - first + 1, size_bytes=1,
                reason="full")  # fmt: skip


def letter(offset: int, index: int = -1, key: bytes = b"n1", topic: str = "yolometer.gpu", **more: Any) -> DeadLetter:
    return DeadLetter(ts=HOUR, node="n1", source="sink", seq=offset, from_topic=topic, from_partition=0, index=index,
                      from_offset=offset, reason="garbage", detail="?", raw_key=key, raw=b"\xff", digest="d", **more)  # fmt: skip


def samples(seconds: Iterable[int], number: int = 1) -> Gpu:
    return Gpu(ts=HOUR, node="n1", source="nvml", seq=seq(number), period_s=1.0,
               offsets_ms=tuple(second * 1000 for second in seconds), gpu_uuid=("a", "b"), gpu_model=(None,) * 2,
               run_id=(None,) * 2, user=(None,) * 2, team=("t", None), attribution_source=(None,) * 2, columns={})  # fmt: skip


def covered(seen: int, expected: int) -> Coverage:
    return Coverage(ts=HOUR, node="n1", source="nvml", seq=1, version=1, samples=seen, samples_expected=expected, messages=1)


def check(store: Store, name: str) -> Check:
    return next(found for found in audit(store, SINCE, UNTIL) if found.name == name)


@pytest.mark.parametrize(
    ("arrived", "others", "missing", "first"),
    [
        (range(1, 11), [], 0, None),
        ([1, 2, 5, 6], [], 2, 3),
        ([3, 4], [], 2, 1),
        ([1, 2, 5, 6], [loss(3, 4)], 0, None),
        ([1, 2, 7], [loss(4, 5)], 2, 3),
        ([1, 2, 4], [letter(3)], 0, 3),
        ([1, 2, 4], [letter(3, key=b"n2")], 1, 3),
        ([1, 2, 4], [letter(3, index=0)], 1, 3),
        ([1, 2, 4], [letter(3, topic="yolometer.fact", key=b"n1:/runs")], 1, 3),
        ([1, 1, 2, 2, 3], [], 0, None),
    ],
    ids=["whole", "gap", "begin", "dropped", "half dropped", "dead", "another's dead", "dead event", "another lane's", "twice"],
)
def test_gaps_in_the_numbers_of_messages(
    store: Store, arrived: Iterable[int], others: list[Any], missing: int, first: int | None
) -> None:
    store.write([*messages(arrived), *others])
    found = check(store, "messages")
    (row,) = found.table.dicts()
    assert (found.missing, row["first_missing_seq"]) == (missing, first)
    assert found.ok == (missing == 0)


def test_lanes_and_nodes_do_not_explain_one_another(store: Store) -> None:
    store.write([*messages([1, 3], "n1"), *messages([1, 3], "n2"), *messages([1, 2, 3], "n1", "fact"), loss(2, 2, "n2")])
    rows = {(row["node"], row["source"]): row["missing"] for row in check(store, "messages").table.dicts()}
    assert rows == {("n1", "gpu"): 1, ("n2", "gpu"): 0, ("n1", "fact"): 0}


def test_a_spool_that_began_earlier_is_counted_from_its_first_message_in_the_time(store: Store) -> None:
    store.write(messages([5000, 5001, 5003]))
    early = audit(store, HOUR + timedelta(seconds=4000), UNTIL)
    (row,) = next(found for found in early if found.name == "messages").table.dicts()
    assert (row["expected"], row["missing"], row["first_missing_seq"]) == (4, 1, 5002)


def test_samples_are_held_against_the_time_that_passed(store: Store) -> None:
    store.write([samples(range(10)), covered(20, 24)])
    (row,) = check(store, "samples").table.dicts()
    assert (row["expected"], row["seen"], row["missing"]) == (24, 20, 4)
    assert row["coverage_ratio"] == pytest.approx(20 / 24)


def test_samples_that_the_store_lost_are_missing(store: Store) -> None:
    store.write([covered(20, 20)])
    assert check(store, "samples").missing == 20


def test_rollups_are_held_against_the_samples(store: Store) -> None:
    store.write([samples(range(10))])
    assert check(store, "rollups").missing == 60, "none of the three rollups was made"
    recompute(store, HOUR, HOUR + timedelta(hours=1), now=datetime.now(UTC))
    assert check(store, "rollups").ok
    store.write([samples(range(10, 15), 2)])
    assert check(store, "rollups").missing == 30


def test_dead_letters_are_missing_until_they_were_sent_again(store: Store) -> None:
    store.write([letter(1), letter(2)])
    assert check(store, "dead_letters").missing == 2
    store.write([letter(1, version=1, retried_ts=HOUR)])
    assert check(store, "dead_letters").missing == 1


def test_an_empty_store_has_nothing_missing(store: Store) -> None:
    assert all(found.ok for found in audit(store, SINCE, UNTIL))


def test_the_command_ends_with_1_when_something_is_missing(tmp_path: Any) -> None:
    command = [Path(sys.executable).with_name("yolometer"), "audit", "--store", f"chdb://{tmp_path}/store", "--json"]
    setup = (
        "import sys; from yolometer_sinks.open_store import open_store; import test_audit as t; s = open_store(sys.argv[1])\n"
        "s.migrate(); s.write(t.messages([1, 2, 4][:int(sys.argv[2])])); s.close()"
    )
    for count, code in (("2", 0), ("3", 1)):
        write = [sys.executable, "-c", setup, f"chdb://{tmp_path}/store", count]
        subprocess.run(write, check=True, cwd=Path(__file__).parent)
        said = subprocess.run(command, capture_output=True, text=True, check=False)
        assert said.returncode == code, said.stderr
        assert json.loads(said.stdout)["ok"] == (code == 0)
