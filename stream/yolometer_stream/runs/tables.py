"""Tables: what results.csv and results.txt say, cut into trainings and their attempts by epochs and clocks.

Rules (docs/formats.md, "A run"): back to the first epoch is a new training; an epoch that is not later than
the last one, or a clock that falls, is a resumed attempt of the same training.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from yolometer_stream.runs.sessions import natural, same_losses

State = dict[str, Any]
Row = dict[str, Any]


@dataclass
class Table:
    """One training as tables tell it: its rows by attempt, and which sources told them."""

    sources: list[str]
    attempts: list[list[Row]]
    last_closed: int | None = None
    """The last epoch, planned epochs and whether all is timed, of the closed rows (see tail.py), which are left out."""
    total_closed: int | None = None
    timed_closed: bool = True

    @property
    def rows(self) -> list[Row]:
        return [row for attempt in self.attempts for row in attempt]

    def cut(self, count: int) -> Table:
        """Without the first `count` rows of the last attempt, and without those of the attempts before."""
        gone = replace(self, attempts=[*self.attempts[:-1], self.attempts[-1][:count]])
        attempts: list[list[Row]] = [[] for _ in self.attempts]
        attempts[-1] = self.attempts[-1][count:]
        last = gone.last_epoch if gone.rows else self.last_closed
        return Table(self.sources, attempts, last, gone.epochs_total, gone.timed)

    @property
    def timed(self) -> bool:
        return self.timed_closed and all(row.get("time_s") is not None for row in self.rows)

    @property
    def last_epoch(self) -> int:
        epochs = [int(row["epoch"]) for row in self.rows]
        return max(epochs if self.last_closed is None else [self.last_closed, *epochs])

    @property
    def epochs_total(self) -> int | None:
        """Planned epochs as the rows show them last."""
        return next((row["epochs_total"] for row in reversed(self.rows) if row.get("epochs_total")), self.total_closed)


def tables_of(state: State) -> list[Table]:
    """All trainings that tables of a place tell, in order; the same rows in two tables are one training."""
    kept: list[Table] = []
    for name in sorted(state["sources"], key=natural):
        source = state["sources"][name]
        for table in _cut(name, source["rows"]):
            twin = next((other for other in kept if _prefix(other.rows, table.rows)), None)
            if twin is None:
                kept.append(table)
                continue
            twin.sources += [item for item in table.sources if item not in twin.sources]
            if len(table.rows) > len(twin.rows):
                twin.attempts = table.attempts
    return kept


def _cut(name: str, rows: list[Row]) -> list[Table]:
    found: list[Table] = []
    last: Row | None = None
    for row in rows:
        if last is None or (row["epoch"] == 1 and last["epoch"] >= 1 and not _same_row(row, last)):
            found.append(Table([name], [[row]]))
        elif row["epoch"] <= last["epoch"] or falls(row, last):
            if _same_row(row, last):
                continue
            found[-1].attempts.append([row])
        else:
            found[-1].attempts[-1].append(row)
        last = row
    return found


def falls(row: Row, last: Row) -> bool:
    """Whether the clock of a row is behind that of the row before: another process wrote it."""
    now, before = row.get("time_s"), last.get("time_s")
    return now is not None and before is not None and now < before


def _same_row(one: Row, other: Row) -> bool:
    names = ("epoch", "time_s", "losses", "map50_95", "top1")
    return all(one.get(name) == other.get(name) for name in names)


def _prefix(one: list[Row], other: list[Row]) -> bool:
    return all(_same_row(left, right) for left, right in zip(one, other, strict=False)) and bool(one) and bool(other)


def matches(row: Row, losses: list[float | None], evaluation: dict[str, Any] | None) -> bool | None:
    """Whether a row is the same epoch as a console's losses and metrics; None when they cannot be compared."""
    verdict = same_losses(row["losses"], losses)
    if verdict is not None:
        return verdict
    if evaluation is None:
        return None
    pairs = [(row.get(name), evaluation.get(name)) for name in ("map50", "map50_95", "top1")]
    known = [(left, right) for left, right in pairs if left is not None and right is not None]
    if not known:
        return None
    # a validation row shows three digits
    return all(abs(left - right) <= 6e-3 * max(abs(left), abs(right)) + 1e-9 for left, right in known)
