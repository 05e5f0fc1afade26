"""Closed lines: lines of the books that later facts of a live training no longer change, folded into sums."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from yolometer_stream.runs.account import By, Line
from yolometer_stream.runs.times import ClosedTimes
from yolometer_stream.runs.totals import Totals


@dataclass
class Closed:
    """What is left of closed lines. `rows_of` goes on from it as if it had seen them."""

    totals: Totals = field(default_factory=Totals)
    times: ClosedTimes = field(default_factory=ClosedTimes)

    def close(self, lines: Sequence[Line], last: int, by: By, val_tokens: Callable[[Line], float | None]) -> None:
        """Add the next lines. `last` is the last attempt and `by` how it is timed."""
        for line in lines:
            self.totals.add(line, val_tokens(line) if line.evaluation is not None else None)
        self.times.close(lines, last, by)

    def holds(self, by: By) -> bool:
        """Whether closed lines are still what they were, when the last attempt is timed `by` this clock."""
        return self.times.by in (None, by)
