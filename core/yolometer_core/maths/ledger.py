"""A ledger of money by event time: what a period and a window come to, and what a closed period was before late entries.

Its state is a function of the set of entries, never of their order. Money is in integer micro-units, times in whole microseconds
since 1970, periods are half-open (docs/prices.md, "Arithmetic").
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

CLOSES_AFTER_US = 48 * 3_600_000_000
"""A period is closed so long after its end; later entries adjust it and fire nothing."""


class Entry(NamedTuple):
    """Money spent at one time. Of an `id` the highest `rev` holds; a correction is the same id with the next rev.

    `arrival_us` is when it became known. Of two entries with the same id and rev the one that arrived first holds.
    """

    id: str
    rev: int
    t_us: int
    micro: int
    arrival_us: int
    reason: str | None = None


class Totals(NamedTuple):
    """What is spent. `accepted` counts the ids that are known, `waiting` those that lie in the future: not counted yet."""

    period_micro: int
    window_micro: int
    accepted: int
    waiting: int


class Adjustment(NamedTuple):
    """How an entry changed a closed period: by `micro`, and why (`late`, `correction`, or the entry's own reason)."""

    id: str
    rev: int
    arrival_us: int
    micro: int
    reason: str


class Statement(NamedTuple):
    """A closed period: what it was when it closed, what it is now, and the adjustments between the two, in order of arrival."""

    as_closed_micro: int
    restated_micro: int
    adjustments: tuple[Adjustment, ...]


def standing(entries: Iterable[Entry], arrived_by_us: int | None = None) -> dict[str, Entry]:
    """The entry that holds of each id, among those that had arrived by then (None: all of them)."""
    holds: dict[str, Entry] = {}
    for entry in entries:
        if (arrived_by_us is None or entry.arrival_us <= arrived_by_us) and _wins(entry, holds.get(entry.id)):
            holds[entry.id] = entry
    return holds


def _wins(entry: Entry, before: Entry | None) -> bool:
    return before is None or _strength(entry) > _strength(before)


def _strength(entry: Entry) -> tuple[int, int, int, int, str]:
    """Entries in a total order, so that the same set always has the same winner."""
    return entry.rev, -entry.arrival_us, entry.t_us, entry.micro, entry.reason or ""


def totals(
    entries: Iterable[Entry], begin_us: int, end_us: int, now_us: int, window_us: int, arrived_by_us: int | None = None
) -> Totals:
    """The period [begin, end) up to now, and the window (now - window, now], which also reaches back over the begin."""
    holds = standing(entries, arrived_by_us).values()
    due = [entry for entry in holds if entry.t_us <= now_us]
    period = sum(entry.micro for entry in due if begin_us <= entry.t_us < end_us)
    window = sum(entry.micro for entry in due if entry.t_us > now_us - window_us)
    return Totals(period, window, len(holds), len(holds) - len(due))


def statement(entries: Iterable[Entry], begin_us: int, end_us: int, closed_us: int | None = None) -> Statement:
    """The period [begin, end) as it was when it closed (None: 48 hours after its end) and as it is now."""
    closed_us = end_us + CLOSES_AFTER_US if closed_us is None else closed_us
    all_entries = sorted(entries, key=lambda entry: (entry.arrival_us, entry.id, _strength(entry)))
    holds = standing(all_entries, closed_us)
    as_closed = sum(_inside(entry, begin_us, end_us) for entry in holds.values())
    adjustments = []
    for entry in all_entries:
        before = holds.get(entry.id)
        if entry.arrival_us <= closed_us or not _wins(entry, before):
            continue
        holds[entry.id] = entry
        change = _inside(entry, begin_us, end_us) - _inside(before, begin_us, end_us)
        if change:
            reason = entry.reason or ("late" if before is None else "correction")
            adjustments.append(Adjustment(entry.id, entry.rev, entry.arrival_us, change, reason))
    restated = sum(_inside(entry, begin_us, end_us) for entry in holds.values())
    return Statement(as_closed, restated, tuple(adjustments))


def _inside(entry: Entry | None, begin_us: int, end_us: int) -> int:
    """What an entry adds to the period."""
    return entry.micro if entry is not None and begin_us <= entry.t_us < end_us else 0
