"""Replay of real training directories: what comes out is true, whatever is missing, moved, renamed or cut.

The directories are those of the folder named by env YOLOMETER_FIXTURES (default: the project's own copy). A directory
with an `expect.yaml` is compared with the truth in it; the others must keep the laws that hold for every directory.
"""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Iterator
from functools import cache
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import yaml
from _replayed import CONTRACT, NODE, STATUSES, Memory, Rows, essence, facts_of, mismatch, only, replayed, runs_from

from yolometer import show
from yolometer.box import formats
from yolometer.commands.replay import runs_of
from yolometer.replay import Replayed, replay
from yolometer_agent.agent import Agent
from yolometer_agent.tail.writers import Writers
from yolometer_core.events import Fact
from yolometer_sinks.open_store import open_store
from yolometer_sinks.stores._base import Store
from yolometer_stream.runs.rows import Terms

OWN = Path(__file__).parent / "cases" / "replay"
ROOT = Path(os.environ.get("YOLOMETER_FIXTURES", OWN)).resolve()
FOLDERS = sorted(path for path in ROOT.iterdir() if path.is_dir()) if ROOT.is_dir() else []
TOLD = [folder for folder in FOLDERS if (folder / "expect.yaml").exists()]
NOT_DATA = {"expect.yaml", "meta.json"}

every_folder = pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: path.name)
every_told = pytest.mark.parametrize("folder", TOLD, ids=lambda path: path.name)


@cache
def truth_of(folder: Path) -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((folder / "expect.yaml").read_text())
    return loaded


def true_runs(folder: Path) -> Rows:
    runs: Rows = truth_of(folder)["runs"]
    return runs


def data_of(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.is_file() and path.name not in NOT_DATA)


def copied(folder: Path, to: Path) -> Path:
    """The data of a folder somewhere else."""
    to.mkdir(parents=True)
    for name in data_of(folder):
        shutil.copy2(folder / name, to / name)
    return to


@cache
def read(folder: Path) -> dict[str, list[Fact]]:
    facts: dict[str, list[Fact]] = facts_of(folder)
    return facts


@pytest.fixture(scope="module")
def stored() -> Iterator[tuple[Store, Replayed]]:
    """Every folder at once, in the embedded ClickHouse."""
    store = open_store("chdb://memory")
    store.migrate()
    yield store, replay([str(folder) for folder in FOLDERS], store, Terms(), node=NODE)
    store.close()


def test_there_are_fixtures() -> None:
    assert FOLDERS, f"{ROOT} holds no training directories; set YOLOMETER_FIXTURES to a folder that does"


def test_stored_runs_are_the_true_ones(stored: tuple[Store, Replayed]) -> None:
    store, _ = stored
    columns = [name for name in CONTRACT if name != "run_id"]
    table = store.query(f"SELECT place, {', '.join(columns)} FROM runs").dicts()
    wrong = {}
    for folder in TOLD:
        mine = [row for row in table if row["place"] == f"{NODE}:{folder}"]
        told = [*CONTRACT, "may_be_null"]
        truths = [{k: v for k, v in run.items() if k in told or k.endswith("_between")} for run in true_runs(folder)]
        text = mismatch(mine, truths)
        if text:
            wrong[folder.name] = text
    assert not wrong


def test_json_keeps_the_contract(stored: tuple[Store, Replayed]) -> None:
    store, found = stored
    answer = json.loads(show.document({"runs": runs_of(store, found), "skipped": found.skipped}))
    assert answer["runs"]
    for run in answer["runs"]:
        assert set(run) == set(CONTRACT)
        strange = {name: run[name] for name, types in CONTRACT.items() if type(run[name]) not in types}
        assert not strange
        assert run["status"] in STATUSES
        assert all(isinstance(source, str) for source in run["sources"])
        assert all(run[name] is None or run[name] >= 0 for name in ("tokens_mtok", "wasted_mtok", "train_seconds", "images"))
    assert all(list(item) == ["path", "reason"] for item in answer["skipped"])


