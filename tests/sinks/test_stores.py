"""What a store promises, on chDB and on a real ClickHouse server: nothing twice, nothing made up, nothing in another zone."""

from __future__ import annotations

import math
import re
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest

from yolometer_core import wire
from yolometer_core.delivery import Coverage, DeadLetter, Loss, Message
from yolometer_core.devices import GpuDevice, GpuFault
from yolometer_core.errors import BadInput, BadStore, BadUsage
from yolometer_core.events import (
    Epoch,
    Evaluation,
    Event,
    Incident,
    Progress,
    Rate,
    ResultRow,
    Row,
    Run,
    Setting,
    Settle,
    SourceState,
    Work,
)
from yolometer_sinks.open_store import open_store
from yolometer_sinks.stores import _arrow
from yolometer_sinks.stores._arrow import shape
from yolometer_sinks.stores._base import Store

NOW = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)
MIGRATIONS = ["0001_first_tables", "0002_fleet", "0003_gpus"]
SAID: dict[str, Any] = {"ts": NOW, "node": "n1", "source": "results.csv", "seq": 7}
FACT: dict[str, Any] = {**SAID, "place": "/runs/a"}
RECENT: dict[str, Any] = {**SAID, "ts": datetime.now(UTC).replace(microsecond=0)}  # in tables that forget after some days
WHERE: dict[str, Any] = {"from_topic": "fact", "from_partition": 1, "from_offset": 2}
STORED = {
    kind.table: kind
    for kind in wire.kinds()
    if kind.stored and kind.__module__.startswith("yolometer_core") and kind.table != "gpu"  # gpu: test_gpu_table.py
}
VIEW_OF = {table: f"{table}s" for table in STORED} | {"progress": "progresses", "loss": "losses", "dead": "dead_letters"}
ONE_OF_EACH: list[Event] = [
    Setting(**FACT, role="settings", rect=False, batch=0),
    Progress(**FACT, iterations_done=3, losses=(1.0, None, math.nan)),
    Evaluation(**FACT, epoch=1, map50_95=0.0),
    ResultRow(**FACT, epoch=1),
    Incident(**FACT, what="oom_retry"),
    SourceState(**FACT, role="table", format="csv", path="/runs/a/results.csv", size_bytes=10),
    Run(**SAID, run_id="r1", version=1, place="/runs/a", owner={"team": "vision"}, sources=("a", "b"), cost=Decimal("0")),
    Epoch(**SAID, run_id="r1", version=1, attempt=1, epoch=1, kept=True, complete=True),
    Rate(**SAID, run_id=None, window_s=60, rate_mtok_s=1, coverage_ratio=1, active_rate_mtok_s=None),
    Loss(**SAID, last_seq=9, messages=3, size_bytes=100, reason="full"),
    DeadLetter(**SAID, **WHERE, reason="field", detail="no", raw_key=b"k", raw=b"\x00raw", digest="0f"),
    Message(**RECENT, **WHERE, events=2, rows=1, size_bytes=50, first_ts=NOW),
    GpuDevice(**SAID, gpu_uuid="MIG-a", parent_uuid="GPU-a", sm_share_ratio=0.5, version=1),
    GpuFault(**SAID, what="xid", gpu_uuid="GPU-a", xid=79),
    Coverage(**SAID, version=1, samples=3, samples_expected=4, messages=1),
]


def run(version: int, **fields: Any) -> Run:
    return Run(**{**SAID, "run_id": "r1", "place": "/runs/a", "version": version, **fields})


def epoch(version: int, ts: datetime, tokens_mtok: float) -> Epoch:
    return Epoch(
        **{**SAID, "ts": ts}, run_id="r1", version=version, attempt=1, epoch=5, kept=True, complete=True, tokens_mtok=tokens_mtok
    )


def one(store: Store, sql: str) -> Any:
    return store.query(sql).rows[0][0]


def test_the_columns_of_a_table_are_the_fields_of_its_event(store: Store) -> None:
    of_table = (
        "SELECT name, type, default_kind FROM system.columns WHERE database = currentDatabase() AND table = {table:String} "
        "ORDER BY position"
    )
    for table, kind in STORED.items():
        rows = store.query(of_table, {"table": table}).rows
        assert rows.pop() == ("event_id", "String", "ALIAS")
        assert [name for name, _, _ in rows] == list(kind.model_fields), table
        for (name, column, default), field in zip(rows, shape(kind).schema, strict=True):
            assert default == "", (table, name)
            assert ("Nullable" in column and not column.startswith("Array")) == field.nullable, (table, name)
            plain = column.replace("LowCardinality(", "").replace("Nullable(", "").rstrip(")")
            assert plain.startswith(COLUMN_OF[re.split(r"[<(\[]", str(field.type))[0]]), (table, name, column)


