"""Operator `run`: the truth about the runs of a place, folded from the facts of all its sources."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from yolometer_core.events import (
    Epoch,
    Evaluation,
    Event,
    Fact,
    Incident,
    Progress,
    ResultRow,
    Run,
    Setting,
    Settle,
    SourceState,
    Work,
)
from yolometer_core.tokens import TOKENS_PER_MTOK
from yolometer_stream.operator import State
from yolometer_stream.runs import facts
from yolometer_stream.runs.account import Line
from yolometer_stream.runs.resolve import trainings_of
from yolometer_stream.runs.rows import Rows, Terms, rows_of
from yolometer_stream.runs.tail import Tail, tail_of


class Place(dict[str, Any]):
    """The state of a place. Its tail is no part of it: without it all is worked out anew, with the same result."""

    tail: Tail | None = None


@dataclass(frozen=True)
class Runs:
    """Takes facts and remembers them; at Settle says what changed in the rows of the place.

    The rows are a pure function of the facts, so their order, their cutting into batches and repeats do not
    matter. A row that no longer follows from the facts (two halves turned out to be one run) is taken back.
    """

    terms: Terms = field(default_factory=Terms)
    takes: tuple[type[Event], ...] = (Setting, Progress, Evaluation, ResultRow, Incident, SourceState, Settle)
    gives: tuple[type[Event], ...] = (Run, Epoch, Work)

    def start(self) -> State:
        return Place(facts.start())

    def step(self, state: State, event: Event) -> tuple[State, list[Event]]:
        place = state if isinstance(state, Place) else Place(state)
        if isinstance(event, Fact):
            if place.tail is not None and not place.tail.goes_on(place, event):
                place.tail = None
            facts.remember(place, event)
            return place, []
        if not place["touched"] or not isinstance(event, Settle):
            return place, []
        place["touched"] = False
        return place, self._settle(place, event)

    def _settle(self, state: Place, settle: Settle) -> list[Event]:
        version = sum(max(source["seq"], 0) + max(source["state_seq"], 0) for source in state["sources"].values())
        stamp = max((_latest(source) for source in state["sources"].values()), default=0.0)
        node = next((source["node"] for source in state["sources"].values() if source["node"]), settle.node)
        ts = datetime.fromtimestamp(stamp, settle.ts.tzinfo) if stamp else settle.ts
        envelope = {"ts": ts, "node": node, "source": "run", "seq": version, "version": version}
        said = self._go_on(state, settle.place, envelope)
        return self._anew(state, settle.place, envelope) if said is None else said

    def _go_on(self, state: Place, place: str, envelope: dict[str, Any]) -> list[Event] | None:
        """What changed, from the last facts alone; None where they are not enough."""
        tail = state.tail
        training = tail.now(state) if tail else None
        if tail is None or training is None:
            return None
        rows = rows_of(place, training, envelope, self.terms, tail.closed)
        if not tail.closed.holds(rows.books.by):
            return None
        said: list[Event] = []
        now: dict[str, list[Any]] = {}
        _say(state, rows, said, now)
        said.extend(_gone(key, state["said"].pop(key), envelope, place) for key in tail.said if key not in now)
        state["said"].update(now)
        state.tail = tail if tail.close(state, rows, now) else None
        return said

    def _anew(self, state: Place, place: str, envelope: dict[str, Any]) -> list[Event]:
        """What changed, from all facts."""
        said: list[Event] = []
        now: dict[str, list[Any]] = {}
        found = [rows_of(place, training, envelope, self.terms) for training in trainings_of(state)]
        for rows in found:
            _say(state, rows, said, now)
        said.extend(_gone(key, memory, envelope, place) for key, memory in state["said"].items() if key not in now)
        state["said"] = now
        state.tail = tail_of(state, found, now)
        return said


def _say(state: State, rows: Rows, said: list[Event], now: dict[str, list[Any]]) -> None:
    """Say the rows that are not what was said last; note in `now` what holds."""
    run = rows.run
    mark = _digest(run)
    now[run.run_id] = [mark]
    if state["said"].get(run.run_id, [None])[0] != mark:
        said.append(run)
    for line in rows.lines:
        key = f"{run.run_id}/{line.attempt}/{line.epoch}/{line.take}"
        mark = rows.mark(line)
        now[key] = [mark, line.attempt, line.epoch, line.take]
        if state["said"].get(key, [None])[0] != mark:
            said.append(rows.epoch(line))
            said.extend(_work(state, key, run.run_id, line, rows.envelope))


def _latest(source: State) -> float:
    stamps = [float(session["last_ts"]) for session in source["sessions"].values()]
    return max([*stamps, float(source["state_ts"] or 0.0)])


def _digest(run: Run) -> str:
    """What the row says, apart from when it was said."""
    said = {name: value for name, value in run.__dict__.items() if name not in ("ts", "seq", "version")}
    return hashlib.blake2b(repr(said).encode(), digest_size=8).hexdigest()


def _gone(key: str, memory: list[Any], envelope: dict[str, Any], place: str) -> Event:
    """A row that was said and no longer holds, taken back."""
    _, *epoch = memory
    run_id = key.split("/", maxsplit=1)[0]
    if not epoch:
        return Run(**envelope, run_id=run_id, place=place, is_deleted=True)
    attempt, number, take = epoch
    return Epoch(**envelope, run_id=run_id, attempt=attempt, epoch=number, take=take, kept=False, complete=False, is_deleted=True)


def _work(state: State, key: str, run_id: str, line: Line, envelope: dict[str, Any]) -> list[Event]:
    """Tokens that a try consumed since the last time it was told. Amounts once told are never told again."""
    if line.tokens is None or line.ts is None:
        return []
    told, last_stamp = state["work"].get(key, [0.0, None])
    amount = line.tokens - told
    if amount <= 0:
        return []
    state["work"][key] = [line.tokens, line.ts]
    done = int((line.progress or {}).get("iterations_done") or 0)
    work = Work(
        node=envelope["node"],
        source=envelope["source"],
        ts=datetime.fromtimestamp(line.ts, envelope["ts"].tzinfo),
        seq=(line.epoch * 1024 + line.take) * 2**32 + done,
        run_id=run_id,
        attempt=line.attempt,
        duration_s=max(line.ts - last_stamp, 0.0) if last_stamp is not None else line.train_s or 0.0,
        amount_mtok=amount / TOKENS_PER_MTOK,
    )
    return [work]


OPERATOR = Runs()
