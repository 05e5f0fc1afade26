"""Batches: the order of side effects when a worker handles messages, whatever brings them and takes what follows."""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from yolometer_core.errors import Unavailable
from yolometer_core.service.health import Health
from yolometer_core.service.limits import DeadLimit
from yolometer_core.service.logs import logger
from yolometer_core.service.metrics import Metrics
from yolometer_core.service.stopping import Stop, last_words
from yolometer_stream.advance import States
from yolometer_stream.config import StreamConfig
from yolometer_stream.handle import Outcome, Output
from yolometer_stream.journal import Record
from yolometer_stream.operator import Operator
from yolometer_stream.partitions import Partitions, Taken

STORE_RETRY_S = (0.5, 30.0)
YIELD_S = 0.05
Rebuild = Callable[[str, str, int, int], States | None]
"""(topic, key, partition, offset) -> the state as all messages before that offset have left it, or None. May be Unavailable."""
"""What can be found elsewhere of the state of (topic, key). Called in a thread; when it is Unavailable it is asked again."""


class Producing(Protocol):
    """How a worker produces; both return when Kafka has acknowledged all, and raise when it did not."""

    async def outputs(self, records: Sequence[Output]) -> None:
        """Produce messages to where their keys belong."""
        ...

    async def records(self, partition: int, records: Sequence[Record]) -> None:
        """Produce records of state, in order, into this partition of the changelog."""
        ...


@dataclass
class Services:
    """What a worker reports to, and how it ends its process."""

    health: Health
    metrics: Metrics
    stop: Stop
    exit: Callable[[int], object] = os._exit

    def end(self, code: int, sentence: str | None = None) -> None:
        """End the process now, with one sentence on stderr; what is not acknowledged comes again."""
        if sentence:
            last_words(lambda: os.write(2, f"yolometer: {sentence}\n".encode()))
        self.exit(code)


class Batches:
    """Handles batches of messages with the state in its `partitions`.

    `went_on(partition)` says whether messages of a partition were handled before it came to this worker.
    """

    def __init__(
        self, config: StreamConfig, operators: Mapping[str, Operator], services: Services, rebuild: Rebuild | None, *,
        producing: Producing, went_on: Callable[[int], bool],
    ) -> None:  # fmt: skip
        limit = DeadLimit(config.dead_ratio, max_consecutive=config.dead_in_a_row)
        self.partitions = Partitions(operators, limit, cold_s=config.cold_s, cache=config.state_cache_keys,
                                     prefix=config.kafka.prefix, seen=self._seen)  # fmt: skip
        self._services, self._rebuild = services, rebuild
        self._producing, self._went_on = producing, went_on
        self._log = logger("stream")
        self._warned = False
        self._handled: Counter[Literal["ok", "ignored"]] = Counter()

    async def take(self, messages: list[Taken]) -> None:
        """Handle a batch. The order of side effects:

        1. All messages are handled, in order; nothing leaves the process.
        2. What follows from them, and the dead letters, are produced and acknowledged by Kafka.
        3. The records of the journals are produced, each into the partition of its messages, and acknowledged.
        4. Only then the caller acknowledges the messages, in order; Faust commits later.

        A crash before 3 is done handles them again from the same state: the same outputs, with the same ids. After 3 the
        state knows them, and operators pass over what they have seen; the outputs were there before the state was.
        """
        await self._ask(messages)
        outputs: list[Output] = []
        pause = time.monotonic()
        for message in messages:
            outputs += self.partitions.take(message)
            if (now := time.monotonic()) - pause > YIELD_S:  # the commits and the answers to health live on the same loop
                await asyncio.sleep(0)
                pause = now
                self._services.health.progress()
        self._services.health.cold(self.partitions.cold)
        for what, count in self._handled.items():
            self._services.metrics.events(what, count)
        self._handled.clear()
        if outputs:
            await self._producing.outputs(outputs)
        kept = self.partitions.save()
        await asyncio.gather(*(self._producing.records(partition, records) for partition, records in kept.items()))

    async def _ask(self, messages: list[Taken]) -> None:
        """Find elsewhere what is not known any more; a store that is away is waited for, nothing is acknowledged meanwhile."""
        for (partition, name), offset in self.partitions.unknown(messages, self._went_on).items():
            found: States | None = None
            if self._rebuild is not None:
                found = await self._rebuilt(*name, partition, offset)
            elif not self._warned:
                self._warned = True
                self._log.warning("State was lost and there is no store to make it from; it begins empty", partition=partition)
            self.partitions.told(partition, name, found)

    async def _rebuilt(self, name: str, key: str, partition: int, offset: int) -> States | None:
        assert self._rebuild is not None  # noqa: S101  # the caller looked
        wait_s = STORE_RETRY_S[0]
        while True:
            try:
                found = await asyncio.to_thread(self._rebuild, name, key, partition, offset)
            except Unavailable as error:
                self._services.health.problem(f"State has to be made again and cannot be yet: {error}")
                self._log.warning("State has to be made again and cannot be yet; waiting", error=str(error))
                if self._services.stop.wished:
                    self._services.end(0)  # it would wait for ever, and what is not acknowledged comes again
                await asyncio.sleep(wait_s)
                self._services.health.progress()
                wait_s = min(wait_s * 2, STORE_RETRY_S[1])
            else:
                self._services.health.problem(None)
                return found

    def _seen(self, message: Taken, outcome: Outcome) -> None:
        for dead in outcome.dead:
            self._services.metrics.dead(dead.reason)
            self._log.warning(
                f"Refused: {dead.detail}", topic=message.topic, partition=message.partition, offset=message.offset, at=dead.at
            )  # fmt: skip
        if not outcome.failed:
            good = outcome.events - sum(dead.at >= 0 for dead in outcome.dead)
            self._handled["ok" if outcome.took else "ignored"] += max(good, 0)
