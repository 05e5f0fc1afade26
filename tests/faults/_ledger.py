"""The ledger: what must be in the store, known from the files, the spools and the topics themselves; and the comparison."""

from __future__ import annotations

import json
import random
import shutil
from collections import Counter, deque
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Any

from _site import PARTITIONS, Site
from grow import TERMS, WHEN_SEEN, Growing

from yolometer.box import operators
from yolometer.feed import captures
from yolometer.rebuild import KINDS
from yolometer.replay import replay
from yolometer_core import wire
from yolometer_core.events import SourceState
from yolometer_core.gpu import Gpu
from yolometer_core.service.limits import DeadLimit
from yolometer_sinks.open_store import open_store
from yolometer_sinks.stores._base import Store
from yolometer_stream.journal import Journal
from yolometer_stream.partitions import Partitions, Taken

FACTS = tuple(kind.table for kind in KINDS if kind is not SourceState)
ROWS = ("run", "epoch")
NOT_COMPARED = (*WHEN_SEEN, "schema_version")
NUMBER = (1 << 32) - 1


class Writers:
    """Trainings that write their logs as far as they are told; the same seed writes the same."""

    def __init__(self, runs: Path, seed: int, copies: int = 1, largest: int = 1500) -> None:
        self._chance = random.Random(seed)
        self._all: list[Growing] = []
        self._left = 0
        self.written = 0
        for copy in range(copies):
            for source in sorted(path for path in captures().iterdir() if path.is_dir()):
                target = runs / (source.name if not copy else f"{source.name}-{copy}")
                self._all.append(Growing(source, target, random.Random(self._chance.random()), largest=largest))
        self.total = sum(len(data) for each in self._all for data in each._left.values())

    def write(self, share: float) -> None:
        """Write until this share of everything is there."""
        while self.written < share * self.total and (open_ := [each for each in self._all if not each.done]):
            self.written += self._chance.choice(open_).step()


def place(runs: Path, name: str, capture: str) -> None:
    """A whole training at once."""
    shutil.copytree(captures() / capture, runs / name)


def check(site: Site, *, whole_topics: bool = True) -> Counter[str]:
    """Everything that was written, numbered and sampled is in the store, once. The services must be drained.

    `whole_topics`: no topic was lost meanwhile, so that they can be read as a second ledger. Returns counts to show.
    """
    with closing(_opened(site, "yolometer")) as store:
        store.command("CREATE DATABASE IF NOT EXISTS clean")
        with closing(_opened(site, "clean")) as clean:
            found = _facts(site, store, clean)
            clean.command("DROP DATABASE clean")
        found += _numbers(site, store, whole_topics=whole_topics)
    if whole_topics:
        found["states"] = _states(site)
    return found


def _opened(site: Site, database: str) -> Store:
    return open_store(site.fleet.clickhouse.url(database))


def _facts(site: Site, store: Store, clean: Store) -> Counter[str]:
    clean.migrate()
    replay([str(site.runs)], clean, TERMS, node=site.node)
    counts: Counter[str] = Counter()
    for table in FACTS:
        mine, wanted = (dict(_ids(each, table)) for each in (store, clean))
        more, less = mine.keys() - wanted.keys(), wanted.keys() - mine.keys()
        too_many = [] if not more else _said(store, table, more)
        assert not less and not too_many, f"{table}, too many: {too_many[:4]}\nmissing: {_said(clean, table, less)[:4]}"
        assert set(mine.values()) <= {1}, f"{table}: twice"
        counts[table] = len(mine)
    for table in (*(table for table in FACTS if table != "progress"), *ROWS):
        mine_rows, wanted_rows = (_rows(each, table) for each in (store, clean))
        assert mine_rows == wanted_rows, f"{table}: {_differ(mine_rows, wanted_rows)}"
        counts[table] = len(mine_rows)
    assert counts["run"] and counts["epoch"]
    return counts


def _ids(store: Store, table: str) -> list[tuple[str, int]]:
    rows = store.query(f"SELECT event_id, count() FROM `{table}` FINAL GROUP BY event_id").rows
    return [(str(name), int(count)) for name, count in rows]


def _said(store: Store, table: str, ids: Iterable[str]) -> list[Any]:
    """These rows, but for progress without epochs: how often that is said depends on when the agent looked."""
    rows = store.query(f"SELECT * FROM `{table}` FINAL WHERE event_id IN {{ids:Array(String)}}", {"ids": list(ids)}).dicts()
    return [row for row in rows if table != "progress" or row["epoch"] is not None]


