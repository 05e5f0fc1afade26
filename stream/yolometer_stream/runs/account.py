"""What a training did: every try of every epoch with its images, tokens and seconds, kept or wasted. Pure functions.

Formulas: docs/maths.md section 0; what counts as kept, wasted and active: docs/formats.md, "A run".
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from yolometer_stream.runs.resolve import Training, same_epoch
from yolometer_stream.runs.sessions import Session, Try
from yolometer_stream.runs.tables import Row

Why = Literal["oom_retry", "nan_replay", "killed", "redone"]
By = Literal["table", "iterations", "loop", "bars"]
"""By which clock an attempt is timed (times.py)."""

RESOLVED = 10
"""A clock tells a time apart when the time is this many times its resolution."""
LONG_EPOCH_S = 10.0
"""From this length on, what a bar does not show of an epoch (checkpoint, loader start) is small against it."""


@dataclass
class Line:
    """One try of one epoch in the books. Tokens are integers of pixels x images; None is unknown."""

    attempt: int
    epoch: int
    """Counted from 1; 0 stands for a training that has no epochs."""
    take: int = 0
    kept: bool = True
    why_wasted: Why | None = None
    complete: bool = True
    session: Session | None = None
    progress: dict[str, Any] | None = None
    evaluation: dict[str, Any] | None = None
    row: Row | None = None
    images: int | None = None
    pixels: float | None = None
    estimated: bool = False
    train_s: float | None = None
    ts: float | None = None
    seen_ts: float | None = None
    """When its end was seen, while `ts` is when it was; `row_s` are its seconds by the clock of the table."""
    row_s: float | None = None

    @property
    def tokens(self) -> float | None:
        return None if self.images is None or self.pixels is None else self.images * self.pixels

    def metric(self, name: str) -> float | None:
        """A metric of the epoch: from the table, which has more digits, else from the console."""
        for source in (self.row, self.evaluation):
            if source and source.get(name) is not None:
                return float(source[name])
        return None


@dataclass
class Books:
    """All lines of a training, and what follows for the whole of it."""

    lines: list[Line] = field(default_factory=list)
    attempts: int | None = None
    epochs_done: int | None = None
    whole: bool = True
    """Whether every attempt is in a console at hand."""
    waste_known: bool = True
    """Whether all that was done in vain can be counted: no attempt and no try is missing."""
    stamps: list[float] = field(default_factory=list)
    """Between which times the lines ended."""
    by: By = "bars"
    """By which clock the last attempt is timed."""


def books_of(training: Training, kept_to: int | None = None) -> Books:
    """Put console tries and table rows of one training together, attempt by attempt.

    `kept_to` is the last epoch that closed lines keep, which are not in `training` any more (see tail.py).
    """
    books = Books()
    rows = _Rows(training)
    for number, session in zip(_numbers(training), training.sessions, strict=True):
        last_take: dict[int | None, int] = {}
        for item in session.tries:
            last_take[item.epoch] = max(item.take, last_take.get(item.epoch, 0))
        for item in session.tries:
            books.lines.append(_line(session, item, number, rows, retried=item.take < last_take[item.epoch]))
    _from_table_alone(training, books, rows)
    _judge(training, books)
    books.attempts, books.whole = _attempts(training, rows)
    books.waste_known = books.whole and not any(_unseen_try(session) for session in training.sessions)
    kept = [line.epoch for line in books.lines if line.kept]
    kept += [] if kept_to is None else [kept_to]
    if kept:
        books.epochs_done = max(kept)
    elif training.sessions and training.setting("epochs_planned"):
        books.epochs_done = 0
    for line in books.lines:
        _measure(training, line)
    return books


def _numbers(training: Training) -> list[int]:
    """The attempt that each session is: as they follow, or as the table shows where it tells of more than consoles do."""
    table = training.table
    count = len(training.sessions)
    if table is None or len(table.attempts) <= count:
        return list(range(1, count + 1))
    found: list[int] = []
    for session in training.sessions:
        scores = [sum(bool(same_epoch(row, session, row["epoch"])) for row in attempt) for attempt in table.attempts]
        free = range(found[-1] if found else 0, len(scores) - (count - len(found)) + 1)
        found.append(max(free, key=lambda at: (scores[at], -at)) + 1)
    return found


class _Rows:
    """The rows of the table by epoch, each given to one line only."""

    def __init__(self, training: Training) -> None:
        self.attempts = training.table.attempts if training.table else []
        self._of: dict[int, list[tuple[int, Row]]] = {}
        for at, attempt in enumerate(self.attempts):
            for row in attempt:
                self._of.setdefault(row["epoch"], []).append((at, row))

    def take(self, epoch: int, attempt: int, session: Session) -> Row | None:
        """The row of an epoch: of the same attempt if there is one, else the first one left that is not another's."""
        mine = [(at, row) for at, row in self._of.get(epoch, ()) if same_epoch(row, session, epoch) is not False]
        if not mine:
            return None
        exact = [pair for pair in mine if pair[0] == attempt - 1]
        chosen = (exact or mine)[0]
        self._of[epoch].remove(chosen)
        return chosen[1]

    @property
    def left(self) -> list[tuple[int, Row]]:
        """Rows that no line has taken."""
        return [pair for rows in self._of.values() for pair in rows]


