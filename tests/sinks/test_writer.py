"""The writer: by size, by flush, through a store that is away, and never more in memory than it may."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import pytest

from yolometer_core.errors import BadInput, BadStore, StoreUnavailable
from yolometer_core.events import Event, Incident
from yolometer_sinks.stores._base import Store, Table
from yolometer_sinks.writer import Writer


def said(seq: int) -> Incident:
    return Incident(ts=datetime(2026, 3, 1, tzinfo=UTC), node="n", source="s", seq=seq, place="/p", what="completed", batch=1)


class ListStore:
    """A store that is a list; it is away for the next `away` writes, and an event whose seq is in `bad` is no row."""

    name = "list"

    def __init__(self, away: int = 0, bad: Sequence[int] = ()) -> None:
        self.away, self.bad, self.calls = away, set(bad), 0
        self.rows: list[int] = []

    def write(self, events: Sequence[Event]) -> None:
        self.calls += 1
        if self.away:
            self.away -= 1
            raise StoreUnavailable("away")
        if self.bad & {event.seq for event in events}:
            raise BadInput("no row")
        self.rows.extend(event.seq for event in events)

    def migrate(self) -> list[str]:
        return []

    def query(self, sql: str, params: Mapping[str, Any] | None = None) -> Table:
        return Table((), [])

    def command(self, sql: str, params: Mapping[str, Any] | None = None) -> None: ...

    def close(self) -> None: ...


def writer(store: Store, pauses: list[float] | None = None, **settings: Any) -> Writer:
    pauses = [] if pauses is None else pauses
    return Writer(store, sleep=pauses.append, random_ratio=lambda: 1.0, **settings)


def test_it_writes_by_size_and_when_told() -> None:
    store = ListStore()
    w = writer(store, max_rows=3)
    w.add([said(1), said(2)])
    assert store.rows == [] and w.held == 2
    w.add([said(3), said(4)])
    assert store.rows == [1, 2, 3, 4] and store.calls == 2 and w.held == 0
    w.add([said(5)])
    w.flush()
    assert store.rows == [1, 2, 3, 4, 5] and w.written == 5
    w.flush()
    assert store.calls == 3


def test_it_waits_for_a_store_that_is_away() -> None:
    store, pauses = ListStore(away=3), list[float]()
    w = writer(store, pauses, attempts=5)
    w.add([said(1)])
    w.flush()
    assert store.rows == [1] and pauses == [0.2, 0.4, 0.8] and w.last_error is None


def test_the_pauses_have_jitter_and_an_end() -> None:
    pauses = list[float]()
    w = Writer(ListStore(away=99), attempts=10, sleep=pauses.append, random_ratio=lambda: 0.0)
    w.add([said(1)])
    with pytest.raises(StoreUnavailable):
        w.flush()
    assert pauses[0] == 0.1 and pauses[-1] == 5.0 and len(pauses) == 9


def test_it_holds_what_it_could_not_write_and_refuses_what_does_not_fit() -> None:
    store = ListStore(away=100)
    w = writer(store, max_rows=2, max_held=4, attempts=2)
    w.add([said(1), said(2)])
    w.add([said(3), said(4)])
    assert w.held == 4 and isinstance(w.last_error, StoreUnavailable)
    with pytest.raises(StoreUnavailable, match="no room for more"):
        w.add([said(5)])
    assert w.held == 4
    store.away = 0
    w.add([said(5)])
    w.flush()
    assert store.rows == [1, 2, 3, 4, 5] and w.held == 0


def test_a_bad_event_goes_to_the_dead_letters_alone() -> None:
    store, dead = ListStore(bad=[3, 7]), list[int]()
    w = writer(store, max_rows=10, reject=lambda event, error: dead.append(event.seq))
    w.add([said(seq) for seq in range(10)])
    assert sorted(store.rows) == [0, 1, 2, 4, 5, 6, 8, 9] and dead == [3, 7]
    assert (w.written, w.rejected, w.held) == (8, 2, 0)


def test_without_dead_letters_a_bad_event_is_raised_and_nothing_is_lost() -> None:
    w = writer(ListStore(bad=[1]), max_rows=2)
    with pytest.raises(BadInput):
        w.add([said(0), said(1)])
    assert w.held == 2


def test_a_store_that_contradicts_is_not_retried() -> None:
    class Edited(ListStore):
        def write(self, events: Sequence[Event]) -> None:
            self.calls += 1
            raise BadStore("edited")

    store = Edited()
    w = writer(store)
    w.add([said(1)])
    with pytest.raises(BadStore):
        w.flush()
    assert store.calls == 1 and w.held == 1


def test_settings_that_cannot_work() -> None:
    for max_rows, max_held, attempts in ((0, 1, 1), (2, 1, 1), (1, 1, 0)):
        with pytest.raises(ValueError, match="max_rows"):
            writer(ListStore(), max_rows=max_rows, max_held=max_held, attempts=attempts)
    with pytest.raises(ValueError, match="at once"):
        writer(ListStore(), max_rows=1, max_held=1).add([said(1), said(2)])


def test_a_list_is_a_store() -> None:
    assert isinstance(ListStore(), Store)


def test_on_a_real_store(store: Store) -> None:
    w = Writer(store, max_rows=50)
    for seq in range(120):
        w.add([said(seq)])
    assert store.query("SELECT count() FROM incidents").rows == [(100,)]
    w.flush()
    assert store.query("SELECT count(), sum(batch) FROM incidents").rows == [(120, 120)]
