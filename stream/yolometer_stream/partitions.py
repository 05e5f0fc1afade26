"""Partitions: what a worker does with messages and with what it remembers, without Kafka: no IO, no clock, no log."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from yolometer_core import letters
from yolometer_core.service.limits import DeadLimit
from yolometer_stream.advance import States
from yolometer_stream.handle import Outcome, Output, dead_letters, handle
from yolometer_stream.journal import Journal, Name, Record
from yolometer_stream.operator import Operator


class Taken(NamedTuple):
    """A message as it came; `topic` without the prefix of the deployment, `ts_ms` as Kafka has it."""

    topic: str
    partition: int
    offset: int
    ts_ms: int
    key: bytes | None
    value: bytes | None

    @property
    def name(self) -> Name | None:
        """Where its state is; None for a key that is no text (such a message is dead)."""
        try:
            return None if self.key is None else (self.topic, self.key.decode())
        except UnicodeDecodeError:
            return None


class Partitions:
    """The journals of the partitions of this worker, and the handling of their messages.

    For each batch: `unknown` tells what has to be asked for first, `take` each message in order, then `save`. A partition
    is *cold* when its state was lost although messages of it were handled before: unknown names are asked for elsewhere,
    for 30 days, and for the first `cold_s` seconds nothing urgent is said (times as Kafka has them for the messages).
    """

    def __init__(
        self,
        operators: Mapping[str, Operator],
        limit: DeadLimit,
        *,
        cold_s: float = 900.0,
        cache: int = 5000,
        prefix: str = "",
        seen: Callable[[Taken, Outcome], object] = lambda message, outcome: None,
    ) -> None:
        self._operators = operators
        self._limit = limit
        self._cold_ms = int(cold_s * 1000)
        self._cache = cache
        self._prefix = prefix
        self._seen = seen
        self._journals: dict[int, Journal] = {}
        self._lost: set[tuple[int, Name]] = set()
        self._newest_ms: dict[int, int] = {}
        self._unchecked: set[int] = set()

    def journal(self, partition: int) -> Journal:
        """The journal of a partition, empty when it is new."""
        found = self._journals.get(partition)
        if found is None:
            found = self._journals[partition] = Journal(self._operators, lambda name: self._lost.add((partition, name)))
        return found

    def begin(self, partitions: Iterable[int], generation: int) -> None:
        """These partitions are ours now, and all records of them were applied; whatever is known of others is forgotten."""
        kept = set(partitions)
        self.drop(self._journals.keys() - kept)
        for partition in kept:
            self.journal(partition).begin(generation)
        self._unchecked = kept

    def drop(self, partitions: Iterable[int]) -> None:
        """Forget partitions that went to another worker: when they come back, all their records are applied anew."""
        for partition in list(partitions):
            self._journals.pop(partition, None)
            self._newest_ms.pop(partition, None)
            self._lost = {item for item in self._lost if item[0] != partition}

    @property
    def cold(self) -> bool:
        """Whether one of the partitions is cold."""
        return any(self._is_cold(partition, at_ms) for partition, at_ms in self._newest_ms.items())

    def unknown(self, messages: Iterable[Taken], went_on: Callable[[int], bool]) -> dict[tuple[int, Name], int]:
        """The names among `messages` that were known once and are not any more, to be told with `told` before `take`,
        each with the offset of its first message here.

        `went_on(partition)` says whether messages of the partition were handled before this worker got it.
        """
        found: dict[tuple[int, Name], int] = {}
        for message in messages:
            journal = self.journal(message.partition)
            if message.partition in self._unchecked:
                self._unchecked.discard(message.partition)
                if not len(journal) and journal.lost_at_ms is None and went_on(message.partition):
                    journal.lost(message.ts_ms)
            name = message.name
            if name is None or journal.bundle(name) is not None:
                continue
            if journal.asks(message.ts_ms) or (message.partition, name) in self._lost:
                found.setdefault((message.partition, name), message.offset)
        return found

    def told(self, partition: int, name: Name, bundle: States | None) -> None:
        """What could be found elsewhere of a name that was asked for; None: nothing."""
        self._lost.discard((partition, name))
        self.journal(partition).start(name, bundle or {})

    def take(self, message: Taken) -> list[Output]:
        """Handle one message; returns what to produce. BadDeploy when too many are refused: then nothing may be acknowledged."""
        journal, name = self.journal(message.partition), message.name
        newest_ms = self._newest_ms[message.partition] = max(self._newest_ms.get(message.partition, 0), message.ts_ms)
        bundle: States = {}
        if name is not None:
            known = journal.bundle(name)
            bundle = journal.start(name, {}) if known is None else known
        cold = self._is_cold(message.partition, newest_ms)
        outcome = handle(self._operators, bundle, message.key, message.value, message.topic, cold=cold)
        if name is not None and outcome.failed:
            journal.undo(name)
        elif name is not None and outcome.took and message.value is not None:
            journal.took(name, message.value)
        self._seen(message, outcome)
        self._limit.seen(not outcome.dead, outcome.dead[0].detail if outcome.dead else "")
        if not outcome.dead:
            return outcome.outputs
        record = letters.Record(self._prefix + message.topic, *message[1:3], message.key, message.value, message.ts_ms)
        return [*outcome.outputs, *dead_letters(outcome, record)]

    def save(self) -> dict[int, list[Record]]:
        """The records that keep what was taken, in order, by partition."""
        found = {partition: records for partition, journal in self._journals.items() if (records := journal.save())}
        most = max(self._cache // max(len(self._journals), 1), 1)
        for journal in self._journals.values():
            journal.trim(most)
        return found

    def _is_cold(self, partition: int, at_ms: int) -> bool:
        lost_at_ms = self.journal(partition).lost_at_ms
        return lost_at_ms is not None and at_ms < lost_at_ms + self._cold_ms