def _rows(store: Store, table: str) -> set[str]:
    """Rows as they stand, apart from when they were seen."""
    sql = "SELECT name FROM system.columns WHERE database = currentDatabase() AND table = {table:String} AND default_kind = ''"
    columns = {name for (name,) in store.query(sql, {"table": table}).rows}
    kept = sorted(columns - set(NOT_COMPARED))
    where = "WHERE is_deleted = 0" if "is_deleted" in columns else ""
    quoted = ", ".join(f"`{name}`" for name in kept)
    return {repr(row) for row in store.query(f"SELECT {quoted} FROM `{table}` FINAL {where}").rows}


def _differ(mine: Any, wanted: Any) -> str:
    more, less = sorted(set(mine) - set(wanted)), sorted(set(wanted) - set(mine))
    return f"{len(more)} too many {more[:3]}, {len(less)} missing {less[:3]}"


def _numbers(site: Site, store: Store, *, whole_topics: bool) -> Counter[str]:
    """Each number of each lane arrived, each sample of each message is a row, nothing was dropped."""
    counts: Counter[str] = Counter()
    lost = {(lane, seq + at) for lane, seq, last in store.query("SELECT source, seq, last_seq FROM losses").rows
            for at in range(last - seq + 1)}  # fmt: skip
    for lane in ("fact", "gpu"):
        last = site.numbered(lane)
        sql = "SELECT seq, count() FROM message FINAL WHERE source = {lane:String} GROUP BY seq"
        rows = store.query(sql, {"lane": lane}).rows
        assert {count for _, count in rows} <= {1}
        arrived = {seq for seq, _ in rows} | {seq for of, seq in lost if of == lane}
        assert arrived == {(last & ~NUMBER) + number + 1 for number in range(last & NUMBER)}, lane
        counts[f"{lane} messages"] = len(arrived)
    samples = int(store.query("SELECT count() FROM gpus").rows[0][0])
    assert samples == int(store.query("SELECT sum(rows) FROM messages WHERE source = 'gpu'").rows[0][0])
    if whole_topics:
        assert set(store.query("SELECT gpu_uuid, toUnixTimestamp64Milli(ts) FROM gpus").rows) == _samples(site)
    counts["samples"], counts["lost"] = samples, len(lost)
    return counts


def _samples(site: Site) -> set[tuple[str, int]]:
    found = set()
    for *_, value in site.fleet.records("gpu"):
        try:
            events = wire.read(value).events
        except wire.BadWire:
            continue
        for event in (each for each in events if isinstance(each, Gpu) and each.node == site.node):
            begin = round(event.ts.timestamp() * 1000)
            found |= {(uuid, begin + offset) for uuid in event.gpu_uuid for offset in event.offsets_ms}
    return found


def _states(site: Site) -> int:
    """What the workers remember is what one process remembers that reads the same topics; returns how many states."""
    parts = operators(TERMS)
    work = Partitions(parts, DeadLimit(1.0, max_consecutive=10**9))
    work.begin([0], 1)
    waiting = deque((name, key, value) for name in ("fact", "gpu", "rate")
                    for _, _, key, value in site.fleet.records(name))  # fmt: skip
    for name, key, value in waiting:
        work.take(Taken(name, 0, 0, 0, key, value))
    work.save()
    journals = [Journal(parts) for _ in range(PARTITIONS)]
    for partition, _, raw_key, value in site.fleet.records(site.fleet.changelog.removeprefix(site.fleet.prefix)):
        assert raw_key is not None
        journals[partition].apply(raw_key, value)
    found: dict[tuple[str, str], Any] = {}
    for journal in journals:
        journal.begin(10**6)
        for known in journal._records:
            assert known not in found, "a name lies in one partition"
            found[known] = _plain(journal.bundle(known))
    wanted = {known: _plain(work.journal(0).bundle(known)) for known in work.journal(0)._records}
    assert found.keys() == wanted.keys()
    for known, state in wanted.items():
        assert found[known] == state, known
    return len(found)


def _plain(bundle: Any) -> Any:
    """A state as the journal writes it, NaN as text, without the counts of what came twice."""
    found = json.loads(json.dumps(bundle), parse_constant=str)
    for ring in found.get("rate", {}).values():
        ring["ring"].pop("duplicates", None)
    return found


def audit(site: Site) -> tuple[int, dict[str, Any]]:
    """The exit code of `yolometer audit` and its checks by name."""
    done = site.fleet.command("audit", "--config", str(site.fleet.settings("sink")), "--json", check=False)
    assert done.returncode in (0, 1) and done.stdout, done.stderr
    return done.returncode, {each["check"]: each for each in json.loads(done.stdout)["checks"]}


__all__ = ["Writers", "audit", "check", "place"]
