"""Which trainings a place holds: sessions, tables and settings of all its sources put together, as a pure function.

The same facts give the same trainings in whatever order they came. The rules are in docs/formats.md, "A run".
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from yolometer_stream.runs.sessions import Session, natural, same_directory, sessions_of
from yolometer_stream.runs.tables import Table, matches, tables_of

State = dict[str, Any]


@dataclass
class Training:
    """One run: its console sessions in order, its table, and what settings files say of it."""

    sessions: list[Session] = field(default_factory=list)
    table: Table | None = None
    asked: dict[str, Any] = field(default_factory=dict)
    sources: list[str] = field(default_factory=list)
    group: str = ""
    ordinal: int = 0

    def setting(self, name: str) -> Any:
        """The newest value of a setting: of the last session that has it, else of the settings file."""
        for session in reversed(self.sessions):
            if session.settings.get(name) is not None:
                return session.settings[name]
        return self.asked.get(name)

    @property
    def reached(self) -> int:
        """The last epoch that any session touched."""
        return max((epoch for session in self.sessions if (epoch := session.last_epoch) is not None), default=0)

    @property
    def first_session_resumed(self) -> bool:
        """Earlier attempts are not in any console at hand."""
        return bool(self.sessions) and (self.sessions[0].resumed or (self.sessions[0].first_epoch or 1) > 1)


def trainings_of(state: State) -> list[Training]:
    """All trainings of a place, ordered; each knows its group (the directory it names) and its number there."""
    found = _by_console(sessions_of(state))
    unmatched = _match_tables(found, tables_of(state))
    found += [Training(table=table, sources=list(table.sources)) for table in unmatched]
    _match_settings(found, state)
    counts: dict[str, int] = {}
    for training in found:
        training.group = _base(training.setting("save_dir")) or ""
        training.ordinal = counts.get(training.group, 0)
        counts[training.group] = training.ordinal + 1
        training.sources += [name for session in training.sessions for name in session.sources if name not in training.sources]
        training.sources.sort(key=natural)
    return found


def _base(path: Any) -> str | None:
    return str(path).rstrip("/\\") if path else None


def _by_console(sessions: list[Session]) -> list[Training]:
    """A fresh session opens a training; a resumed one goes on with the newest training that came far enough."""
    found = [Training(sessions=[session]) for session in sessions if not session.resumed]
    for session in sorted((item for item in sessions if item.resumed), key=lambda item: (_needs(item), item.order)):
        home = next((training for training in reversed(found) if _goes_on(training, session)), None)
        if home is None:
            found.append(Training(sessions=[session]))
        else:
            home.sessions.append(session)
    for training in found:
        training.sessions.sort(key=lambda item: (item.resumed, _needs(item) if item.resumed else 0, item.order))
    return sorted(found, key=lambda item: item.sessions[0].order)


def _needs(session: Session) -> int:
    """The first epoch that a resumed session trains."""
    return session.first_epoch or session.settings.get("resume_epoch") or 1


def _goes_on(training: Training, session: Session) -> bool:
    last = training.sessions[-1]
    if not same_directory(last.settings.get("save_dir"), session.settings.get("save_dir")):
        return False
    if last.settings.get("framework") != session.settings.get("framework"):
        return False
    ended = last.incident("completed")
    planned, done = last.settings.get("epochs_planned"), training.reached
    if ended and planned is not None and done >= planned and session.settings.get("epochs_planned") == planned:
        return False
    return done >= _needs(session) - 1


def _match_tables(trainings: list[Training], tables: list[Table]) -> list[Table]:
    """Give every training the table whose rows are its epochs; returns the tables that belong to no console."""
    scored = []
    for at, training in enumerate(trainings):
        for to, table in enumerate(tables):
            score = _score(training, table)
            if score > 0:
                scored.append((-score, at, to))
    left = dict(enumerate(tables))
    for _, at, to in sorted(scored):
        training = trainings[at]
        if to not in left or training.table is not None:
            continue
        training.table = left.pop(to)
        training.sources += [name for name in training.table.sources if name not in training.sources]
    _match_the_only_ones(trainings, left)
    return list(left.values())


def _match_the_only_ones(trainings: list[Training], left: dict[int, Table]) -> None:
    """One training and one table that have nothing to compare belong together when both are the only ones left."""
    tableless = [item for item in trainings if item.table is None]
    waiting = [item for item in tableless if any(entry.complete for session in item.sessions for entry in session.tries)]
    if len(waiting) != 1 or len(left) != 1:
        return
    training, (key, table) = waiting[0], next(iter(left.items()))
    if all(same_epoch(row, session, row["epoch"]) is None for row in table.rows for session in training.sessions):
        training.table = left.pop(key)
        training.sources += table.sources


def _score(training: Training, table: Table) -> int:
    """How many epochs agree; 0 when any epoch that both tell exists on neither side as the same."""
    agree = 0
    for row in table.rows:
        verdicts = [same_epoch(row, session, row["epoch"]) for session in training.sessions]
        known = [verdict for verdict in verdicts if verdict is not None]
        if known and not any(known):
            # an attempt whose console is not at hand may have written this row
            if len(table.attempts) > len(training.sessions):
                continue
            return 0
        agree += any(known)
    return agree


def same_epoch(row: dict[str, Any], session: Session, epoch: int) -> bool | None:
    """Whether a row of a table is the epoch that a session tells; None when they cannot be compared."""
    verdicts = []
    for item in session.by_epoch.get(epoch, ()):
        if (item.progress is not None and not item.complete):
            continue
        losses = item.progress.get("losses", []) if item.progress else []
        verdicts.append(matches(row, losses, item.evaluation))
    known = [verdict for verdict in verdicts if verdict is not None]
    return any(known) if known else None


def _match_settings(trainings: list[Training], state: State) -> None:
    """Give settings files to the trainings they describe; one that describes none is a training of its own."""
    files = []
    for name in sorted(state["sources"], key=natural):
        source = state["sources"][name]
        if source["role"] == "settings":
            newest = [source["sessions"][index]["settings"] for index in sorted(source["sessions"], key=int)]
            if newest and newest[-1]:
                files.append((name, newest[-1]))
    bare = [training for training in trainings if not training.sessions]
    loose = []
    for name, asked in files:
        owners = [training for training in trainings if training.sessions and _describes(asked, training)]
        for training in owners:
            training.asked = {**asked, **training.asked}
            training.sources.append(name)
        if not owners:
            loose.append((name, asked))
    _match_bare(trainings, bare, loose)


def _match_bare(trainings: list[Training], bare: list[Training], loose: list[tuple[str, dict[str, Any]]]) -> None:
    """Settings without a console go to the table whose file is named alike, or whose epochs are all that were planned."""
    for name, asked in loose:
        named = [item for item in bare if item.table and any(_mark(name) == _mark(table) for table in item.table.sources)]
        whole = [item for item in bare if item.table and asked.get("epochs_planned") == item.table.last_epoch]
        # a fresh start overwrites the settings but may go on with the same table: the last training in it is meant
        fits = [item for item in named[-1:] if _possible(asked, item)] or (whole if len(whole) == 1 else [])
        if fits:
            fits[0].asked = asked
            fits[0].sources.append(name)
        elif not bare:
            trainings.append(Training(asked=asked, sources=[name]))


def _mark(source: str) -> str:
    """What a file name says beyond its kind: `.after-run1` of results.after-run1.csv and args.after-run1.yaml, else nothing."""
    name = source.rsplit("/", 1)[-1]
    return re.sub(r"^(?:results|args|opt)|\.(?:csv|txt|ya?ml)(?:#\d+)?$", "", name)


def _possible(asked: dict[str, Any], training: Training) -> bool:
    planned = asked.get("epochs_planned")
    return planned is None or training.table is None or training.table.last_epoch <= planned


def _describes(asked: dict[str, Any], training: Training) -> bool:
    """Whether a settings file is of this training: same directory, and nothing that both say differs."""
    known = {name: training.setting(name) for name in ("epochs_planned", "batch", "height_px", "task", "seed", "framework")}
    session_dir, file_dir = _base(training.setting("save_dir")), _base(asked.get("save_dir"))
    if session_dir and file_dir and session_dir.split("/")[-1] != file_dir.split("/")[-1]:
        return False
    budget = training.setting("time_budget") or asked.get("time_budget")
    names = ("batch", "height_px", "task", "seed") if budget else tuple(known)
    if any(session.incident("oom_retry") for session in training.sessions):
        names = tuple(name for name in names if name != "batch")
    return all(asked.get(name) is None or known[name] is None or asked[name] == known[name] for name in names)
