"""Up: one box, live. Watches files and processes, keeps the store up to date, goes on where it stopped."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from yolometer.box import Box, formats, known_sources, load, save, told_by
from yolometer_agent.agent import Agent
from yolometer_agent.rhythm import ScanRhythm
from yolometer_agent.tail.checkpoint import Checkpoint
from yolometer_core.errors import Unavailable
from yolometer_core.events import Run
from yolometer_core.service.stopping import Stop
from yolometer_sinks.stores._base import Store
from yolometer_stream.runs.rows import Terms

POLL_S = 0.5
SETTLE_S = 1.0
STORE_S = 10.0
MOST_WAITING = 50_000


@dataclass
class Beat:
    """What one round of `up` did, for those who show it."""

    runs: dict[str, Run]
    changed: list[Run]
    sources: int
    rows: int
    withdrawn: list[str]
    problem: str | None


def run(
    store: Store,
    terms: Terms,
    *,
    watch: Sequence[str],
    node: str,
    stop: Stop,
    checkpoint: Checkpoint | None,
    processes: bool = True,
    exclude: Sequence[str] = (),
    recent_s: float = 30.0,
    seconds: float | None = None,
    beat: Callable[[Beat], None] = lambda seen: None,
    warn: Callable[[str], None] = lambda problem: None,
    clock: Callable[[], float] = time.monotonic,
) -> Box:
    """Watch until `stop` or for `seconds`. On the way out everything read is stored and the checkpoint is written.

    A store that is away for a while is waited for: facts stay in the files, the checkpoint does not move.
    `warn` is told in one sentence of a checkpoint that is damaged.
    """
    saved = load(checkpoint) if checkpoint else None
    if checkpoint and checkpoint.problem:
        warn(checkpoint.problem)
    state, known = saved["agent"] if saved else None, known_sources(store)
    agent = Agent(watch, formats(), node=node, state=state, known=known, processes=processes, exclude=exclude, recent_s=recent_s)
    box = Box(store, terms, node=node, told=told_by(store))
    if saved:
        box.states = dict(saved["states"])
    loop = _Loop(agent, box, checkpoint, beat, clock)
    end = None if seconds is None else clock() + seconds
    try:
        while not stop.wished and (end is None or clock() < end):
            loop.round()
            stop.wait(0.0 if loop.busy else POLL_S)
        loop.finish()
    finally:
        agent.close()
    return box


class _Loop:
    """The rhythm of `up`: poll often, settle each second, store each ten, scan now and then, save when something changed.

    A write to the store costs the same for one row and for a thousand, so rows wait for it a little.
    """

    def __init__(
        self, agent: Agent, box: Box, checkpoint: Checkpoint | None, beat: Callable[[Beat], None], clock: Callable[[], float]
    ) -> None:
        self._agent, self._box, self._checkpoint, self._beat, self._clock = agent, box, checkpoint, beat, clock
        self._scans = ScanRhythm(clock)
        self._next_settle = self._next_store = clock()
        self._dirty = False
        self._next_save = clock()
        self._problem: str | None = None
        self.busy = False

    def round(self) -> None:
        """One round. Steps back of the clock only make it wait once more."""
        now = self._clock()
        scanning = self._scans.is_due(now)
        if scanning:
            self._agent.scan()
            self._scans.looked(now)
        if self._problem is None or self._box.waiting < MOST_WAITING:
            facts, self.busy = self._agent.poll()
            self._take(facts)
        else:
            self.busy = False  # the store is away and much waits for it: the rest stays in the files
        if scanning:
            self._take(self._agent.stands(digest=False))
        if now >= self._next_settle or self._next_settle - now > SETTLE_S or self._box.waiting > MOST_WAITING:
            self._next_settle = now + SETTLE_S
            self._settle()

    def finish(self) -> None:
        """Look once more, read what is there, store it, save."""
        self._agent.scan()
        facts, more = self._agent.poll(resting=True)
        self._take(facts)
        deadline = self._clock() + 5.0
        while more and self._clock() < deadline:
            facts, more = self._agent.poll()
            self._take(facts)
        self._take(self._agent.stands(digest=True))
        self._settle(last=True)

    def _take(self, facts: list[Any]) -> None:
        if facts:
            self._dirty = True
            self._box.take(facts)

    def _settle(self, last: bool = False) -> None:
        changed: list[Run] = []
        now = self._clock()
        store = last or now >= self._next_store or self._next_store - now > STORE_S or self._box.waiting > MOST_WAITING
        try:
            changed = self._box.settle(store=store)
            if store:
                self._next_store = now + STORE_S
            self._problem = next(iter(self._box.refused.values()), None)
            self._box.refused.clear()
            if store and self._checkpoint and self._dirty and (last or self._clock() >= self._next_save):
                self._save(self._checkpoint)
        except Unavailable as error:
            self._problem = str(error)
            if last:
                raise
        withdrawn, self._box.withdrawn = self._box.withdrawn, []
        self._beat(Beat(self._box.runs, changed, self._agent.sources, self._box.rows, withdrawn, self._problem))

    def _save(self, checkpoint: Checkpoint) -> None:
        """Save, and not so often that saving becomes the work."""
        began = self._clock()
        save(checkpoint, self._agent, self._box)
        self._dirty = False
        self._next_save = self._clock() + max(SETTLE_S, 20 * (self._clock() - began))


def checkpoint_of(store_url: str, state: Path | None) -> Checkpoint | None:
    """Where `up` remembers how far it got: beside an embedded store, else in the state folder of the user."""
    if state is not None:
        return Checkpoint(state)
    folder = folder_of_store(store_url)
    if folder:
        return Checkpoint(folder / "yolometer" / "up.json")
    if store_url.startswith("chdb:"):
        return None
    return Checkpoint(Path.home() / ".local" / "state" / "yolometer" / "up.json")


def own_files(store_url: str) -> list[str]:
    """Patterns of the files of an embedded store: they are never logs, also where a watched folder holds them."""
    folder = folder_of_store(store_url)
    return [str(folder), f"{folder}/*"] if folder else []


def folder_of_store(store_url: str) -> Path | None:
    """The folder of an embedded store; None for one in memory and for a server."""
    scheme, _, rest = store_url.partition("://")
    path = rest.partition("?")[0]
    return Path(path) if scheme == "chdb" and path.startswith("/") else None
