"""Tables: what results.csv and results.txt say, cut into trainings and their attempts by epochs and clocks.

Rules (docs/formats.md, "A run"): back to the first epoch is a new training; an epoch that is not later than
the last one, or a clock that falls, is a resumed attempt of the same training.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from yolometer_stream.runs.sessions import natural, same_losses

State = dict[str, Any]
Row = dict[str, Any]


@dataclass
class Table:
    """One training as tables tell it: its rows by attempt, and which sources told them."""

    sources: list[str]
    attempts: list[list[Row]]

    @property
    def rows(self) -> list[Row]:
        return [row for attempt in self.attempts for row in attempt]

    @property
    def timed(self) -> bool:
        return all(row.get("time_s") is not None for row in self.rows)

    @property
    def last_epoch(self) -> int:
        return max(int(row["epoch"]) for row in self.rows)


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
        elif row["epoch"] <= last["epoch"] or _falls(row, last):
            if _same_row(row, last):
                continue
            found[-1].attempts.append([row])
        else:
            found[-1].attempts[-1].append(row)
        last = row
    return found


def _falls(row: Row, last: Row) -> bool:
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
