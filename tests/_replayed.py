"""How tests replay directories through the real pipeline into a store that is a list, and compare the rows with what is true."""

from __future__ import annotations

import contextlib
import re
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import permutations
from pathlib import Path
from typing import Any

from yolometer.box import formats, operators
from yolometer.replay import replay
from yolometer_agent.agent import Agent
from yolometer_agent.tail.writers import Writers
from yolometer_core.events import Epoch, Event, Fact, Run, Settle, SourceState
from yolometer_core.testing import MemoryStore
from yolometer_sinks.stores._base import Table
from yolometer_stream.advance import States, advance
from yolometer_stream.runs.rows import Terms

NODE = "node1"
CONTRACT: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(("run_id",), (str,)),
    **dict.fromkeys(
        ("name", "framework", "framework_version", "task", "model", "status", "optimizer", "gpu_model", "currency"),
        (str, type(None)),
    ),
    **dict.fromkeys(
        ("imgsz", "batch", "epochs_planned", "epochs_done", "attempts", "images_per_epoch", "images", "best_epoch", "params",
         "gpus"),
        (int, type(None)),
    ),
    **dict.fromkeys(
        ("tokens_mtok", "tokens_640_mtok", "wasted_mtok", "train_seconds", "rate_mtok_s", "k_s_per_mtok", "best_map50_95",
         "gflops", "gpu_seconds", "cost"),
        (int, float, type(None)),
    ),
    "sources": (list,),
}  # fmt: skip
"""The fields of a run in the answer of `yolometer replay --json`, and their JSON types."""
STATUSES = {"running", "finished", "stopped_early", "interrupted", "failed", None}
_HOUSEKEEPING = {"ts", "node", "source", "seq", "version", "schema_version", "event_id", "is_deleted", "started_ts", "ended_ts"}

Rows = list[dict[str, Any]]


class Memory(MemoryStore):
    """A list that answers the plain SELECTs of a replay: which runs, epochs and sources are known. No engine, no disk."""

    name = "memory"

    def migrate(self) -> list[str]:
        """Nothing to do."""
        return []

    def command(self, sql: str, params: Mapping[str, Any] | None = None) -> None:
        """Nothing to do."""

    def close(self) -> None:
        """Nothing to do."""

    def query(self, sql: str, params: Mapping[str, Any] | None = None, **_: object) -> Any:  # type: ignore[override]
        """The answer of SQLite over the rows, for what is the same SQL in ClickHouse."""
        with contextlib.closing(sqlite3.connect(":memory:")) as base:
            for kind in (Run, Epoch, SourceState):
                names = list(kind.model_fields)
                base.execute(f"CREATE TABLE {kind.table}s ({', '.join(names)})")
                rows = [[_scalar(row[name]) for name in names] for row in self.rows(kind.table)]
                base.executemany(f"INSERT INTO {kind.table}s VALUES ({', '.join('?' * len(names))})", rows)
            found = base.execute(re.sub(r"\{(\w+):\w+\}", r":\1", sql), dict(params or {}))
            return Table(tuple(column[0] for column in found.description), found.fetchall())


def _scalar(value: Any) -> Any:
    return value if value is None or isinstance(value, int | float | str) else str(value)


def replayed(*paths: Path, store: Memory | None = None, **terms: Any) -> Rows:
    """The runs that a store holds after a replay of `paths`."""
    store = store or Memory()
    replay([str(path) for path in paths], store, Terms(**terms), node=NODE)
    return store.rows("run")


def only(runs: Rows) -> dict[str, Any]:
    """The one run there must be."""
    assert len(runs) == 1, [(run["name"], run["epochs_done"], run["sources"]) for run in runs]
    return runs[0]


def facts_of(folder: Path, look: Writers | None = None) -> dict[str, list[Fact]]:
    """All facts of a directory by source, as a replay reads them; no process writes there."""
    seen = look or Writers({}, True, (), Path("/proc"))
    agent = Agent([str(folder)], formats(), node=NODE, live=False, look=lambda: seen)
    agent.scan()
    facts: list[Fact] = []
    more = True
    while more:
        found, more = agent.poll()
        facts += found
    facts += agent.stands(digest=True)
    agent.close()
    said: dict[str, list[Fact]] = {}
    for fact in facts:
        said.setdefault(fact.source, []).append(fact)
    return said


def runs_from(facts: Iterable[Fact]) -> Rows:
    """The runs that operators make of facts."""
    parts, states = operators(Terms()), States()
    events: list[Event] = []
    places: dict[str, None] = {}
    for fact in facts:
        places[fact.place] = None
        events += advance(parts, states, fact)
    for place in places:
        events += advance(parts, states, Settle(ts=datetime.now(UTC), node=NODE, source="test", seq=0, place=place))
    store = Memory()
    store.write([event for event in events if isinstance(event, Run)])
    return store.rows("run")


def essence(rows: Rows) -> Rows:
    """Rows without when and how they were said."""
    return sorted(({k: v for k, v in row.items() if k not in _HOUSEKEEPING} for row in rows), key=repr)


def differences(run: Mapping[str, Any], truth: Mapping[str, Any], *, partial: bool = False, exact_best: bool = True) -> list[str]:
    """What a run says that is not true. With `partial`, not to know is no mistake."""
    may_be_null = set(truth.get("may_be_null", ()))
    wrong = []
    for name, value in truth.items():
        if name == "may_be_null":
            continue
        field = name.removesuffix("_between")
        got = run[field]
        silent = partial or field in may_be_null or (field, name) == ("train_seconds", "train_seconds_between")
        if got is None and value is not None and silent:
            continue
        if not _fits(field, got, value, between=field != name, exact_best=exact_best):
            wrong.append(f"{name}: true {value!r}, got {got!r}")
    return wrong


def _fits(field: str, got: Any, value: Any, *, between: bool, exact_best: bool) -> bool:
    if value is None or got is None:
        return got is value
    if between:
        low, high = value
        return bool(low <= got <= high)
    if field == "train_seconds":
        return bool(abs(got - value) <= 0.1 * value)
    if field == "best_map50_95" and not exact_best:
        # a console shows three digits
        return bool(abs(got - value) <= 6e-3 * value)
    if isinstance(value, float):
        return bool(abs(got - value) <= 1e-6)
    return bool(got == value)


def mismatch(runs: Rows, truths: Sequence[Mapping[str, Any]], *, partial: bool = False, exact_best: bool = True) -> list[str]:
    """The fewest differences over all ways to pair runs with truths; with `partial`, runs may be missing."""
    if len(runs) > len(truths) or (len(runs) < len(truths) and not partial):
        return [f"{len(truths)} runs are true, got {[(run['name'], run['epochs_done'], run['sources']) for run in runs]}"]
    ways = []
    for chosen in permutations(truths, len(runs)):
        pairs = zip(runs, chosen, strict=True)
        ways.append([text for run, truth in pairs for text in differences(run, truth, partial=partial, exact_best=exact_best)])
    return min(ways, key=len, default=[])
