"""Box: everything in one process: agent, operators, store. The in-process runner."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from yolometer_agent import formats as format_parts
from yolometer_agent.agent import Agent
from yolometer_agent.formats._base import Format
from yolometer_agent.places import KnownSource
from yolometer_agent.tail.checkpoint import Checkpoint
from yolometer_core.errors import BadInput, YolometerError
from yolometer_core.events import Event, Fact, Run, Settle
from yolometer_core.parts import discover
from yolometer_sinks.stores._base import Store
from yolometer_sinks.writer import Writer
from yolometer_stream import ops
from yolometer_stream.advance import States, advance
from yolometer_stream.operator import Operator
from yolometer_stream.ops.run import Runs
from yolometer_stream.runs.rows import Terms

STATE_VERSION = 2
Told = dict[str, list[Any]]
"""Rows that were told of a place, as the operator `run` remembers them: by name, a digest (here none) and the name in parts."""


def formats() -> dict[str, Format]:
    """All log formats, by discovery."""
    return discover(format_parts, "FORMAT", Format)


def operators(terms: Terms) -> dict[str, Operator]:
    """All operators, by discovery; `terms` says what hardware and prices are told from outside."""
    found: dict[str, Operator] = discover(ops, "OPERATOR", Operator)
    return {name: replace(part, terms=terms) if isinstance(part, Runs) else part for name, part in found.items()}


def known_sources(store: Store) -> list[KnownSource]:
    """The logs and tables that a store holds with a digest."""
    known = "SELECT place, path, digest, size_bytes FROM source_states WHERE digest IS NOT NULL AND role != 'settings'"
    rows = store.query(known).rows
    return [KnownSource(*row) for row in rows]


def told_by(store: Store) -> Callable[[str], Told]:
    """What the store holds of the runs of a place: what was told before, and may have to be taken back.

    A state that was lost would leave rows behind that no longer follow from the facts.
    """
    places = {place for (place,) in store.query("SELECT DISTINCT place FROM runs").rows}

    def told(place: str) -> Told:
        if place not in places:
            return {}
        of_place = {"place": place}
        runs = store.query("SELECT run_id FROM runs WHERE place = {place:String}", of_place).rows
        epochs = store.query(
            "SELECT run_id, attempt, epoch, take FROM epochs "
            "WHERE run_id IN (SELECT run_id FROM runs WHERE place = {place:String})",
            of_place,
        ).rows
        return {"/".join(map(str, (run_id, *line))): ["", *line] for run_id, *line in (*runs, *epochs)}

    return told


class Box:
    """Drives the operators with facts and writes what they say. One thread.

    The order of side effects of `take`, `settle` and `save`:
    1. Facts go through `advance`; facts and rows are handed to the writer.
    2. `settle` tells the operators that the batch is over; changed rows follow; the writer flushes: all is stored.
    3. Only then `save` replaces the checkpoint (positions of the agent, states of the operators, in one file).
    A crash before 3 reads the same bytes again; the states are as old as the positions, so the rows are the same.
    """

    def __init__(
        self,
        store: Store,
        terms: Terms,
        *,
        node: str,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        told: Callable[[str], Told] = lambda place: {},
    ) -> None:
        self._operators = operators(terms)
        self._writer = Writer(store, reject=self._reject)
        self.refused: dict[str, str] = {}
        self._node = node
        self._now = now
        self._told = told
        self.states: States = {}
        self.touched: dict[str, None] = {}
        self.runs: dict[str, Run] = {}
        self._changed: dict[str, Run] = {}
        self.withdrawn: list[str] = []
        self.facts = 0
        self.rows = 0

    def take(self, facts: Iterable[Fact]) -> None:
        """Advance the operators by facts."""
        for fact in facts:
            self.facts += 1
            if fact.place not in self.states.setdefault("run", {}):
                self.states["run"][fact.place] = self._operators["run"].start() | {"said": self._told(fact.place)}
            self.touched[fact.place] = None
            self._keep([fact, *advance(self._operators, self.states, fact)])

    def settle(self, *, store: bool = True) -> list[Run]:
        """End the batch: let the operators say what changed, store all (unless not yet), and return the runs that changed.

        When the store is away the runs are returned by the next call that can store them.
        """
        for place in self.touched:
            settle = Settle(ts=self._now(), node=self._node, source="box", seq=0, place=place)
            said = advance(self._operators, self.states, settle)
            self._keep(said)
            self._changed |= {event.run_id: event for event in said if isinstance(event, Run)}
        self.touched.clear()
        if store:
            self._writer.flush()
        changed, self._changed = self._changed, {}
        self.withdrawn += [run_id for run_id, run in changed.items() if run.is_deleted and run_id in self.runs]
        for run_id, run in changed.items():
            if run.is_deleted:
                self.runs.pop(run_id, None)
            else:
                self.runs[run_id] = run
        return [run for run in changed.values() if not run.is_deleted]

    @property
    def waiting(self) -> int:
        """Rows that are taken and not yet stored."""
        return self._writer.held

    def flush(self) -> None:
        """Store what is waiting."""
        self._writer.flush()

    def _reject(self, event: Event, error: BadInput) -> None:
        """A row that the store can never hold must not keep the others out."""
        self.refused[event.source] = str(error)

    def _keep(self, events: list[Event]) -> None:
        rows = [event for event in events if event.is_row]
        self.rows += len(rows)
        self._writer.add(rows)


def save(checkpoint: Checkpoint, agent: Agent, box: Box) -> None:
    """Write where agent and operators are, in one file that is replaced as a whole.

    The states are text in it: the losses of a training may be NaN, which a checkpoint does not take.
    """
    state = json.dumps({"agent": agent.state(), "states": box.states}, separators=(",", ":"))
    checkpoint.save({"version": STATE_VERSION, "state": state})


def load(checkpoint: Checkpoint) -> Mapping[str, Any] | None:
    """What `save` wrote; None when there is none, or one that this version cannot read (then all is read again)."""
    saved = checkpoint.load()
    if not saved or saved.get("version") != STATE_VERSION:
        return None
    state: dict[str, Any] = json.loads(saved["state"])
    return state


@contextlib.contextmanager
def closing(store: Store) -> Any:
    """Close the store whatever happens; an error while closing never hides the first one."""
    try:
        yield store
    finally:
        with contextlib.suppress(YolometerError):
            store.close()
