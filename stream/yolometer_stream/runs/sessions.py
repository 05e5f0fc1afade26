"""Sessions: what the console sources of a place say, one training process each, with copies and halves put together.

A training may write its console into two files (tee, stdout apart from stderr, a log and its JSON), or into
one file after another (rotation). Sessions are the same when the losses of the epochs they share are the same.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import compress
from typing import Any

State = dict[str, Any]
TryKey = tuple[int | None, int]


@dataclass
class Try:
    """One try of one epoch as consoles tell it: its last Progress and its Evaluation."""

    epoch: int | None
    take: int
    progress: dict[str, Any] | None = None
    evaluation: dict[str, Any] | None = None

    @property
    def complete(self) -> bool:
        done = self.progress and self.progress.get("iterations_total")
        return bool(done) and self.progress is not None and self.progress["iterations_done"] >= done


@dataclass(frozen=True)
class Before:
    """What is left of the closed tries of a session (see tail.py): all that later ones are judged by."""

    tries: int = 0
    first_epoch: int | None = None
    last_epoch: int | None = None
    epochs_total: int | None = None
    retried: frozenset[TryKey] = frozenset()
    """The tries that an incident names."""


@dataclass
class Session:
    """One training process: its settings, its tries in order, what happened, and which sources told it."""

    sources: list[str]
    settings: dict[str, Any]
    tries: list[Try]
    incidents: list[dict[str, Any]]
    first_ts: float
    last_ts: float
    open: bool | None = None
    order: tuple[Any, ...] = ()
    by_key: dict[TryKey, Try] = field(default_factory=dict)
    by_epoch: dict[int | None, list[Try]] = field(default_factory=dict)
    before: Before = Before()

    def __post_init__(self) -> None:
        self.index()

    def index(self) -> None:
        """Find tries by epoch and take; again after the tries changed."""
        self.by_key = {(item.epoch, item.take): item for item in self.tries}
        self.by_epoch = {}
        for item in self.tries:
            self.by_epoch.setdefault(item.epoch, []).append(item)

    def cut(self, first: int | None = None) -> Session:
        """Without the tries of epochs before `first`, or without all of them: what is left of these is in `before`."""
        closed = [first is None or (item.epoch is not None and item.epoch < first) for item in self.tries]
        part = replace(self, tries=list(compress(self.tries, closed)))
        named = {(item.get("epoch"), item.get("take", 0)) for item in self.incidents}
        retried = self.before.retried | (named & part.by_key.keys())
        before = Before(part.tried, part.first_epoch, part.last_epoch, part.epochs_total, frozenset(retried))
        return replace(self, tries=[item for item, gone in zip(self.tries, closed, strict=True) if not gone], before=before)

    @property
    def epochs(self) -> list[int]:
        return [item.epoch for item in self.tries if item.epoch is not None]

    @property
    def tried(self) -> int:
        """How many tries there are, the closed ones included, as in all that follows."""
        return self.before.tries + len(self.tries)

    @property
    def first_epoch(self) -> int | None:
        return min((epoch for epoch in (self.before.first_epoch, *self.epochs) if epoch is not None), default=None)

    @property
    def last_epoch(self) -> int | None:
        return max((epoch for epoch in (self.before.last_epoch, *self.epochs) if epoch is not None), default=None)

    @property
    def epochs_total(self) -> int | None:
        """Planned epochs as the bars show them last."""
        shown = (item.progress.get("epochs_total") for item in reversed(self.tries) if item.progress)
        return next((total for total in shown if total), self.before.epochs_total)

    def has(self, key: TryKey) -> bool:
        """Whether a try that an incident names was seen."""
        return key in self.by_key or key in self.before.retried

    @property
    def resumed(self) -> bool:
        """It went on with earlier work: it said from which epoch, or it was asked to and did not start at the first."""
        if self.settings.get("resume_epoch"):
            return True
        return bool(self.settings.get("resumed")) and self.first_epoch != 1

    @property
    def headless(self) -> bool:
        """It names no directory and shows no start: the second half of another session, or a log whose head is gone."""
        return not any(self.settings.get(name) for name in ("save_dir", "started", "model", "resumed"))

    def incident(self, what: str) -> dict[str, Any] | None:
        return next((item for item in reversed(self.incidents) if item["what"] == what), None)


def natural(text: str) -> tuple[list[Any], str]:
    """A sort key that puts train2.log after train.log and train10.log after train2.log."""
    stem, dot, suffix = text.rpartition(".")
    if not dot or "/" in suffix:
        stem, suffix = text, ""
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", stem)], suffix


def same_directory(one: str | None, other: str | None) -> bool:
    """Whether two names may be of one directory: some trainers print it relative to where they were started."""
    if not one or not other:
        return True
    one, other = one.rstrip("/\\"), other.rstrip("/\\")
    longer, shorter = (one, other) if len(one) >= len(other) else (other, one)
    return longer == shorter or (not shorter.startswith("/") and longer.endswith("/" + shorter))


def sessions_of(state: State) -> list[Session]:
    """All sessions of a place in natural order of their sources, halves and copies put together."""
    found: list[Session] = []
    for name in sorted(state["sources"], key=natural):
        source = state["sources"][name]
        if source["role"] != "console":
            continue
        indices = sorted(source["sessions"], key=int)
        for index in indices:
            session = _session(name, source, int(index), last=index == indices[-1])
            if session is not None:
                found.append(session)
    return _joined(found)


def _session(name: str, source: State, index: int, last: bool) -> Session | None:
    raw = source["sessions"][str(index)]
    tries = tries_of(raw["tries"], raw["evaluations"])
    settings = dict(raw["settings"])
    if any(item["what"] == "resume_refused" for item in raw["incidents"]) and not tries:
        return None
    if not tries and not raw["incidents"] and not any(settings.get(key) for key in ("started", "model", "save_dir")):
        return None
    opened = source["open"] if last else False
    order = (natural(name), index)
    return Session([name], settings, tries, list(raw["incidents"]), raw["first_ts"], raw["last_ts"], opened, order)


def tries_of(entries: Iterable[dict[str, Any]], evaluations: Iterable[list[Any]]) -> list[Try]:
    """The tries that Progress tells, in their order, then those that only an Evaluation tells."""
    tries: dict[TryKey, Try] = {}
    for entry in entries:
        tries[(entry["epoch"], entry["take"])] = Try(entry["epoch"], entry["take"], progress=entry)
    for epoch, take, evaluation in evaluations:
        key = (epoch, take)
        known = tries.setdefault(key, Try(epoch, take))
        before = known.evaluation
        if epoch is not None or before is None or (evaluation.get("map50") or 0) >= (before.get("map50") or 0):
            known.evaluation = evaluation
    return list(tries.values())


def same(left: float | None, right: float | None) -> bool | None:
    """Whether two printed numbers are the same figure at four digits; None when one is missing."""
    if left is None or right is None:
        return None
    if math.isnan(left) or math.isnan(right):
        return math.isnan(left) and math.isnan(right)
    if math.isinf(left) or math.isinf(right):
        return left == right
    return abs(left - right) <= 6e-4 * max(abs(left), abs(right)) + 1e-9


def same_losses(left: Sequence[float | None], right: Sequence[float | None]) -> bool | None:
    """Whether two lists of losses agree; None when they cannot be compared."""
    if not left or not right or len(left) != len(right):
        return None
    verdicts = [same(a, b) for a, b in zip(left, right, strict=True)]
    if any(verdict is False for verdict in verdicts):
        return False
    return True if any(verdicts) else None


def _agree(one: Session, other: Session) -> bool | None:
    """True: at least one shared complete try has the same losses and none differ. None: nothing to compare."""
    verdict: bool | None = None
    for key, left in one.by_key.items():
        right = other.by_key.get(key)
        if right is None or not (left.complete and right.complete) or left.progress is None or right.progress is None:
            continue
        alike = same_losses(left.progress.get("losses", ()), right.progress.get("losses", ()))
        if alike is False:
            return False
        verdict = verdict or alike
    return verdict


def _joined(found: list[Session]) -> list[Session]:
    kept: list[Session] = []
    for session in found:
        partner = next((other for other in kept if _belong(other, session)), None)
        if partner is None:
            kept.append(session)
        else:
            _join(partner, session)
    return kept


def _belong(one: Session, other: Session) -> bool:
    if set(one.sources) & set(other.sources):
        return False
    if not same_directory(one.settings.get("save_dir"), other.settings.get("save_dir")):
        return False
    agree = _agree(one, other)
    if agree is not None:
        return agree
    if _rotated(one, other) or _rotated(other, one):
        return True
    head, body = (one, other) if other.headless else (other, one)
    if not body.headless or head.headless:
        return False
    return _halves(head, body) or _continues(head, body)


def _rotated(old: Session, whole: Session) -> bool:
    """The old file of a rotated log (train.log.1 beside train.log) holds the beginning of what was read of the log itself."""
    named = any(a != b and (a.startswith(b) or b.startswith(a)) for a in old.sources for b in whole.sources)
    if not named or old.incidents or any(item.complete for item in old.tries):
        return False
    shared = old.settings.keys() & whole.settings.keys()
    if not shared or any(old.settings[name] != whole.settings[name] for name in shared):
        return False
    return all(key in whole.by_key for key in old.by_key)


def _halves(head: Session, body: Session) -> bool:
    """One stream has the words, the other the bars."""
    if any(item.progress for item in head.tries) or not any(item.progress for item in body.tries):
        return False
    return {item.epoch for item in head.tries} <= {item.epoch for item in body.tries} and body.first_epoch in (
        None,
        head.settings.get("resume_epoch") or 1,
    )


def _continues(head: Session, body: Session) -> bool:
    """The log was rotated in the middle: the second file goes on where the first one stops."""
    if head.incident("completed") or not head.epochs or body.first_epoch is None:
        return False
    last = max(head.epochs)
    tail = head.tries[-1]
    return body.first_epoch == (last + 1 if tail.complete else last)


def _join(into: Session, other: Session) -> None:
    into.sources += [name for name in other.sources if name not in into.sources]
    into.settings = {**other.settings, **into.settings}
    for key, theirs in other.by_key.items():
        ours = into.by_key.get(key)
        if ours is None:
            into.by_key[key] = theirs
            into.tries.append(theirs)
            continue
        if theirs.progress and (ours.progress is None or _further(theirs.progress, ours.progress)):
            ours.progress = theirs.progress
        ours.evaluation = _both(ours.evaluation, theirs.evaluation)
    into.tries.sort(key=lambda item: (item.epoch or 0, item.take))
    into.index()
    known = {(item["what"], item.get("epoch"), item.get("take")) for item in into.incidents}
    into.incidents += [item for item in other.incidents if (item["what"], item.get("epoch"), item.get("take")) not in known]
    into.first_ts, into.last_ts = min(into.first_ts, other.first_ts), max(into.last_ts, other.last_ts)
    into.open = _either(into.open, other.open)


def _both(ours: dict[str, Any] | None, theirs: dict[str, Any] | None) -> dict[str, Any] | None:
    """What two streams tell of one validation; where both tell a figure, the one that has all its digits counts."""
    if ours is None or theirs is None:
        return ours or theirs
    if theirs.get("exact") and not ours.get("exact"):
        ours, theirs = theirs, ours
    return {**theirs, **ours}


def _further(theirs: dict[str, Any], ours: dict[str, Any]) -> bool:
    left, right = ((one["iterations_done"], one.get("train_s") is not None) for one in (theirs, ours))
    return bool(left > right)


def _either(left: bool | None, right: bool | None) -> bool | None:
    if left or right:
        return True
    return None if left is None or right is None else False
