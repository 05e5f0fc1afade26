"""Samples of GPUs in a store: whole columns say the same as single samples, once each, and nothing that no GPU has."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from _samples import HOUR_AGO, epoch, full_gpu, gpu

from yolometer_core.errors import BadInput
from yolometer_core.gpu import METRICS, Gpu, packed
from yolometer_sinks.stores import _client
from yolometer_sinks.stores._arrow import schema, sift, tables
from yolometer_sinks.stores._base import Store
from yolometer_sinks.stores._gpu import LARGEST


def stored(store: Store, view: str = "gpus") -> list[dict[str, Any]]:
    return store.query(f"SELECT * FROM {view} ORDER BY node, gpu_uuid, ts").dicts()


def test_a_row_is_what_the_event_says_of_the_sample(store: Store) -> None:
    events = [full_gpu(f"n{at % 3}", at * 5, at, gpus=1 + at % 4, times=1 + at % 5) for at in range(12)]
    events.append(gpu("other", columns={"power_w": [1.5, None, math.nan, 0.0, 2.5, 3.5]}, run=None, gpu_model=(None, "H100")))
    store.write([epoch("r", 1), *events])
    said = sorted(
        (row for event in events for row in event.samples_of()), key=lambda row: (row["node"], row["gpu_uuid"], row["ts"])
    )
    found = stored(store)
    assert len(found) == len(said)
    for row, wanted in zip(found, said, strict=True):
        assert len(row.pop("event_id")) == 32
        assert row == wanted


def test_the_columns_of_the_table_are_those_of_the_rows(store: Store) -> None:
    sql = "SELECT name, type FROM system.columns WHERE database = currentDatabase() AND table = 'gpu' AND default_kind = ''"
    columns = store.query(f"{sql} ORDER BY position").rows
    assert [name for name, _ in columns] == schema(Gpu).names == list(next(gpu().samples_of()))
    for (name, kind), field in zip(columns, schema(Gpu), strict=True):
        assert ("Nullable" in kind) == field.nullable, name


def test_the_same_sample_again_is_one_row_and_the_last_word_holds(store: Store) -> None:
    first, second = gpu(run="r1"), gpu(run="r2", times=2, after_s=1)
    for _ in range(2):
        store.write([first, second])
        assert [row["run_id"] for row in stored(store)] == ["r1", "r2", "r2"] * 2
    assert tables([first, second])["gpu"].num_rows == 6  # of one write only the last one is sent
    store.write([second, first])
    assert [row["run_id"] for row in stored(store)] == ["r1"] * 6


def test_two_nodes_and_two_times_are_never_taken_for_one(store: Store) -> None:
    uuid = {"gpu_uuid": ("GPU-same",)}
    store.write([gpu(node, after_s, 1, 1, **uuid) for node in ("a", "b") for after_s in (0, 0.001, 1)])
    assert len(stored(store)) == 6


@pytest.mark.parametrize("value", [math.inf, -math.inf, -1.0, 1e300])
@pytest.mark.parametrize("name", METRICS)
def test_what_no_gpu_has_is_refused_by_its_name(name: str, value: float) -> None:
    if METRICS[name] == "f" and value == 1e300:
        value = 3e38
    good, bad = gpu("good"), gpu("bad", columns={name: [0.5 if LARGEST[name] == 1 else 1.0] * 5 + [value]})
    with pytest.raises(BadInput, match=name):
        tables([good, bad])
    kept, refused = sift([good, epoch("r", 1), bad, gpu("more"), bad])
    assert kept == [good, epoch("r", 1), gpu("more")]
    assert [event for event, _ in refused] == [bad, bad]


def test_part_of_a_byte_and_a_time_of_another_age_are_refused() -> None:
    with pytest.raises(BadInput, match="memory_used_bytes"):
        tables([gpu(columns={"memory_used_bytes": [1.5] * 6})])
    for wrong in ({"ts": datetime(1969, 1, 1, tzinfo=UTC)}, {"ts": datetime(2262, 1, 1, tzinfo=UTC)},
                  {"offsets_ms": (0, 1, 2**62)}, {"offsets_ms": (0, 1, 2**70)}):  # fmt: skip
        with pytest.raises(BadInput, match="gpu event"):
            tables([gpu().model_copy(update=wrong)])


def test_a_metric_of_a_later_version_is_passed_over(store: Store) -> None:
    event = gpu(times=1)
    store.write([event.model_copy(update={"columns": {**event.columns, "fan_ratio": b"1234"}})])
    assert [row["power_w"] for row in stored(store)] == [100.0, 100.0]


def test_rows_of_very_many_days_go_in_by_pieces(store: Store) -> None:
    """A server refuses an insert into more than 100 partitions, and the setting that allows it is not ours to count on."""
    assert "max_partitions_per_insert_block" not in _client.INSERT_SETTINGS
    sql = "SELECT name FROM system.tables WHERE database = currentDatabase() AND partition_key != '' AND name NOT LIKE 'usage%'"
    assert {name for (name,) in store.query(sql).rows} == set(_client.PARTITIONED)
    store.command("SYSTEM STOP TTL MERGES gpu")
    days = [gpu(ts=HOUR_AGO - timedelta(days=day), times=1, gpus=1) for day in range(230)]
    pieces = _client.sliced("gpu", tables(days)["gpu"])
    assert [piece.num_rows for piece in pieces] == [50, 50, 50, 50, 30]
    store.write(days)
    assert store.query("SELECT count(), uniqExact(toDate(ts)) FROM gpus").rows == [(230, 230)]


def test_unknown_is_null_for_all_of_a_metric_that_is_left_out(store: Store) -> None:
    event = gpu(times=1, gpus=1, columns={})
    store.write([event.model_copy(update={"columns": packed({"power_w": [None]})})])
    row = stored(store)[0]
    assert {row[name] for name in METRICS} == {None}
