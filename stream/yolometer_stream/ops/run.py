"""Operator `run`: the truth about the runs of a place, folded from the facts of all its sources."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from yolometer_core.events import Epoch, Event, Evaluation, Fact, Incident, Progress, ResultRow, Run, Setting, Settle, SourceState, Work
from yolometer_stream.operator import State
from yolometer_stream.ops import _facts
from yolometer_stream.ops._resolve import trainings_of
from yolometer_stream.ops._rows import Terms, rows_of


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
        return _facts.start()

    def step(self, state: State, event: Event) -> tuple[State, list[Event]]:
        if isinstance(event, Fact):
            _facts.remember(state, event)
            return state, []
        if not state["touched"] or not isinstance(event, Settle):
            return state, []
        state["touched"] = False
        return state, self._settle(state, event)

    def _settle(self, state: State, settle: Settle) -> list[Event]:
        version = sum(max(source["seq"], 0) + max(source["state_seq"], 0) for source in state["sources"].values())
        stamp = max((_latest(source) for source in state["sources"].values()), default=0.0)
        node = next((source["node"] for source in state["sources"].values() if source["node"]), settle.node)
        ts = datetime.fromtimestamp(stamp, settle.ts.tzinfo) if stamp else settle.ts
        envelope = {"ts": ts, "node": node, "source": "run", "seq": version, "version": version}
        said: list[Event] = []
        now: dict[str, list[Any]] = {}
        for training in trainings_of(state):
            run, epochs = rows_of(settle.place, training, envelope, self.terms)
            for row in (run, *epochs):
                digest = _digest(row)
                now[row.event_id] = [digest, row.run_id, *([row.attempt, row.epoch, row.take] if isinstance(row, Epoch) else [])]
                if state["said"].get(row.event_id, [None])[0] != digest:
                    said.append(row)
            said.extend(_work(state, run, epochs, envelope))
        said.extend(_gone(memory, envelope, settle.place) for event_id, memory in state["said"].items() if event_id not in now)
        state["said"] = now
        return said


def _latest(source: State) -> float:
    stamps = [session["last_ts"] for session in source["sessions"].values()]
    return max([*stamps, source["state_ts"] or 0.0])


def _digest(row: Run | Epoch) -> str:
    """What the row says, apart from when it was said."""
    said = row.model_dump(exclude={"ts", "seq", "version", "schema_version"})
    return hashlib.blake2b(repr(said).encode(), digest_size=8).hexdigest()


def _gone(memory: list[Any], envelope: dict[str, Any], place: str) -> Event:
    """A row that was said and no longer holds, taken back."""
    _, run_id, *epoch = memory
    if not epoch:
        return Run(**envelope, run_id=run_id, place=place, is_deleted=True)
    attempt, number, take = epoch
    return Epoch(**envelope, run_id=run_id, attempt=attempt, epoch=number, take=take, kept=False, complete=False, is_deleted=True)


def _work(state: State, run: Run, epochs: list[Epoch], envelope: dict[str, Any]) -> list[Event]:
    """Tokens consumed since the last time, try by try. Amounts once told are never told again."""
    said: list[Event] = []
    for line in epochs:
        if line.tokens_mtok is None:
            continue
        key = f"{line.run_id}/{line.attempt}/{line.epoch}/{line.take}"
        told, last_stamp, count = state["work"].get(key, [0.0, None, 0])
        amount = line.tokens_mtok - told
        if amount <= 1e-12:
            continue
        stamp = line.ts.timestamp()
        duration = max(stamp - last_stamp, 0.0) if last_stamp is not None else line.train_seconds or 0.0
        state["work"][key] = [line.tokens_mtok, stamp, count + 1]
        told_by = {**envelope, "ts": line.ts, "seq": (line.epoch * 1024 + line.take) * 65536 + count}
        del told_by["version"]
        said.append(Work(**told_by, run_id=line.run_id, attempt=line.attempt, duration_s=duration, amount_mtok=amount))
    return said


OPERATOR = Runs()
