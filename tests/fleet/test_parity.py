"""Parity: the same input gives the same rows, whether it goes through one process or through a fleet, once or again.

All in one test, for a fleet takes most of the time to start. Its input are captured trainings, read by two agents, one as it
watches and one afterwards, and the samples of a simulated meter; and three messages that nobody understands.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import msgpack
import pytest
from _fleet import Fleet
from _kafka import produce
from _local import Given, by_partition, in_turns, run_locally
from kafka import TopicPartition
from kafka.structs import OffsetAndMetadata

from yolometer.admin import connected
from yolometer.audit import reads
from yolometer.box import Box
from yolometer.feed import captures
from yolometer.replay import replay
from yolometer_core import wire
from yolometer_core.events import Fact
from yolometer_core.kafka import topic
from yolometer_sinks.stores._base import Store
from yolometer_stream.ops.rate_box import OPERATOR as BOX
from yolometer_stream.runs.rows import Terms

REPLAY = Path(__file__).parents[1] / "cases" / "replay"
SHARE = 2
"""Every second capture: with all of them the test takes half a minute more and finds the same."""

NOT_ROWS = {
    "schema_migration": "when the tables were made",
    "dirty_window": "when windows were touched and made, by the clock of the server",
}
NOT_THE_SAME = {
    "message": {"from_topic", "from_partition", "from_offset"},  # where it lay in Kafka
    "dead": {"source", "ts"},  # stream and sink find the same letter and the last to say so stands; when Kafka got the message
    "usage_minute": {"version"},  # when it was made, by the clock of the server
    "usage_hour": {"version"},
    "usage_day": {"version"},
}
"""The columns that the same input may give otherwise, for Kafka and clocks have a part in them. All others must be equal."""
SAID = {"ts", "seq", "version"}
"""When a row was said last. A row that does not change is not said again, and other batches say it at other times."""
SEEN = {"started_ts", "ended_ts"}
"""When an agent saw the lines: one that watches knows it, one that reads afterwards takes the time of the file."""
POISON = (b"garbage", None, msgpack.packb({"v": [9, 0]}))

Row = dict[str, Any]
Rows = dict[str, list[Row]]


def rows_of(store: Store) -> Rows:
    """All rows of all tables as they are now, without what is never the same."""
    found: Rows = {}
    tables = "SELECT name, engine_full LIKE '%is_deleted%' FROM system.tables WHERE database = currentDatabase()"
    for name, deletes in store.query(f"{tables} AND engine LIKE '%MergeTree'").rows:
        if name not in NOT_ROWS:
            rows = store.query(f"SELECT * FROM `{name}` FINAL {'WHERE is_deleted = 0' if deletes else ''}").dicts()
            found[name] = [_without(row, NOT_THE_SAME.get(name, ())) for row in rows]
    return found


def must_be_equal(some: Rows, others: Rows, what: str) -> None:
    """Fail with some of the rows that only one side has."""
    assert some.keys() == others.keys()
    for name in some:
        left, right = (sorted(map(repr, side[name])) for side in (some, others))
        if left != right:
            only = [sorted(set(these) - set(those))[:3] for these, those in ((left, right), (right, left))]
            pytest.fail(f"{what}: {name} has {len(left)} and {len(right)} rows; only here {only[0]}, only there {only[1]}")


def settled(rows: Rows) -> Rows:
    """Without those rates of a node that depend on the order in which the rates of its runs came.

    They come from several partitions, in any order. A rate that comes late corrects the rows of the node that are younger
    than `correct_s` (or two steps of the window); a row that is older stays as it was, or was never said. The trainings here
    began within a minute or so, so this leaves out few rows or none. Rates of runs are all compared.
    """
    newest: dict[tuple[str, int], datetime] = {}
    for row in rows["rate"]:
        of = row["node"], row["window_s"]
        newest[of] = max(row["ts"], newest.get(of, row["ts"]))

    def counts(row: Row) -> bool:
        young = timedelta(seconds=max(BOX.correct_s, row["window_s"] // 30))
        return row["run_id"] is not None or row["ts"] > newest[row["node"], row["window_s"]] - young

    return {**rows, "rate": [row for row in rows["rate"] if counts(row)]}


def _without(row: Row, names: Iterable[str]) -> Row:
    return {name: value for name, value in row.items() if name not in names}


def _trainings(rows: Rows, node: str, but: set[str]) -> Rows:
    return {name: [_without(row, but) for row in rows[name] if row["node"] == node] for name in ("run", "epoch")}


def _copied(folders: Iterable[Path], to: Path) -> Path:
    """Trainings of an hour ago."""
    ended_s = time.time() - 3600
    for folder in folders:
        shutil.copytree(folder, to / folder.name)
        for path in (to / folder.name).iterdir():
            os.utime(path, (ended_s, ended_s))
    return to


def _play(fleet: Fleet, finished: Path, watched: Path) -> None:
    """Give the fleet its input: poison first, then two agents, one of them with a meter. Returns when all is in Kafka."""
    produce(fleet.bootstrap, f"{fleet.prefix}fact", [(b"poison", value) for value in POISON])
    live = fleet.start_agent("n2", [watched], recent_s=0)
    assert fleet.ended(fleet.start_agent("n1", [finished], once=True)) == 0
    meter = fleet.start_agent("n1", [finished], {"simulated": {"gpus": 3, "period_s": 0.1, "run_id": "r1"}})
    fleet.wait_until(lambda: len(fleet.records("gpu")) > 1, what="Samples")
    assert [fleet.term(agent) for agent in (meter, live)] == [0, 0]


def _back_to_the_start(fleet: Fleet) -> None:
    """Let both groups, which have no members now, begin at the first message again."""
    with connected(fleet.kafka) as admin:
        for service, names in reads().items():
            parts = [TopicPartition(fleet.prefix + name, number) for name in names for number in range(fleet.partitions)]
            admin.alter_group_offsets(topic(fleet.kafka, service), dict.fromkeys(parts, OffsetAndMetadata(0, "", -1)))


def _forget(fleet: Fleet) -> None:
    """Take the state of the stream away, as it is told for a change of partitions."""
    with connected(fleet.kafka) as admin:
        admin.delete_topics([fleet.changelog])
    fleet.ensure_topics()


def _served(fleet: Fleet, meanwhile: Callable[[], None] = lambda: None) -> Rows:
    """The rows after a sink and two workers of the stream have done all there is to do, and were stopped."""
    services = [fleet.start_sink(), fleet.start_stream("stream1"), fleet.start_stream("stream2")]
    meanwhile()
    fleet.quiet()
    assert [fleet.term(service) for service in services] == [0, 0, 0], fleet.logs()
    return rows_of(fleet.store())


@pytest.mark.timeout(600)
def test_the_same_input_gives_the_same_rows(fleet: Fleet, tmp_path: Path) -> None:
    folders = sorted(path for path in REPLAY.iterdir() if path.is_dir())[::SHARE]
    finished = _copied(folders[::2], tmp_path / "finished")
    watched = _copied([*folders[1::2], *(path for path in captures().iterdir() if path.is_dir())], tmp_path / "watched")
    rows = _served(fleet, lambda: _play(fleet, finished, watched))
    assert len(rows["run"]) > len(folders)
    assert len(rows["dead"]) == len(POISON)
    assert all(rows[name] for name in ("epoch", "rate", "gpu", "coverage", "usage_minute", "usage_hour", "usage_day", "message"))
    given = [Given(name, *record) for name in ("fact", "gpu") for record in fleet.records(name)]
    assert len({one.partition for one in given}) == fleet.partitions

    _same_in_one_process(fleet, given, rows)
    _same_in_a_box(fleet, given, rows)
    _same_as_a_replay(fleet, rows, "n1", finished, SAID)
    _same_as_a_replay(fleet, rows, "n2", watched, SAID | SEEN)
    _back_to_the_start(fleet)
    must_be_equal(_served(fleet), rows, "all of Kafka read again")
    _back_to_the_start(fleet)
    _forget(fleet)
    must_be_equal(_served(fleet), rows, "all of Kafka read again without the state")


def _same_in_one_process(fleet: Fleet, given: list[Given], rows: Rows) -> None:
    """The operators alone, in two orders of the partitions."""
    for order in (by_partition, in_turns):
        store = fleet.store(f"local_{order.__name__}")
        store.migrate()
        run_locally(order(given), store, fleet.prefix)
        must_be_equal(settled(rows_of(store)), settled(rows), order.__name__)


def _same_in_a_box(fleet: Fleet, given: list[Given], rows: Rows) -> None:
    """The runner of one box, which is given the facts and tells the operators once that this was all."""
    store = fleet.store("box")
    store.migrate()
    box = Box(store, Terms(), node="box")
    for one in given:
        if one.topic == "fact" and one.key != b"poison":
            box.take(event for event in wire.read(one.value).events if isinstance(event, Fact))
    box.settle()
    found = rows_of(store)
    for node in ("n1", "n2"):
        must_be_equal(_trainings(found, node, SAID), _trainings(rows, node, SAID), f"the box, {node}")


def _same_as_a_replay(fleet: Fleet, rows: Rows, node: str, folder: Path, but: set[str]) -> None:
    """The command that reads directories, on one of a node."""
    store = fleet.store(f"replay_{node}")
    store.migrate()
    replay([str(folder)], store, Terms(), node=node)
    must_be_equal(_trainings(rows_of(store), node, but), _trainings(rows, node, but), f"a replay, {node}")