def test_a_second_replay_changes_nothing_in_the_store(stored: tuple[Store, Replayed]) -> None:
    store, _ = stored
    some = FOLDERS[:: max(len(FOLDERS) // 4, 1)]
    asked = "SELECT * FROM runs ORDER BY run_id", "SELECT * FROM epochs ORDER BY run_id, attempt, epoch, take"
    before = [repr(store.query(text).rows) for text in asked]
    replay([str(folder) for folder in some], store, Terms(), node=NODE)
    assert [repr(store.query(text).rows) for text in asked] == before


@every_told
def test_runs_are_the_true_ones(folder: Path) -> None:
    runs = replayed(folder)
    assert not mismatch(runs, true_runs(folder))
    assert {run["place"] for run in runs} == {f"{NODE}:{folder}"}


@every_folder
def test_a_second_replay_changes_nothing(folder: Path) -> None:
    store = Memory()
    replayed(folder, store=store)
    before = [essence(store.rows(table)) for table in ("run", "epoch")]
    replayed(folder, store=store)
    assert repr([essence(store.rows(table)) for table in ("run", "epoch")]) == repr(before)


@every_folder
def test_what_a_file_less_still_says_is_true(folder: Path) -> None:
    """Every subset of the files gives each field right, or not at all."""
    said = read(folder)
    told = folder in TOLD
    wrong = {}
    for count in range(1, len(said) + 1):
        for names in combinations(sorted(said), count):
            runs = runs_from(fact for name in names for fact in said[name])
            if told:
                text = mismatch(runs, _truth_without(folder, names), partial=True, exact_best=False)
                if text:
                    wrong[names] = text
    assert not wrong


def _truth_without(folder: Path, names: tuple[str, ...]) -> Rows:
    """What is true as far as these files can know: the end of a run whose resume is in none of them is out of sight."""
    for part in truth_of(folder).get("partial", ()):
        if not set(part["missing"]) & set(names):
            rows: Rows = part["runs"]
            return rows
    return true_runs(folder)


@every_folder
def test_the_order_of_sources_does_not_matter(folder: Path) -> None:
    said = read(folder)
    at_once = essence(runs_from(fact for name in sorted(said) for fact in said[name]))
    backwards = essence(runs_from(fact for name in sorted(said, reverse=True) for fact in said[name]))
    assert backwards == at_once


@every_folder
def test_a_copy_counts_once(folder: Path, tmp_path: Path) -> None:
    one, other = copied(folder, tmp_path / "first"), copied(folder, tmp_path / "other" / "deeper")
    alone = replayed(one)
    if not any(run["epochs_done"] or run["images"] for run in alone):
        pytest.skip("trainings that never began may be alike and yet be two")
    store = Memory()
    assert essence(replayed(one, other, store=store)) == essence(alone)
    assert essence(replayed(other, store=store)) == essence(alone)


@every_folder
def test_names_of_files_say_nothing(folder: Path, tmp_path: Path) -> None:
    """Formats are recognised by content. Names only order the sources, so the new ones keep the order."""
    plain, renamed = copied(folder, tmp_path / "plain"), tmp_path / "renamed"
    renamed.mkdir()
    kinds = {".yaml": "cfg{}.yml", ".csv": "table{}.dat", ".txt": "table{}.dat"}
    for number, name in enumerate(sorted(data_of(folder), key=_in_order)):
        new = kinds.get(Path(name).suffix, "log{}.txt").format(number)
        shutil.copy2(plain / name, renamed / new)
    dropped = {"run_id", "place", "sources"}
    expected = [{k: v for k, v in row.items() if k not in dropped} for row in replayed(plain)]
    assert essence([{k: v for k, v in row.items() if k not in dropped} for row in replayed(renamed)]) == essence(expected)


def _in_order(name: str) -> tuple[str, int, str]:
    stem = Path(name).stem.partition(".")[0]
    digits = stem.lstrip("abcdefghijklmnopqrstuvwxyz_-")
    return stem.rstrip("0123456789"), int(digits or 0), name


@every_folder
def test_growth_in_any_pieces_gives_the_same(folder: Path, tmp_path: Path) -> None:
    """Files that grow under the agent, cut anywhere, say in the end what they say when they are read at once."""
    source, home = copied(folder, tmp_path / "source"), tmp_path / "home"
    home.mkdir()
    picked = random.Random(folder.name)  # the same cuts every time
    left = {name: (source / name).read_bytes() for name in data_of(folder)}
    quiet = Writers({}, True, (), Path("/proc"))
    agent = Agent([str(home)], formats(), node=NODE, live=True, keep_copies=True, look=lambda: quiet)
    facts: list[Fact] = []
    while left:
        name = picked.choice(sorted(left))
        document = name.endswith((".yaml", ".yml"))
        whole = len(left[name])
        size = whole if document else picked.choice((1, 37, 4096, picked.randint(1, max(whole, 1)), whole))
        with (home / name).open("ab") as file:
            file.write(left[name][:size])
        left[name] = left[name][size:]
        if not left[name]:
            del left[name]
        agent.scan()
        facts += _drained(agent)
    facts += agent.stands(digest=True)
    agent.close()
    assert essence(runs_from(facts)) == essence(runs_from(fact for found in facts_of(home).values() for fact in found))


def _drained(agent: Agent) -> list[Fact]:
    facts: list[Fact] = []
    more = True
    while more:
        found, more = agent.poll()
        facts += found
    return facts


def test_a_log_byte_by_byte(tmp_path: Path) -> None:
    """The hardest cut there is, once."""
    text = (OWN / "ultralytics-8.3.180-segment" / "train.log").read_bytes()
    log = tmp_path / "train.log"
    log.touch()
    agent = Agent([str(tmp_path)], formats(), node=NODE, keep_copies=True, look=lambda: Writers({}, True, (), Path("/proc")))
    facts: list[Fact] = []
    with log.open("ab", buffering=0) as file:
        agent.scan()
        for at in range(len(text)):
            file.write(text[at : at + 1])
            if at % 3 == 0:
                facts += _drained(agent)
    facts += _drained(agent)
    facts += agent.stands(digest=True)
    agent.close()
    assert essence(runs_from(facts)) == essence(runs_from(fact for found in facts_of(tmp_path).values() for fact in found))


def test_tables_that_begin_alike_are_two_runs(tmp_path: Path) -> None:
    """Identity is never the head alone (CASES A6): the first 2 KiB are the same, the rest differs."""
    lines = (OWN / "ultralytics-8.4.190-detect-120ep" / "results.csv").read_text().splitlines(keepends=True)
    same = next(count for count in range(1, len(lines)) if sum(map(len, lines[:count])) >= 2048)
    for name, last in (("a", lines[same : same + 3]), ("b", [line.replace("0.", "1.", 2) for line in lines[same : same + 5]])):
        (tmp_path / name).mkdir()
        (tmp_path / name / "results.csv").write_text("".join(lines[:same] + last))
    assert (tmp_path / "a/results.csv").read_bytes()[:2048] == (tmp_path / "b/results.csv").read_bytes()[:2048]
    assert sorted(run["epochs_done"] for run in replayed(tmp_path)) == [same + 2, same + 4]


def test_a_table_of_120_bytes_is_read(tmp_path: Path) -> None:
    rows = "1,2.5,0.71,0.5,0.69\n2,5.1,0.65,0.625,0.66\n"
    (tmp_path / "results.csv").write_text("epoch,time,train/loss,metrics/accuracy_top1,val/loss\n" + rows)
    run = only(replayed(tmp_path))
    assert (run["epochs_done"], run["train_seconds"]) == (2, 5.1)