def test_the_key_of_a_table_holds_the_identity_of_its_event(store: Store) -> None:
    keys = dict(store.query("SELECT name, sorting_key FROM system.tables WHERE database = currentDatabase()").rows)
    for table, kind in STORED.items():
        assert all(name in keys[table] for name in kind.identity), (table, keys[table])


COLUMN_OF = {
    "string": "String",
    "int64": "Int64",
    "uint64": "UInt64",
    "binary": "String",
    "bool": ("Bool", "UInt8"),
    "double": "Float64",
    "timestamp": "DateTime64(3, 'UTC'",
    "decimal128": "Decimal(18, 6",
    "list": "Array",
    "map": "Map(String, String",
}


def test_every_event_of_each_class_reads_back_as_it_was(store: Store) -> None:
    assert {event.table for event in ONE_OF_EACH} == set(STORED)
    store.write(ONE_OF_EACH)
    for event in ONE_OF_EACH:
        row = store.query(f"SELECT * FROM {VIEW_OF[event.table]}").dicts()[0]
        assert list(row) == list(event.row())
        for name, value in event.row().items():
            said = list(value) if isinstance(value, tuple) else value.decode() if isinstance(value, bytes) else value
            assert repr(row[name]) == repr(said) or row[name] == said, (event.table, name)


def test_the_store_computes_the_event_id_that_the_event_has(store: Store) -> None:
    berlin = timezone(timedelta(hours=2))
    times = [NOW.replace(microsecond=microsecond) for microsecond in (0, 1_499, 1_500, 999_500)]
    times += [times[1].astimezone(berlin), datetime(1970, 1, 1, tzinfo=UTC)]
    odd = {"source": 'ü "x" \\ \' \x1f\0🚀', "node": "", "place": "/runs/ä", "seq": 2**63}
    given: list[Event] = [*ONE_OF_EACH]
    for event in ONE_OF_EACH:
        fields = {name: value for name, value in odd.items() if name in type(event).model_fields}
        own: dict[str, Any] = {"run_id": "r2\x1f"} if isinstance(event, Row) else {}
        own |= {"from_topic": odd["source"], "index": 5} if isinstance(event, DeadLetter) else {}
        given.append(event.model_copy(update=fields | own))
    rate, epoch = ONE_OF_EACH[8], ONE_OF_EACH[7]
    for i, ts in enumerate(times):
        given += [rate.model_copy(update={"ts": ts, "window_s": 5 + i, "run_id": run_id}) for run_id in (None, "r1")]
    given += [epoch.model_copy(update={"attempt": -1, "epoch": 10**12, "take": 3})]
    store.write(given)
    for table, kind in STORED.items():
        said = sorted(event.event_id for event in given if isinstance(event, kind))
        for name in (table, VIEW_OF[table]):
            assert [row[0] for row in store.query(f"SELECT event_id FROM {name} ORDER BY event_id").rows] == said, name


def test_what_is_never_stored_is_bad_input(chdb_store: Store) -> None:
    work = Work(**SAID, run_id="r1", attempt=1, duration_s=1, amount_mtok=1)
    for event in (work, Settle(**SAID, place="/runs/a")):
        with pytest.raises(BadInput, match="never stored"):
            chdb_store.write([ONE_OF_EACH[0], event])
    assert one(chdb_store, "SELECT count() FROM setting") == 0


def test_columns_go_by_name_and_not_by_place() -> None:
    given = {"node": "n", "source": "s", "seq": 1, "place": "/p", "session": 0, "schema_version": 1, "take": 0}
    lacking = Incident.model_construct(**given, what="error")
    with pytest.raises(BadInput, match="incident event"):
        _arrow.table(Incident, [lacking])
    assert _arrow.table(Incident, [ONE_OF_EACH[4], lacking.model_copy(update={"ts": NOW})]).to_pylist()[1] == {
        **dict.fromkeys(Incident.model_fields), **given, "what": "error", "ts": NOW
    }  # fmt: skip


def test_a_column_of_one_value_is_that_value_in_every_row() -> None:
    told = [ONE_OF_EACH[1].model_copy(update={"seq": seq, "train_s": zero}) for seq, zero in ((1, 0.0), (2, -0.0))]
    rows = _arrow.table(Progress, told)
    assert repr(rows["train_s"].to_pylist()) == "[0.0, -0.0]"
    assert rows["seq"].to_pylist() == [1, 2] and rows["place"].to_pylist() == ["/runs/a"] * 2
    assert rows["images"].to_pylist() == [None, None] and rows["session"].to_pylist() == [0, 0]


def test_views_are_there_for_every_table(store: Store) -> None:
    store.write(ONE_OF_EACH)
    assert [one(store, f"SELECT count() FROM {view}") for view in VIEW_OF.values()] == [1] * len(STORED)


