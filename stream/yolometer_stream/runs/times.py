"""How long a training trained, in seconds: from the clocks that are fine enough, null where none is. Pure functions.

The clock of the table is best (it covers the loop with loading and checkpoints), then the hours the trainer
prints at its end, then the bars of long epochs. Validation is left out where a clock tells it apart.
"""

from __future__ import annotations

from yolometer_stream.runs.account import LONG_EPOCH_S, RESOLVED, Books, Line


def time_lines(books: Books) -> float | None:
    """Give every line its training seconds where they are known; return those of the whole training."""
    total = 0.0
    known = books.attempts is not None and bool(books.lines) and _covered(books)
    for attempt in sorted({line.attempt for line in books.lines}):
        mine = [line for line in books.lines if line.attempt == attempt]
        seconds = _attempt(mine)
        if seconds is None:
            known = False
        else:
            total += seconds
    _place(books)
    return total if known else None


def _place(books: Books) -> None:
    """When each line ended: as it was seen, but not later than the next of its attempt began (old logs are read at once)."""
    for line, following in reversed(list(zip(books.lines, books.lines[1:], strict=False))):
        if line.ts is None or following.ts is None or line.attempt != following.attempt:
            continue
        line.ts = min(line.ts, following.ts - (following.train_s or 0.0) - _val_s(following))


def _covered(books: Books) -> bool:
    """Whether all attempts are in the books."""
    return books.attempts is None or len({line.attempt for line in books.lines}) == books.attempts


def _attempt(lines: list[Line]) -> float | None:
    rows = [line for line in lines if line.row is not None and line.row.get("time_s") is not None]
    others = [line for line in lines if line.row is None]
    if rows and all(line.row is None or line.row.get("time_s") is not None for line in lines):
        return _by_table(rows) + sum(_bar_s(line) or 0.0 for line in others if not _inside(line, rows))
    exact = _by_iterations(lines)
    if exact is not None:
        return exact
    session = next((line.session for line in lines if line.session is not None), None)
    loop = session.incident("completed") if session else None
    if loop and loop.get("loop_s") and loop["resolution_s"] / 2 <= loop["loop_s"] * 0.05:
        _spread_bars(lines)
        return float(loop["loop_s"]) - sum(_val_s(line) for line in lines)
    return _by_bars(lines)


def _val_s(line: Line) -> float:
    return float((line.evaluation or {}).get("val_s") or 0.0)


def _by_table(rows: list[Line]) -> float:
    before = 0.0
    total = 0.0
    for line in rows:
        now = float((line.row or {})["time_s"])
        wall, before = now - before, now
        line.train_s = max(wall - _val_s(line), 0.0)
        total += line.train_s
    return total


def _inside(line: Line, rows: list[Line]) -> bool:
    """Whether the table's clock already ran over a line that has no row: a wasted try before a later row."""
    line.train_s = _bar_s(line)
    return any(row.epoch >= line.epoch for row in rows)


def _bar_s(line: Line) -> float | None:
    """Seconds of a bar where its clock tells them apart."""
    progress = line.progress or {}
    seconds, resolution = progress.get("train_s"), progress.get("resolution_s")
    if seconds is None or resolution is None or seconds < RESOLVED * resolution:
        return None
    return float(seconds)


def _by_iterations(lines: list[Line]) -> float | None:
    """Logs that print the seconds of their iterations are exact."""
    if not lines or not all(line.progress and (line.progress.get("resolution_s") or 1.0) <= 1e-3 for line in lines):
        return None
    for line in lines:
        line.train_s = float(line.progress["train_s"]) if line.progress and line.progress.get("train_s") is not None else None
    return None if any(line.train_s is None for line in lines) else sum(line.train_s or 0.0 for line in lines)


def _spread_bars(lines: list[Line]) -> None:
    for line in lines:
        line.train_s = _bar_s(line)


def _by_bars(lines: list[Line]) -> float | None:
    """Bars alone: only where epochs are long against what bars leave out, and the sum is finer than a tenth."""
    _spread_bars(lines)
    bars = [line.progress for line in lines if line.progress]
    if len(bars) != len(lines) or any(bar.get("train_s") is None for bar in bars):
        return None
    total = sum(float(bar["train_s"]) for bar in bars)
    coarse = sum(float(bar["resolution_s"] or 1.0) for bar in bars)
    complete = [float(line.progress["train_s"]) for line in lines if line.progress and line.complete]
    long_enough = sum(complete) >= LONG_EPOCH_S * len(complete) if complete else total >= LONG_EPOCH_S
    return total if long_enough and coarse * RESOLVED <= total else None
