"""The public fakes do what their docstrings say."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from yolometer_core.errors import BadUsage, StoreUnavailable
from yolometer_core.events import Epoch, Event, Run, Settle
from yolometer_core.testing import ListSink, ManualClock, MemoryStore

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def run(run_id: str, version: int, **fields: object) -> Run:
    said = {"ts": NOON, "node": "n1", "source": "s", "seq": version, "place": "p"}
    return Run.model_validate({**said, "run_id": run_id, "version": version, **fields})


def settle(seq: int) -> Event:
    return Settle(ts=NOON, node="n1", source="s", seq=seq, place="p")


def test_the_clock_moves_when_told_to_and_only_the_wall_goes_back() -> None:
    clock = ManualClock(NOON, monotonic_s=5)
    clock.advance(90)
    clock.step_back(30)
    assert (clock.monotonic(), clock.wall()) == (95, NOON.replace(minute=1))
    with pytest.raises(BadUsage, match="step_back"):
        clock.advance(-1)


def test_the_sink_keeps_what_it_got_or_fails_without_keeping_any() -> None:
    sink = ListSink()
    sink.write([settle(1), settle(2)])
    sink.error = StoreUnavailable("The store is away; start it.")
    with pytest.raises(StoreUnavailable):
        sink.write([settle(3)])
    assert sink.events == [settle(1), settle(2)]


def test_the_store_reads_the_highest_version_whatever_the_order() -> None:
    store = MemoryStore()
    store.write([run("a", 12, batch=8), run("a", 10, batch=4), run("b", 0)])
    store.write([run("a", 12, batch=8)])
    assert [(row["run_id"], row["version"], row["batch"]) for row in store.rows("run")] == [("a", 12, 8), ("b", 0, None)]
    assert store.rows("run")[0]["event_id"] == run("a", 12).event_id


def test_the_last_written_of_equal_versions_holds() -> None:
    store = MemoryStore()
    store.write([run("a", 1, batch=4), run("a", 1, batch=8)])
    assert [row["batch"] for row in store.rows("run")] == [8]


def test_a_deleted_row_is_left_out_until_a_higher_version_is_back() -> None:
    store = MemoryStore()
    store.write([run("a", 1), run("a", 2, is_deleted=True)])
    assert store.rows("run") == []
    store.write([run("a", 3)])
    assert [row["version"] for row in store.rows("run")] == [3]


def test_tables_are_apart_and_events_without_a_version_are_kept_once() -> None:
    store = MemoryStore()
    store.write([settle(1), settle(1), settle(2), run("a", 1)])
    assert [row["seq"] for row in store.rows("settle")] == [1, 2]
    assert store.rows(Epoch.table) == []


def test_the_store_knows_no_sql() -> None:
    with pytest.raises(BadUsage, match="rows"):
        MemoryStore().query("SELECT 1")
