"""A training that is read while it grows, through kills and restarts, ends with the rows of one reading afterwards."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from grow import CAPTURES, SOAK, TERMS, Away, Command, Growing, Rows, differences, read_at_once, rows_of, yolometer

from yolometer import up
from yolometer.box import Box, formats
from yolometer.feed import captures
from yolometer_agent.agent import Agent
from yolometer_agent.tail.checkpoint import Checkpoint
from yolometer_core.service.stopping import Stop
from yolometer_core.testing import ManualClock


class Killed(Exception):
    """The process is gone."""


class Kept(Checkpoint):
    """A checkpoint in memory: through JSON, without the disk."""

    def __init__(self) -> None:
        super().__init__("never-written")
        self.text: str | None = None

    def save(self, state: dict[str, Any]) -> None:
        self.text = json.dumps(state, allow_nan=False)

    def load(self) -> dict[str, Any] | None:
        return None if self.text is None else json.loads(self.text)


class Script(Stop):
    """Stands in for the pause between two rounds: there the world moves, and the process may be killed."""

    def __init__(self, move: Callable[[], None]) -> None:
        super().__init__()
        self._move = move

    def wait(self, seconds: float) -> bool:
        self._move()
        return self.wished


def watch(folder: Path, store: Rows, kept: Kept, clock: ManualClock, move: Callable[[Stop], None]) -> None:
    """One life of `up`: it ends when `move` raises Killed or sets the stop."""
    stop = Script(lambda: move(stop))
    up.run(store, TERMS, watch=[str(folder)], node="node", stop=stop, checkpoint=kept, processes=False, clock=clock.monotonic)


def grow_under_watch(grown: list[Growing], folder: Path, rng: random.Random, kill: float, lose: float = 0.0) -> tuple[Rows, int]:
    """Lives of `up` until everything is written and read; returns the store and how many there were."""
    store, kept, clock, lives = Rows(), Kept(), ManualClock(), 0

    def move(stop: Stop) -> None:
        clock.advance(rng.choice([0.0, 0.1, 0.25, 0.6, 1.1, 3.0, 7.0]))
        if rng.random() < 0.02:
            clock.step_back(rng.uniform(0, 1e5))
        left = [one for one in grown if not one.done]
        for _ in range(rng.choice([0, 1, 1, 2, 5])):
            if left:
                rng.choice(left).step()
        if rng.random() < kill:
            if rng.random() < 0.7:
                raise Killed
            stop.set()
        if not left and rng.random() < 0.3:
            clock.advance(10)
            stop.set()

    while True:
        lives += 1
        try:
            done = all(one.done for one in grown)
            watch(folder, store, kept, clock, move)
            if done:
                return store, lives
        except Killed:
            if rng.random() < lose:
                kept.text = None


@pytest.mark.parametrize("name", CAPTURES)
def test_any_cuts_and_kills_end_with_the_rows_of_one_reading(name: str, tmp_path: Path) -> None:
    """Each third seed writes all files in any order; each fourth keeps its checkpoint, the others lose it now and then."""
    size = sum(path.stat().st_size for path in (captures() / name).iterdir())
    smallest = max(400, size // 40)
    for seed in range(300 if SOAK else 3 if size > 50_000 else 5):
        rng = random.Random(seed)
        folder = tmp_path / str(seed) / "runs"
        largest = rng.choice([smallest, 5000, 1 << 20])
        grown = Growing(captures() / name, folder / name, rng, largest=largest, shuffled=seed % 3 == 2)
        store, lives = grow_under_watch([grown], folder, rng, kill=rng.choice([0.02, 0.1, 0.3]), lose=seed % 4 / 8)
        assert not differences(store.told(), read_at_once(folder)), f"seed {seed}, {lives} lives"


@pytest.mark.parametrize("seed", range(40 if SOAK else 2))
def test_all_captures_at_once_with_folders_that_appear_late(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    folder = tmp_path / "runs"
    grown = [Growing(captures() / name, folder / name, rng, largest=5000, late=True) for name in CAPTURES]
    store, lives = grow_under_watch(grown, folder, rng, kill=0.05)
    assert not differences(store.told(), read_at_once(folder)), f"seed {seed}, {lives} lives"
    assert len(store.told()["run"]) == len(CAPTURES)


class World:
    """One watched folder, and lives of `up` that last some rounds each."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.store, self.kept, self.clock = folder, Rows(), Kept(), ManualClock()

    def live(self, *steps: Callable[[], object], kill: bool = False) -> None:
        """Do one step after each few rounds, then end (or be killed)."""
        left = list(steps)
        rounds = 0

        def move(stop: Stop) -> None:
            nonlocal rounds
            rounds += 1
            self.clock.advance(3.0)
            if rounds % 4:
                return
            if left:
                left.pop(0)()
            elif kill:
                raise Killed
            else:
                stop.set()

        try:
            watch(self.folder, self.store, self.kept, self.clock, move)
        except Killed:
            assert kill

    def runs(self, *names: str) -> list[Any]:
        return [tuple(row[name] for name in names) for row in self.store.told()["run"]]


