"""The ROI queries on real ClickHouse: every case file has the stem of its query, events given and rows expected."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import yaml

from yolometer_core import delivery, events
from yolometer_core.errors import BadUsage
from yolometer_core.events import Event
from yolometer_sinks.stores._base import Store
from yolometer_sql.catalog import catalog, find, parse

CASES = Path(__file__).parents[1] / "cases" / "roi"
ALL = [(path.stem, case) for path in sorted(CASES.glob("*.yaml")) for case in yaml.safe_load(path.read_text(encoding="utf-8"))]
REPLAY = (
    """run_id, name, framework, framework_version, task, model, imgsz, batch, epochs_planned, epochs_done, attempts, status,
  images_per_epoch, images, tokens_mtok, tokens_640_mtok, wasted_mtok, train_seconds, rate_mtok_s, k_s_per_mtok, best_map50_95,
  best_epoch, params, gflops, optimizer, gpu_model, gpus, gpu_seconds, cost, currency, sources""".replace("\n", "")
    .replace(" ", "")
    .split(",")
)
HEAD = "-- Question: q\n-- One row is: r\n-- Columns:\n--   a (unit): m\n"
DEFAULTS: dict[str, dict[str, Any]] = {
    "Run": {"version": 1, "place": "/runs/a"},
    "Epoch": {"version": 1, "attempt": 1, "kept": True, "complete": True},
}


def event(given: dict[str, dict[str, Any]]) -> Event:
    ((kind, fields),) = given.items()
    said = {"ts": "2026-03-01T12:00:00+00:00", "node": "n", "source": "s", "seq": 0}
    built = (getattr(events, kind, None) or getattr(delivery, kind))(**{**said, **DEFAULTS.get(kind, {}), **fields})
    assert isinstance(built, Event)
    return built


def same(value: Any, expected: Any) -> bool:
    if isinstance(value, Decimal):
        return expected is not None and value == Decimal(expected)
    if isinstance(expected, float):
        return isinstance(value, float) and value == pytest.approx(expected, rel=1e-9)
    return bool(value == expected) and (value is None) == (expected is None)


@pytest.mark.parametrize(("query", "case"), ALL, ids=[f"{query}: {case['name']}" for query, case in ALL])
def test_case(store: Store, query: str, case: dict[str, Any]) -> None:
    for given in case["given"]:
        if "sql" in given:  # rows that no event is: rollups
            store.command(given["sql"])
        else:
            store.write([event(given)])
    params = {name: str(value) for name, value in case.get("params", {}).items()}
    rows = store.query(*find(query).bind(params)).dicts()
    assert len(rows) == len(case["expect"]), rows
    for row, expected in zip(rows, case["expect"], strict=True):
        wrong = {name: (row[name], value) for name, value in expected.items() if not same(row[name], value)}
        assert not wrong, wrong


def test_every_query_has_cases_and_every_case_file_a_query() -> None:
    assert {path.stem for path in CASES.glob("*.yaml")} == set(catalog())


def test_the_header_of_every_query_is_its_answer(store: Store) -> None:
    for name, query in catalog().items():
        answer = store.query(*query.bind({}))
        assert answer.columns == tuple(column.name for column in query.columns), name


def test_runs_has_exactly_the_fields_of_replay() -> None:
    assert [column.name for column in catalog()["runs"].columns] == REPLAY


def test_an_unknown_query_or_parameter_names_the_nearest() -> None:
    with pytest.raises(BadUsage, match="did you mean wasted_tokens"):
        find("wasted_token")
    with pytest.raises(BadUsage, match="known are gpu_hours"):
        find("zzzzzz")
    with pytest.raises(BadUsage, match="did you mean run_id"):
        find("runs").bind({"runid": "x"})


@pytest.mark.parametrize("attack", ["' OR 1 = 1 --", "x'; DROP TABLE run; --", "{other:String}", "\\' OR 1=1 --"])
def test_a_parameter_is_only_ever_a_value(store: Store, attack: str) -> None:
    store.write([event({"Run": {"run_id": "a"}})])
    sql, bound = find("runs").bind({"run_id": attack})
    assert attack not in sql and bound == {"run_id": attack}
    assert store.query(sql, bound).rows == []
    assert len(store.query(*find("runs").bind({})).rows) == 1


@pytest.mark.parametrize("value", ["2026-3-1", "yesterday", "", "20260301", "2026-02-30"])
def test_a_value_that_does_not_fit_its_type_is_bad_usage(value: str) -> None:
    with pytest.raises(BadUsage, match=r"since .* date such as"):
        find("tokens_per_day").bind({"since": value})


def test_an_unknown_time_zone_is_one_sentence(chdb_store: Store) -> None:
    with pytest.raises(BadUsage, match="time zone"):
        chdb_store.query(*find("tokens_per_day").bind({"time_zone": "Europe/Nowhere"}))


def test_a_header_that_does_not_match_its_sql_is_found() -> None:
    head = HEAD
    assert parse("x", head + "-- Parameters:\n--   n UInt8 = 3: m\n\nSELECT {n:UInt8} AS a").bind({})[1] == {"n": "3"}
    for text in (
        "SELECT 1",
        head,
        head + "SELECT {n:UInt8}",
        head + "-- what\nSELECT 1",
        head + "-- Parameters:\n--   n UInt8 = 3: m\nSELECT 1",
    ):
        with pytest.raises(ValueError, match="query x"):
            parse("x", text)


@pytest.mark.parametrize(("kind", "good", "bad"), [
    ("UInt8", "255", "256"), ("Int8", "-128", "-129"), ("UInt32", "0", "-1"), ("Int64", str(2**63 - 1), str(2**63)),
    ("Float64", "-1.5e3", "one"), ("Date", "2026-03-01", "2026-13-01"), ("String", "any'thing", "a\0b"),
])  # fmt: skip
def test_values_by_type(kind: str, good: str, bad: str) -> None:
    text = HEAD + f"-- Parameters:\n--   n {kind} = 1: m\nSELECT {{n:{kind}}}"
    query = parse("x", text)
    assert query.bind({"n": good})[1] == {"n": good}
    with pytest.raises(BadUsage, match="parameter n"):
        query.bind({"n": bad})