def _line(session: Session, item: Try, number: int, rows: _Rows, *, retried: bool) -> Line:
    line = Line(number, item.epoch or 0, item.take, True, None, item.complete, session, item.progress, item.evaluation)
    if item.progress is None or item.epoch is None:
        # a stream without bars: the validation says that the epoch was trained; a log without epochs has one line
        line.complete = item.evaluation is not None or item.epoch is None
    if retried:
        line.kept, line.why_wasted = False, _why_again(session, item)
    elif line.complete and item.epoch is not None:
        line.row = rows.take(item.epoch, number, session)
    stamps = [source["ts"] for source in (item.progress, item.evaluation) if source]
    line.ts = max(stamps, default=None)
    return line


def _unseen_try(session: Session) -> bool:
    """A try failed before its bar was drawn: how much of it was done cannot be known."""
    retries = [(item.get("epoch"), item.get("take", 0)) for item in session.incidents if item["what"] == "oom_retry"]
    return not all(session.has(key) for key in retries)


def _why_again(session: Session, item: Try) -> Why:
    for incident in session.incidents:
        where = (incident.get("epoch"), incident.get("take", 0))
        if incident["what"] in ("oom_retry", "nan_replay") and where == (item.epoch, item.take):
            return "oom_retry" if incident["what"] == "oom_retry" else "nan_replay"
    return "redone"


def _from_table_alone(training: Training, books: Books, rows: _Rows) -> None:
    """Rows that no console tells. Beside a try of that epoch that a console does tell, they are a try after it."""
    more = len(rows.attempts) >= len(training.sessions)
    takes: dict[tuple[int, int], int] = {}
    for line in books.lines:
        takes[line.attempt, line.epoch] = max(line.take, takes.get((line.attempt, line.epoch), 0))
    for at, row in rows.left:
        where = at + 1 if more else max(len(training.sessions), 1), row["epoch"]
        takes[where] = takes.get(where, -1) + 1
        books.lines.append(Line(*where, takes[where], row=row, ts=row["ts"]))
    books.lines.sort(key=lambda line: (line.attempt, line.epoch, line.take))


def _judge(training: Training, books: Books) -> None:
    """Decide which lines are kept: the last complete try of an epoch whose work went into a checkpoint."""
    last = training.sessions[-1] if training.sessions else None
    redone_from = _redone_from(books.lines)
    for at, line in enumerate(books.lines):
        if not line.kept:
            continue
        if redone_from[line.attempt] <= line.epoch:
            line.kept, line.why_wasted = False, "redone" if line.complete else "killed"
        elif not line.complete:
            line.kept = False
            line.why_wasted = "killed" if line.session is not None and over(line.session) else None
        elif line.row is None and at == len(books.lines) - 1 and last is not None and _lost(training, last, line):
            line.kept = False
            line.why_wasted = "nan_replay" if _nan(last) else "killed"