@pytest.mark.parametrize("way", ["rename", "copytruncate"])
@pytest.mark.parametrize("dead", [False, True], ids=["while-it-runs", "while-it-is-down"])
@pytest.mark.parametrize("seen", ["folder", "file"])
@pytest.mark.parametrize("share", [0.5, 0.8], ids=["before-the-first-epoch", "between-epochs"])
def test_rotation_in_the_middle_loses_and_doubles_nothing(
    way: str, dead: bool, seen: str, share: float, tmp_path: Path
) -> None:
    data = (captures() / "yolov8n-early-stop" / "train.log").read_bytes()
    log = tmp_path / "run" / "train.log"
    log.parent.mkdir()
    log.write_bytes(data)
    whole = read_at_once(log)
    log.unlink()
    cut = data.index(b"\n", round(len(data) * share)) + 1
    world = World(log if seen == "file" else log.parent)

    def rotate() -> None:
        if way == "rename":
            log.rename(log.with_name("train.log.1"))
        else:
            shutil.copyfile(log, log.with_name("train.log.1"))
            os.truncate(log, 0)

    def write(piece: bytes) -> Callable[[], object]:
        def append() -> None:
            with log.open("ab") as file:
                file.write(piece)

        return append

    if dead:
        world.live(write(data[:cut]), kill=True)
        rotate()
        world.live(write(data[cut:]))
    else:
        world.live(write(data[:cut]), rotate, write(data[cut : cut + 3]), write(data[cut + 3 :]))
    told = world.store.told()
    assert [row for row in differences(told, whole) if " sources: " not in row] == []


ROWS = "epoch,time,train/box_loss,metrics/mAP50-95(B)\n1,60,1.5,0.1\n2,120,1.4,0.2\n3,180,1.3,0.3\n"


@pytest.mark.parametrize("dead", [False, True], ids=["while-it-runs", "while-it-is-down"])
def test_a_table_that_is_deleted_and_begun_again_is_a_second_run(dead: bool, tmp_path: Path) -> None:
    table = tmp_path / "runs" / "train" / "results.csv"
    table.parent.mkdir(parents=True)
    world = World(tmp_path / "runs")
    again = ROWS.splitlines(keepends=True)[0] + "1,55,1.6,0.15\n"
    if dead:
        world.live(lambda: table.write_text(ROWS))
        table.unlink()
        world.live(lambda: table.write_text(again))
    else:
        world.live(lambda: table.write_text(ROWS), table.unlink, lambda: table.write_text(again))
    assert sorted(world.runs("epochs_done", "train_seconds")) == [(1, 55.0), (3, 180.0)]


def test_an_appended_table_is_a_second_run_and_a_resumed_one_is_not(tmp_path: Path) -> None:
    first = tmp_path / "runs" / "appended" / "results.csv"
    second = tmp_path / "runs" / "resumed" / "results.csv"
    world = World(tmp_path / "runs")
    head = ROWS.splitlines(keepends=True)[0]

    def write(path: Path, text: str) -> Callable[[], object]:
        def append() -> None:
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("a") as file:
                file.write(text)

        return append

    world.live(write(first, ROWS), write(first, "1,50,1.6,0.1\n"), kill=True)
    world.live(write(first, "2,100,1.5,0.2\n"), write(second, head + "1,60,1,0.1\n2,120,1,0.2\n3,55,1,0.3\n"), kill=True)
    world.live(write(second, "4,115,1,0.4\n"))
    assert sorted(world.runs("epochs_done", "train_seconds")) == [(2, 100.0), (3, 180.0), (4, 235.0)]


@pytest.mark.parametrize("what", ["log", "folder"])
def test_what_is_deleted_at_the_end_keeps_its_rows(what: str, tmp_path: Path) -> None:
    world = World(tmp_path / "runs")
    folder = tmp_path / "runs" / "train"
    world.live(lambda: shutil.copytree(captures() / "yolov8n-early-stop", folder))
    whole = world.store.told()
    gone = (folder / "train.log").unlink if what == "log" else (lambda: shutil.rmtree(folder))
    world.live(gone, kill=True)
    world.live()
    assert not differences(world.store.told(), whole)


