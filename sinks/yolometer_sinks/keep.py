"""Keeps a batch: its rows in the store, its bad rows among the dead letters; retries for ever what is away."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from yolometer_core.delivery import DeadLetter
from yolometer_core.errors import BadInput
from yolometer_core.events import Event
from yolometer_core.letters import letter
from yolometer_core.service.health import Health
from yolometer_core.service.limits import DeadLimit
from yolometer_core.service.metrics import Metrics
from yolometer_core.service.stopping import Stop
from yolometer_sinks import rollups
from yolometer_sinks.batch import Batch
from yolometer_sinks.collect import SOURCE, minutes_of
from yolometer_sinks.letters import DeadTopic
from yolometer_sinks.patience import Patience
from yolometer_sinks.stores._arrow import sift, tables
from yolometer_sinks.stores._base import ColumnStore, Store


class Keeper:
    """Keeps batches in one store, one after the other. For one thread."""

    def __init__(
        self, store: Store, dead: DeadTopic, limit: DeadLimit, stop: Stop, health: Health, metrics: Metrics,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        self._store, self._dead, self._limit, self._metrics, self._clock = store, dead, limit, metrics, clock
        self._patience = Patience(stop, health, clock=clock)

    def prepare(self, batch: Batch) -> None:
        """Make columns of the events of a batch; `keep` does it where this was left out.

        It is work for the thread that reads: two threads that compute in Python wait for one another at every step, while
        one that only waits for the store costs nothing.
        """
        if isinstance(self._store, ColumnStore):
            with contextlib.suppress(BadInput):  # keep() finds out which
                batch.built = tables(batch.events)

    def keep(self, batch: Batch) -> None:
        """Keep a batch. When it returns, its offsets may be committed. In order:

        1. its rows are written; bad ones are found and become dead letters;
        2. the limit on dead letters is asked: BadDeploy when it trips;
        3. the minutes that its samples lie in are noted, so that their usage is made again;
        4. the dead letters are produced, and acknowledged by Kafka; those about the topic `dead` itself become rows at once.

        What fails in between is done again from the start, here or by the next process: each step may be done twice.
        Raises Stopped when it is time to stop, BadStore or another Bad for what no retry will mend.
        """
        dead = [one for taken in batch.taken for one in taken.dead]
        events = batch.events
        begun_s = self._clock()
        refused = self._written(events, batch.built)
        if batch.rows:
            self._metrics.inserted(batch.rows, self._clock() - begun_s)
        rejected = [letter(*batch.origin(event), "store", str(error), node=event.node, source=SOURCE) for event, error in refused]
        self._count(batch, rejected)
        if minutes := minutes_of(events):
            self._patience.until(lambda: rollups.touch(self._store, 60, minutes))
        self._give_up([*dead, *rejected])
        for one in (*dead, *rejected):
            self._metrics.dead(one.reason)
        self._metrics.events("ok", sum(len(taken.events) for taken in batch.taken) - len(rejected))

    def _written(self, events: Sequence[Event], built: Mapping[str, Any] | None = None) -> list[tuple[Event, BadInput]]:
        """Write the events; those that can never be rows come back. What the store alone refuses is found by halving."""
        if not events:
            return []
        try:
            store = self._store
            if built is not None and isinstance(store, ColumnStore):
                self._patience.until(lambda: store.write_tables(built))
            else:
                self._patience.until(lambda: store.write(events))
        except BadInput as error:
            if len(events) == 1:
                return [(events[0], error)]
            good, bad = sift(events)
            if bad:
                return bad + self._written(good)
            middle = len(events) // 2
            return self._written(events[:middle]) + self._written(events[middle:])
        return []

    def _count(self, batch: Batch, rejected: Sequence[DeadLetter]) -> None:
        where = {(one.from_topic, one.from_partition, one.from_offset): one.detail for one in rejected}
        for taken in batch.taken:
            record = taken.record
            detail = where.get((record.topic, record.partition, record.offset))
            self._limit.seen(detail is None, detail or "")

    def _give_up(self, letters: Sequence[DeadLetter]) -> None:
        """Produce dead letters. Those of the topic `dead` itself, and those that Kafka refuses, go into the table at once."""
        rows: list[Event] = [one for one in letters if self._dead.is_own(one)]
        if others := [one for one in letters if not self._dead.is_own(one)]:
            rows += self._patience.until(lambda: self._dead.send(others))
        if rows:
            self._patience.until(lambda: self._store.write(rows))
