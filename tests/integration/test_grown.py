"""A training that is read while it grows, through kills and restarts, ends with the rows of one reading afterwards."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from grow import CAPTURES, SOAK, TERMS, Growing, Rows, differences, read_at_once
from yolometer import up
from yolometer.feed import captures
from yolometer_agent.tail.checkpoint import Checkpoint
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


class Script(up.Stop):
    """Stands in for the pause between two rounds: there the world moves, and the process may be killed."""

    def __init__(self, move: Callable[[], None]) -> None:
        super().__init__()
        self._move = move

    def wait(self, seconds: float) -> bool:
        self._move()
        return self.wished


def watch(folder: Path, store: Rows, kept: Kept, clock: ManualClock, move: Callable[[up.Stop], None]) -> None:
    """One life of `up`: it ends when `move` raises Killed or sets the stop."""
    stop = Script(lambda: move(stop))
    up.run(store, TERMS, watch=[str(folder)], node="node", stop=stop, checkpoint=kept, processes=False, clock=clock.monotonic)


def grow_under_watch(grown: list[Growing], folder: Path, rng: random.Random, kill: float, lose: float = 0.0) -> tuple[Rows, int]:
    """Lives of `up` until everything is written and read; returns the store and how many there were."""
    store, kept, clock, lives = Rows(), Kept(), ManualClock(), 0

    def move(stop: up.Stop) -> None:
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
    seeds = range(400 if SOAK else 40)
    for seed in seeds:
        rng = random.Random(seed)
        folder = tmp_path / str(seed) / "runs"
        grown = Growing(captures() / name, folder / name, rng, largest=rng.choice([600, 5000, 1 << 20]), shuffled=seed % 3 == 2)
        store, lives = grow_under_watch([grown], folder, rng, kill=rng.choice([0.02, 0.1, 0.3]), lose=seed % 4 / 10)
        assert not differences(store.told(), read_at_once(folder)), f"seed {seed}, {lives} lives"