def test_a_clock_that_is_set_back_changes_no_figure(tmp_path: Path) -> None:
    folder = tmp_path / "runs" / "train"
    grown = Growing(captures() / "yolov8n-early-stop", folder, random.Random(1), largest=500)
    clock, store = ManualClock(), Rows()
    agent = Agent([str(tmp_path / "runs")], formats(), node="node", now=lambda path: clock.wall())
    box = Box(store, TERMS, node="node", now=clock.wall)
    rounds = 0
    while not grown.done:
        for _ in range(5):
            grown.step()
        agent.scan()
        box.take(agent.poll()[0])
        box.settle()
        rounds += 1
        clock.advance(10.0)
        if rounds % 3 == 0:
            clock.step_back(300.0)
    agent.scan()
    box.take(agent.poll(resting=True)[0])
    box.take(agent.stands(digest=True))
    box.settle()
    assert not differences(store.told(), read_at_once(folder))
    (run,) = store.rows("run")
    assert run["started_ts"] <= run["ended_ts"]


def test_a_store_that_is_away_loses_nothing_and_the_checkpoint_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("yolometer_sinks.writer.FIRST_PAUSE_S", 0.0)
    folder = tmp_path / "runs" / "train"
    grown = Growing(captures() / "yolov8n-early-stop", folder, random.Random(1))
    grown.rest()
    store, kept, clock = Away(), Kept(), ManualClock()
    store.away = True
    beats: list[up.Beat] = []
    rounds = 0

    def move() -> None:
        nonlocal rounds
        rounds += 1
        clock.advance(1.5)
        if rounds == 5:
            assert kept.text is None
            assert [beat.problem for beat in beats] == ["The store is away."] * len(beats)
            store.away = False
        if rounds == 8:
            stop.set()

    stop = Script(move)
    up.run(
        store, TERMS, watch=[str(folder)], node="node", stop=stop, checkpoint=kept, processes=False, clock=clock.monotonic,
        beat=beats.append,
    )  # fmt: skip
    assert beats[-1].problem is None
    assert next(run.status for beat in beats for run in beat.changed) == "stopped_early"
    assert kept.text is not None
    assert not differences(store.told(), read_at_once(folder))


def test_a_torn_last_row_is_read_when_it_is_whole(tmp_path: Path) -> None:
    table = tmp_path / "runs" / "train" / "results.csv"
    table.parent.mkdir(parents=True)
    world = World(tmp_path / "runs")
    world.live(lambda: table.write_text(ROWS[:-9]), kill=True)
    assert world.runs("epochs_done") == [(2,)]
    world.live(lambda: table.write_text(ROWS))
    assert world.runs("epochs_done") == [(3,)]


def test_a_real_process_that_is_killed_again_and_again_ends_with_the_rows_of_one_replay(tmp_path: Path) -> None:
    """All captures grow under one `yolometer up`; the small table grows byte by byte."""
    seed = int(os.environ.get("YOLOMETER_SEED", "7"))
    rng = random.Random(seed)
    print(f"seed {seed}")
    folder, store, other = tmp_path / "runs", f"chdb://{tmp_path / 'grown'}", f"chdb://{tmp_path / 'replayed'}"
    grown = [Growing(captures() / name, folder / name, rng) for name in CAPTURES]
    small = tmp_path / "runs" / "small" / "results.csv"
    small.parent.mkdir()
    left = ROWS
    lives = 60 if SOAK else 4
    options = ["--store", store, "--watch", str(folder), "--no-processes", "--port", "0", "--json", "--node", "node"]
    for life in range(lives):
        last = life == lives - 1
        with Command("up", *options) as command:
            end = time.monotonic() + (4.0 if last else rng.uniform(0.5, 5.0))
            while time.monotonic() < end and command.process.poll() is None:
                pieces = rng.randrange(4)
                for one in rng.sample(grown, pieces):
                    one.step()
                with small.open("a") as file:
                    file.write(left[:1])
                left = left[1:]
                command.read(0.02)
            if last:
                for one in grown:
                    one.rest()
                small.write_text(ROWS)
                began = time.monotonic()
                assert command.stop(signal.SIGTERM) == 0, command.err
                print(f"SIGTERM took {time.monotonic() - began:.1f} s")
            else:
                assert command.stop(signal.SIGKILL) == -signal.SIGKILL, command.err
    again = yolometer("replay", folder, "--store", other, "--node", "node", "--json")
    assert again.code == 0, again.err
    asked = [yolometer("roi", "runs", "--store", url, "--format", "json").document["rows"] for url in (store, other)]
    runs = [sorted(rows, key=lambda row: str(row["run_id"])) for rows in asked]
    assert runs[0] == runs[1]
    assert len(runs[0]) == len(CAPTURES) + 1
    epochs = "SELECT * EXCEPT (ts, seq, version) FROM epochs ORDER BY run_id, attempt, epoch, take"
    assert rows_of(store, epochs) == rows_of(other, epochs)
