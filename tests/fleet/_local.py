"""The in-process runner of these tests: messages through the operators and into a store, without Kafka, Faust or the sink."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from yolometer.box import operators
from yolometer_core.delivery import DeadLetter
from yolometer_core.events import Event
from yolometer_core.letters import Record
from yolometer_sinks import rollups
from yolometer_sinks.collect import Bounds, collect, minutes_of
from yolometer_sinks.stores._base import Store
from yolometer_stream.advance import States
from yolometer_stream.handle import dead_letters, handle, topics_of
from yolometer_stream.runs.rows import Terms

NO_BOUNDS = Bounds(0, 2**53)
MOST_EVENTS = 5000


class Given(NamedTuple):
    """A message of a topic, by its name without a prefix."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None


def run_locally(messages: Iterable[Given], store: Store, prefix: str) -> None:
    """Handle the messages in this order and write all rows into the store; what the stream tells itself comes back at once.

    The state is one dictionary per (topic, key), kept in memory and never saved: the simplest runner there can be.
    """
    parts = operators(Terms())
    read = topics_of(parts)
    bundles: dict[tuple[str, bytes | None], States] = {}
    waiting: deque[Given] = deque()
    events: list[Event] = []
    samples: list[Event] = []
    for message in messages:
        waiting.append(message)
        while waiting:
            topic, partition, offset, key, value = waiting.popleft()
            record = Record(prefix + topic, partition, offset, key, value, 0)
            taken = collect(record, NO_BOUNDS)
            events += [*taken.events, *taken.dead]
            samples += taken.events
            if topic in read:
                outcome = handle(parts, bundles.setdefault((topic, key), {}), key, value, topic)
                assert not outcome.failed, outcome.dead
                said = (*outcome.outputs, *dead_letters(outcome, record))
                waiting.extend(Given(out.topic, 0, 0, out.key, out.value) for out in said)
        if len(events) > MOST_EVENTS:
            store.write(events)
            events = []
    store.write(events)
    if minutes := minutes_of(samples):
        rollups.touch(store, 60, minutes)
        rollups.step(store)


def by_partition(given: Sequence[Given]) -> list[Given]:
    """One partition after the other."""
    return sorted(given, key=lambda one: (one.partition, one.topic, one.offset))


def in_turns(given: Sequence[Given]) -> list[Given]:
    """One message of each partition in turn."""
    return sorted(given, key=lambda one: (one.offset, one.topic, -one.partition))


__all__ = ["DeadLetter", "Given", "by_partition", "in_turns", "run_locally"]