def _redone_from(lines: list[Line]) -> dict[int, float]:
    """For each attempt the first epoch that a later attempt trained again."""
    first: dict[int, float] = {}
    for line in lines:
        first[line.attempt] = min(line.epoch, first.get(line.attempt, float("inf")))
    found: dict[int, float] = {}
    lowest = float("inf")
    for attempt in sorted(first, reverse=True):
        found[attempt] = lowest
        lowest = min(lowest, first[attempt])
    return found


def over(session: Session) -> bool:
    """The process is gone: it said so, or nothing writes its log any more."""
    return session.incident("completed") is not None or error_of(session) is not None or session.open is False


def error_of(session: Session) -> dict[str, Any] | None:
    """The error that ended a session; one that training survived does not count."""
    error = session.incident("error")
    return error if error and error.get("after", 0) >= session.tried else None


def _nan(session: Session) -> bool:
    error = error_of(session)
    return bool(error and "NaN persisted" in error.get("text", ""))


def _lost(training: Training, last: Session, line: Line) -> bool:
    """A complete last epoch that never reached the table or a checkpoint."""
    if last.incident("completed") or not over(last):
        return False
    if training.table is not None or _nan(last):
        return True
    # a log that tells whole epochs tells no validation and no end either
    return line.evaluation is None and last.settings.get("end_line") is not False


def _attempts(training: Training, rows: _Rows) -> tuple[int | None, bool]:
    """(How many processes trained it, whether all of them are in a console at hand); None where it cannot be known."""
    in_table = len(rows.attempts)
    sessions = len(training.sessions)
    timed = training.table is not None and training.table.timed
    if not sessions:
        if not in_table:
            return None, False
        sure = in_table > 1 or (timed and not training.asked.get("resumed"))
        return (in_table if sure else None), False
    last_reached = max(training.reached, 0)
    beyond = training.table is not None and training.table.last_epoch > last_reached
    if not training.first_session_resumed and not (beyond and not _barless(training)):
        return max(sessions, in_table), in_table <= sessions
    return (in_table if timed and in_table > sessions else None), False


def _barless(training: Training) -> bool:
    return all(session.last_epoch is None for session in training.sessions)


def _measure(training: Training, line: Line) -> None:
    """Images and pixels of a line."""
    per_epoch = training.setting("images_per_epoch")
    progress = line.progress or {}
    done = progress.get("iterations_done")
    batch = _batch(training, line)
    if progress.get("images") is not None:
        line.images = progress["images"]
    elif line.complete and per_epoch is not None and line.epoch:
        line.images = per_epoch
    elif done is not None and batch is not None:
        line.images = done * batch if per_epoch is None else min(done * batch, per_epoch)
        line.estimated = line.complete
    elif done == 0:
        line.images = 0
    line.pixels, uncertain = _pixels(training, progress)
    line.estimated = line.estimated or uncertain


def _batch(training: Training, line: Line) -> int | None:
    """The batch a line was trained with: an OOM retry halves it from the next take on."""
    session = line.session
    if session is not None:
        batch = session.settings.get("batch") or training.setting("batch")
        for incident in session.incidents:
            where = (incident.get("epoch") or 1, incident.get("take", 0))
            if incident["what"] == "oom_retry" and where < (line.epoch, line.take):
                batch = incident.get("batch") or batch
        return batch if isinstance(batch, int) else None
    value = training.setting("batch")
    return value if isinstance(value, int) else None


def _pixels(training: Training, progress: dict[str, Any]) -> tuple[float | None, bool]:
    """(H x W of the images, whether it is an estimate)."""
    if progress.get("pixels_mean_px") is not None:
        return float(progress["pixels_mean_px"]), True
    estimated = bool(training.setting("rect"))
    varies = bool(training.setting("multi_scale"))
    if progress.get("width_px") and (varies or training.setting("width_px") is None):
        return float((progress.get("height_px") or progress["width_px"]) * progress["width_px"]), estimated or varies
    height, width = training.setting("height_px"), training.setting("width_px")
    if height is None or width is None or (varies and not progress):
        return None, estimated
    return float(height * width), estimated or varies