def test_d1_the_same_batch_three_times_is_one_row(store: Store) -> None:
    for _ in range(3):
        store.write(ONE_OF_EACH)
    for event in ONE_OF_EACH:
        assert one(store, f"SELECT count() FROM {event.table} FINAL") == 1
    assert one(store, "SELECT sum(size_bytes) FROM source_states") == 10


def test_d1_two_nodes_with_the_same_path_keep_their_own_facts(store: Store) -> None:
    store.write([Incident(**{**FACT, "node": node}, what="completed") for node in ("n1", "n2")])
    assert one(store, "SELECT count() FROM incidents") == 2


def test_d3_nan_stays_nan_and_unknown_stays_null(store: Store) -> None:
    store.write([ResultRow(**FACT, epoch=1, losses=(1.0, 2.0, math.nan, 3.0, None), map50=math.nan, map50_95=None, top1=0.0)])
    row = store.query("SELECT * FROM result_rows").dicts()[0]
    assert repr(row["losses"]) == "[1.0, 2.0, nan, 3.0, None]"
    assert math.isnan(row["map50"]) and row["map50_95"] is None and row["top1"] == 0.0 and row["time_s"] is None
    known = "arrayFilter(x -> NOT isNaN(x), arrayMap(x -> assumeNotNull(x), arrayFilter(x -> isNotNull(x), losses)))"
    assert store.query(f"SELECT arrayAvg({known} AS l), length(l) FROM result_rows").rows == [(2.0, 3)]


def test_d6_a_naive_time_is_refused(store: Store) -> None:
    with pytest.raises(ValueError, match="zone"):
        Incident(**{**FACT, "ts": datetime(2026, 3, 29, 2, 30)}, what="completed")
    slipped_in = ONE_OF_EACH[4].model_copy(update={"ts": datetime(2026, 3, 29, 2, 30)})
    good = ONE_OF_EACH[8]
    with pytest.raises(BadInput, match="zone"):
        store.write([good, slipped_in])
    assert one(store, "SELECT count() FROM rates") == one(store, "SELECT count() FROM incidents") == 0


def test_d6_milliseconds_are_rounded_and_zones_become_utc(store: Store) -> None:
    berlin = timezone(timedelta(hours=2))
    times = [NOW.replace(microsecond=123_900), NOW.replace(microsecond=123_499), NOW.replace(microsecond=999_500)]
    store.write([run(1, started_ts=times[0], ended_ts=times[1], ts=times[2].astimezone(berlin))])
    row = store.query("SELECT ts, started_ts, ended_ts FROM runs").rows[0]
    assert row == (NOW + timedelta(seconds=1), NOW.replace(microsecond=124_000), NOW.replace(microsecond=123_000))
    assert all(value.utcoffset() == timedelta(0) for value in row)


@pytest.mark.parametrize("year", [1, 1969, 2262, 9999])
def test_d6_a_clock_that_is_far_off_is_refused(chdb_store: Store, year: int) -> None:
    with pytest.raises(BadInput, match="1970"):
        chdb_store.write([run(1, ended_ts=datetime(year, 6, 1, tzinfo=UTC))])


def test_d7_the_highest_version_holds_whatever_the_order(store: Store) -> None:
    store.write([run(12, tokens_mtok=12.0)])
    store.write([run(10, tokens_mtok=10.0)])
    assert store.query("SELECT version, tokens_mtok FROM runs").rows == [(12, 12.0)]


def test_d7_two_versions_across_months_are_one_epoch(store: Store) -> None:
    march = datetime(2026, 3, 31, 23, 59, 59, 900_000, tzinfo=UTC)
    april = datetime(2026, 4, 1, 0, 0, 0, 100_000, tzinfo=UTC)
    store.write([epoch(1, march, 100.0)])
    store.write([epoch(2, april, 100.0)])
    assert one(store, "SELECT sum(tokens_mtok) FROM epochs") == 100.0
    months = store.query("SELECT toMonth(ts), sum(tokens_mtok) FROM epochs GROUP BY 1 ORDER BY 1").rows
    assert months == [(4, 100.0)]
    assert one(store, "SELECT sumOrNull(tokens_mtok) FROM epochs WHERE ts < '2026-04-01'") is None


def test_of_one_write_only_the_highest_version_goes_in(store: Store) -> None:
    store.write([run(1), run(3, name="newest"), run(2), run(3, name="said last")])
    assert store.query("SELECT version, name FROM run").rows == [(3, "said last")]


def test_a_deleted_run_is_gone_until_a_higher_version(store: Store) -> None:
    store.write([run(1)])
    store.write([run(2, is_deleted=True)])
    assert one(store, "SELECT count() FROM runs") == 0
    store.write([run(3)])
    assert one(store, "SELECT count() FROM runs") == 1


