"""The tail of a live training: the last tries and rows, all before them closed, so that a settle costs the same at any length.

The truth is `trainings_of` and `rows_of` over all facts. A tail gives the same rows from the last few facts, as long as
the facts since then only go on with the last session: then what lies before them (who belongs to whom, earlier lines,
their sums) cannot change. Whatever else comes makes it useless, and all is worked out anew: it is a cache, no state.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from yolometer_core.events import Evaluation, Fact, Progress, ResultRow, Setting, SourceState
from yolometer_stream.runs.closed import Closed
from yolometer_stream.runs.facts import LOOKED_BACK, told
from yolometer_stream.runs.resolve import Training, same_epoch
from yolometer_stream.runs.rows import Rows, val_tokens
from yolometer_stream.runs.sessions import Session, tries_of
from yolometer_stream.runs.tables import Row, Table, falls

State = dict[str, Any]
Said = dict[str, list[Any]]


@dataclass
class Tail:
    """The only training of a place, whose last session is told by one source. Built by `tail_of`."""

    training: Training
    """Without its closed tries and rows."""
    first: int = -1
    """The first epoch that is not closed: closed are the lines of earlier epochs, and those of earlier attempts."""
    tries: int = 0
    evaluations: int = 0
    rows: int = 0
    """How many of the source's entries and of the table's rows are closed."""
    agreed: bool = False
    """Whether a closed row shows that the table is of this training."""
    closed: Closed = field(default_factory=Closed)
    said: list[str] = field(default_factory=list)
    """Names of the rows of lines that are not closed."""

    @property
    def session(self) -> Session:
        return self.training.sessions[-1]

    @property
    def source(self) -> str:
        return self.session.sources[0]

    @property
    def table(self) -> str | None:
        return self.training.table.sources[0] if self.training.table else None

    def goes_on(self, state: State, event: Fact) -> bool:
        """Whether an event that `state` does not know yet leaves all that is closed as it is."""
        source = state["sources"].get(event.source)
        if source is None:
            return False
        if isinstance(event, SourceState):
            return bool(source["role"] == event.role and source["open"] == event.open_for_writing)
        if event.seq <= source["seq"]:
            return True
        if isinstance(event, ResultRow):
            return event.source == self.table and source["role"] not in ("console", "settings") and self._next_row(source, event)
        if event.source != self.source or event.session != self.session.order[1]:
            return False
        if isinstance(event, Progress | Evaluation):
            return event.epoch is not None and event.epoch >= self.first
        known = source["sessions"][str(event.session)]["settings"]
        return isinstance(event, Setting) and told(event).items() <= {**known, "role": source["role"]}.items()

    def _next_row(self, source: State, event: ResultRow) -> bool:
        last: Row = source["rows"][-1]
        return event.epoch >= self.first and event.epoch > last["epoch"] and not falls({"time_s": event.time_s}, last)

    def now(self, state: State) -> Training | None:
        """The training with the last facts; None where it must be worked out anew, because the table is no longer its own."""
        raw = state["sources"][self.source]["sessions"][str(self.session.order[1])]
        tries = tries_of(raw["tries"][self.tries :], raw["evaluations"][self.evaluations :])
        session = replace(self.session, tries=tries, last_ts=raw["last_ts"])
        table = self.training.table
        if table is not None:
            rows = state["sources"][self.table]["rows"][self.rows :]
            verdicts = [same_epoch(row, session, row["epoch"]) for row in rows]
            if False in verdicts or not (self.agreed or True in verdicts):
                return None
            table = replace(table, attempts=[*table.attempts[:-1], rows])
        return replace(self.training, sessions=[*self.training.sessions[:-1], session], table=table)

    def close(self, state: State, rows: Rows, said: Said) -> bool:
        """Close what lies before the last few epochs of `rows`, which were just said; False where that cannot be told apart."""
        closed = self._close(state, rows)
        last = len(self.training.sessions)
        self.said = [key for key, (_, *line) in said.items() if line and line[0] == last and line[1] >= self.first]
        return closed

    def _close(self, state: State, rows: Rows) -> bool:
        training, lines, last = rows.training, rows.lines, len(rows.training.sessions)
        raw = state["sources"][self.source]["sessions"][str(self.session.order[1])]
        first = _first(raw)
        if first is None or first <= self.first:
            return first is not None
        tries = _before(first, [entry["epoch"] for entry in raw["tries"][self.tries :]])
        evaluations = _before(first, [entry[0] for entry in raw["evaluations"][self.evaluations :]])
        closing = lines[: sum(line.attempt < last or line.epoch < first for line in lines)]
        if tries is None or evaluations is None or any(line.epoch >= first or line.ts is None for line in closing):
            return False
        if len({(line.attempt, line.epoch, line.take) for line in closing}) < len(closing):
            return False  # a row that no line has taken, beside a line of its epoch: one name for two rows is said by turns
        table = training.table and self._cut(training, training.table, state["sources"][self.table]["rows"], first)
        if training.table and not table:
            return False
        self.closed.close(closing, last, rows.books.by, lambda line: val_tokens(training, line))
        sessions = [*(item.cut() for item in training.sessions[:-1]), training.sessions[-1].cut(first)]
        self.training = replace(training, sessions=sessions, table=table)
        self.first = first
        self.tries += tries
        self.evaluations += evaluations
        return True

    def _cut(self, training: Training, table: Table, told: list[Row], first: int) -> Table | None:
        """The table without the rows that are closed, `told` being all that its source tells; None where these lie in between."""
        *earlier, rows = table.attempts
        count = _before(first, [row["epoch"] for row in rows])
        if count is None or any(row["epoch"] >= first for attempt in earlier for row in attempt):
            return None
        self.rows = len(told) - len(rows) + count
        if told[self.rows :] != rows[count:]:
            return None
        closing = [row for attempt in (*earlier, rows[:count]) for row in attempt]
        self.agreed = self.agreed or any(same_epoch(row, item, row["epoch"]) for row in closing for item in training.sessions)
        return table.cut(count)


def tail_of(state: State, trainings: Sequence[Rows], said: Said) -> Tail | None:
    """The tail of a place whose rows were just made from all its facts; None where there is none that facts may go on with."""
    if len(trainings) != 1:
        return None
    rows, training = trainings[0], trainings[0].training
    sessions, table = training.sessions, training.table
    if not sessions or len(sessions[-1].sources) != 1 or (len(sessions) > 1 and any(item.headless for item in sessions)):
        return None
    if table and (len(table.sources) != 1 or len(table.attempts) > len(sessions)):
        return None
    tail = Tail(training)
    return tail if tail.close(state, rows, said) else None


def _first(raw: State) -> int | None:
    """The first epoch that a fact may still go on with; None where it cannot be told."""
    epochs = [entry["epoch"] for entry in raw["tries"][-LOOKED_BACK:]] + [entry[0] for entry in raw["evaluations"][-1:]]
    return min(epochs) if epochs and None not in epochs else None


def _before(first: int, epochs: list[int | None]) -> int | None:
    """How many at the beginning are before epoch `first`; None where a later one is too, or is of no epoch."""
    before = [epoch is not None and epoch < first for epoch in epochs]
    count = sum(before)
    return None if None in epochs or not all(before[:count]) else count
