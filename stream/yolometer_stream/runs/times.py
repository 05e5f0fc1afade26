"""How long a training trained, in seconds: from the clocks that are fine enough, null where none is. Pure functions.

The clock of the table is best (it covers the loop with loading and checkpoints), then the hours the trainer
prints at its end, then the bars of long epochs. Validation is left out where a clock tells it apart.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby, pairwise
from typing import Any

from yolometer_stream.runs.account import LONG_EPOCH_S, RESOLVED, Books, By, Line
from yolometer_stream.runs.totals import plus


def _floats() -> array[float]:
    return array("d")


@dataclass
class Clock:
    """One attempt, its lines added one after the other: what each way to time it says."""

    lines: int = 0
    rows: int = 0
    untimed: bool = False
    row_s: float = 0.0
    """Where the clock of the table stands, and the last epoch it covers."""
    row_epoch: int = -1
    table_s: float = 0.0
    beyond_s: float = 0.0
    """Bars of lines that the clock of the table has not covered."""
    iterations_s: float | None = 0.0
    val_s: float = 0.0
    bars: int = 0
    bars_s: float = 0.0
    coarse_s: float = 0.0
    whole: int = 0
    whole_s: float = 0.0
    loop: dict[str, Any] | None = None
    sessions: bool = False

    def add(self, line: Line) -> None:
        """Add the next line; where it has a row it learns what the clock of the table says of it."""
        self.lines += 1
        self.val_s += _val_s(line)
        if line.session is not None and not self.sessions:
            self.sessions, self.loop = True, line.session.incident("completed")
        self._add_row(line)
        progress = line.progress or {}
        seconds, resolution = progress.get("train_s"), progress.get("resolution_s") or 1.0
        if seconds is None or resolution > 1e-3:
            self.iterations_s = None
        if seconds is None:
            return
        if self.iterations_s is not None:
            self.iterations_s += float(seconds)
        self.bars += 1
        self.bars_s += float(seconds)
        self.coarse_s += float(resolution)
        if line.complete:
            self.whole += 1
            self.whole_s += float(seconds)

    def _add_row(self, line: Line) -> None:
        if line.row is None:
            # a wasted try before a later row is inside the clock of the table
            self.beyond_s += 0.0 if line.epoch <= self.row_epoch else _bar_s(line) or 0.0
        elif line.row.get("time_s") is None:
            self.untimed = True
        else:
            now = float(line.row["time_s"])
            line.row_s = max(now - self.row_s - _val_s(line), 0.0)
            self.rows += 1
            self.row_s, self.row_epoch = now, line.epoch
            self.table_s += line.row_s
            self.beyond_s = 0.0

    @property
    def by(self) -> By:
        """The best way there is."""
        if self.rows and not self.untimed:
            return "table"
        if self.iterations_s is not None:  # logs that print the seconds of their iterations are exact
            return "iterations"
        loop = self.loop
        return "loop" if loop and loop.get("loop_s") and loop["resolution_s"] / 2 <= loop["loop_s"] * 0.05 else "bars"

    @property
    def seconds(self) -> float | None:
        """The seconds of the attempt."""
        by = self.by
        if by == "table":
            return self.table_s + self.beyond_s
        if by == "iterations":
            return self.iterations_s
        if by == "loop":
            return float((self.loop or {})["loop_s"]) - self.val_s
        return self._by_bars()

    def _by_bars(self) -> float | None:
        """Bars alone: only where epochs are long against what bars leave out, and the sum is finer than a tenth."""
        if self.bars != self.lines:
            return None
        long_enough = self.whole_s >= LONG_EPOCH_S * self.whole if self.whole else self.bars_s >= LONG_EPOCH_S
        return self.bars_s if long_enough and self.coarse_s * RESOLVED <= self.bars_s else None


@dataclass
class ClosedTimes:
    """The times of closed lines: of earlier attempts their sums, of the last one all that the place of a line follows from."""

    attempts: int = 0
    seconds: float | None = 0.0
    stamps: list[float] = field(default_factory=list)
    """Between which times the lines of earlier attempts ended."""
    attempt: int = 0
    clock: Clock = field(default_factory=Clock)
    by: By | None = None
    """How the lines of the last attempt were timed; timed otherwise, they would say something else."""
    seen: array[float] = field(default_factory=_floats)
    """Of each line of the last attempt when its end was seen, its seconds, and where it was placed."""
    train_s: array[float] = field(default_factory=_floats)
    val_s: array[float] = field(default_factory=_floats)
    placed: array[float] = field(default_factory=_floats)

    def close(self, lines: Iterable[Line], last: int, by: By) -> None:
        """Add lines that `time_lines` timed; `by` is how it timed those of the last attempt, whose number is `last`."""
        for attempt, mine in groupby(lines, key=lambda line: line.attempt):
            if attempt == last:
                self.attempt, self.by = last, by
                for line in mine:
                    self._append(line)
                continue
            earlier, clock = list(mine), Clock()
            for line in earlier:
                clock.add(line)
            self.attempts += 1
            self.seconds = plus(self.seconds, clock.seconds)
            self.stamps = _span([*self.stamps, *(line.ts for line in earlier if line.ts is not None)])

    def _append(self, line: Line) -> None:
        self.clock.add(line)
        self.seen.append(line.seen_ts or 0.0)
        self.train_s.append(line.train_s or 0.0)
        self.val_s.append(_val_s(line))
        self.placed.append(line.ts or 0.0)

    def place(self, following: Line) -> None:
        """Place the lines of the last attempt, of which `following` is the next one."""
        if following.ts is None:
            return
        latest = following.ts - (following.train_s or 0.0) - _val_s(following)
        for at in range(len(self.seen) - 1, -1, -1):
            stamp = min(self.seen[at], latest)
            if stamp == self.placed[at]:
                return  # and so are all before it
            self.placed[at] = stamp
            latest = stamp - self.train_s[at] - self.val_s[at]


def time_lines(books: Books, closed: ClosedTimes | None = None) -> float | None:
    """Give every line its training seconds where they are known; return those of the whole training.

    `closed` are the times of the lines before, which are placed anew; `books.by` is how the last attempt was timed.
    """
    closed = closed or ClosedTimes()
    total, attempts = closed.seconds, closed.attempts
    for attempt, lines in groupby(books.lines, key=lambda line: line.attempt):
        mine = list(lines)
        clock = replace(closed.clock) if attempt == closed.attempt else Clock()
        for line in mine:
            clock.add(line)
        books.by = clock.by
        for line in mine:
            _give(line, books.by)
        attempts += 1
        total = plus(total, clock.seconds)
    _place(books, closed)
    return total if books.lines and attempts == books.attempts else None


def _give(line: Line, by: By) -> None:
    if by == "iterations":
        line.train_s = float((line.progress or {})["train_s"])
    else:
        line.train_s = line.row_s if by == "table" and line.row is not None else _bar_s(line)


def _place(books: Books, closed: ClosedTimes) -> None:
    """When each line ended: as it was seen, but not later than the next of its attempt began (old logs are read at once)."""
    lines = books.lines
    for line in lines:
        line.seen_ts = line.ts
    for line, following in reversed(list(pairwise(lines))):
        if line.ts is None or following.ts is None or line.attempt != following.attempt:
            continue
        line.ts = min(line.ts, following.ts - (following.train_s or 0.0) - _val_s(following))
    if lines and lines[0].attempt == closed.attempt:
        closed.place(lines[0])
    stamps = closed.stamps + [line.ts for line in lines if line.ts is not None]
    books.stamps = _span(stamps + _span(closed.placed))


def _span(stamps: Sequence[float]) -> list[float]:
    return [min(stamps), max(stamps)] if stamps else []


def _val_s(line: Line) -> float:
    return float((line.evaluation or {}).get("val_s") or 0.0)


def _bar_s(line: Line) -> float | None:
    """Seconds of a bar where its clock tells them apart."""
    progress = line.progress or {}
    seconds, resolution = progress.get("train_s"), progress.get("resolution_s")
    if seconds is None or resolution is None or seconds < RESOLVED * resolution:
        return None
    return float(seconds)