def test_e4_no_price_is_null_and_a_price_of_nothing_is_zero(store: Store) -> None:
    store.write(
        [run(1, run_id="unpriced"), run(1, run_id="own", cost=Decimal("0")), run(1, run_id="paid", cost=Decimal("1.23456789"))]
    )
    assert store.query("SELECT run_id, cost FROM runs ORDER BY run_id").rows == [
        ("own", Decimal("0.000000")),
        ("paid", Decimal("1.234568")),
        ("unpriced", None),
    ]


def test_a_number_no_column_can_hold_is_bad_input(store: Store) -> None:
    with pytest.raises(BadInput, match="run event"):
        store.write([run(1, images=2**70)])
    with pytest.raises(BadInput, match="run event"):
        store.write([run(1, cost=Decimal(10) ** 13)])
    assert one(store, "SELECT count() FROM runs") == 0


def test_text_of_every_kind_survives(store: Store) -> None:
    for text in ("", 'it\'s; -- \\ \t\n `x` "y"', "ünï 漢字 🚀", "\\N", "null", "a\0b"):
        store.write([run(1, run_id="x" + text, name=text, owner={"team": text, text: "v"})])
        row = store.query("SELECT name, owner FROM runs WHERE run_id = {id:String}", {"id": "x" + text}).rows
        assert row == [(text, {"team": text, **{text: "v"}})]


def test_a_parameter_is_only_ever_a_value(store: Store) -> None:
    store.write([run(1)])
    for attack in ("' OR 1 = 1 --", "r1'; DROP TABLE run; --", "{other:String}", "\\' OR 1=1 --", "%(x)s"):
        assert store.query("SELECT run_id FROM runs WHERE run_id = {id:String}", {"id": attack}).rows == []
        assert store.query("SELECT {id:String} AS said", {"id": attack}).rows == [(attack,)]
    assert one(store, "SELECT count() FROM runs") == 1
    with pytest.raises(BadUsage, match="parameter"):
        store.query("SELECT {n:Int32}", {"n": "1 OR 1 = 1"})


def test_an_answer_without_rows_still_has_its_columns(store: Store) -> None:
    answer = store.query("SELECT run_id, cost FROM runs WHERE run_id = {id:String} SETTINGS join_use_nulls = 1", {"id": "none"})
    assert answer.columns == ("run_id", "cost") and answer.rows == [] and answer.dicts() == []


def test_several_threads_may_use_it(store: Store) -> None:
    def write_and_read(part: int) -> None:
        for seq in range(5):
            store.write([Incident(**{**FACT, "seq": part * 10 + seq}, what="completed")])
            assert one(store, f"SELECT count() FROM incidents WHERE seq BETWEEN {part * 10} AND {part * 10 + 9}") == seq + 1

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write_and_read, range(4)))
    assert one(store, "SELECT count() FROM incidents") == 20


def test_a_batch_over_many_months_is_no_error(store: Store) -> None:
    months = [NOW.replace(year=2000 + i // 12, month=1 + i % 12) for i in range(150)]
    store.write([ONE_OF_EACH[8].model_copy(update={"ts": ts}) for ts in months])
    assert one(store, "SELECT count() FROM rates") == 150


def test_writing_nothing_is_fine(store: Store) -> None:
    store.write([])


def test_a_store_without_tables_says_so(empty_store: Store) -> None:
    for call in (
        lambda: empty_store.query("SELECT 1"),
        lambda: empty_store.write(ONE_OF_EACH),
        lambda: empty_store.command("SELECT 1"),
    ):
        with pytest.raises(BadStore, match="yolometer sql migrate"):
            call()
    assert empty_store.migrate() == MIGRATIONS
    assert empty_store.migrate() == []


def test_an_unknown_table_column_or_statement_is_bad_store(store: Store) -> None:
    for sql in ("SELECT * FROM nowhere", "SELECT nothing FROM run", "SELEKT 1"):
        with pytest.raises(BadStore) as caught:
            store.query(sql)
        assert "\n" not in str(caught.value) and "Stack trace" not in str(caught.value)


def test_a_closed_store_says_so_and_closes_again(empty_store: Store) -> None:
    empty_store.close()
    empty_store.close()
    with pytest.raises(BadUsage, match="closed"):
        empty_store.query("SELECT 1")


def test_an_unknown_scheme_names_the_known_ones() -> None:
    with pytest.raises(BadUsage, match="did you mean clickhouse://"):
        open_store("clikhouse://app:secret@host/db")
    for url in ("postgres://app:secret@host/db", "secret", "", "chdb:secret", "CHDB://secret"):
        with pytest.raises(BadUsage, match="chdb:///folder") as caught:
            open_store(url)
        assert "clickhouse://" in str(caught.value) and "secret" not in str(caught.value)
