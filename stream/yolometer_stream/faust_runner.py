"""Faust, and everything that has to be known about it: one app over all topics, with the journals as its one table.

Faust brings the consumer group, the recovery of the table and the commits. What it does wrong is gone around here, each with
its reason, or mended in faust_mends; the tests of this file fail when a newer one behaves otherwise.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import faust
from aiokafka.abc import AbstractTokenProvider
from aiokafka.errors import KafkaConnectionError
from faust.stores.memory import Store as MemoryStore
from faust.types import TP

from yolometer_core.errors import Bad, Unavailable
from yolometer_core.kafka import KafkaConfig, password, ssl_context, token, topic
from yolometer_core.service.garbage import collect_seldom
from yolometer_core.service.health import EXIT_STUCK, Health
from yolometer_core.service.logs import logger
from yolometer_core.topics import STATE_TABLE, app_id, changelog
from yolometer_stream.batches import Batches, Rebuild, Services
from yolometer_stream.config import StreamConfig
from yolometer_stream.faust_mends import App, Consumer, Producer, Worker
from yolometer_stream.handle import Output, topics_of
from yolometer_stream.journal import Record
from yolometer_stream.operator import Operator
from yolometer_stream.partitions import Partitions, Taken

EXIT_BROKEN = 70
WATCH_S = 1.0
LARGEST_REQUEST_BYTES = 1_000_000
BATCH_BYTES = 262_144
MOST_TAKEN_BYTES = 16 << 20


class _Shelf(MemoryStore[Any, Any]):
    """The table as Faust sees it: it hands the changelog to the journals, and says how far they know it.

    A partition that went away is forgotten at once, so that it is read anew when it comes back. One that stays is read on
    from the last record up to which every record is known: those read, then our own as long as nobody else wrote between.
    """

    partitions: Partitions
    health: Health
    known: dict[int, int]
    changelog: str

    def apply_changelog_batch(self, batch: Iterable[Any], to_key: Any, to_value: Any) -> None:
        for event in batch:
            message = event.message
            if message.key is not None:
                self.partitions.journal(message.partition).apply(message.key, message.value)
            self.known[message.partition] = max(self.known.get(message.partition, -1), message.offset)
        self.health.progress()

    def wrote(self, partition: int, first: int, count: int) -> None:
        """Our own records got these offsets, from `first` on."""
        if first == self.known.get(partition, -2) + 1:
            self.known[partition] = first + count - 1

    def persisted_offset(self, tp: TP) -> int | None:
        return self.known.get(tp.partition)

    async def on_rebalance(self, assigned: set[TP], revoked: set[TP], newly: set[TP], generation_id: int = 0) -> None:
        gone = self.known.keys() - {tp.partition for tp in assigned if tp.topic == self.changelog}
        self.partitions.drop(gone)
        for partition in gone:
            del self.known[partition]

    async def on_recovery_completed(self, active_tps: set[TP], standby_tps: set[TP]) -> None:
        self.partitions.begin((tp.partition for tp in active_tps), self.app.consumer_generation_id)
        tables: Any = self.app.tables
        ends = tables.recovery.active_highwaters
        for tp in active_tps:  # a log that ends with what compaction took away is known to its end as well
            self.known[tp.partition] = max(self.known.get(tp.partition, -1), ends.get(tp) or -1)


def run(config: StreamConfig, operators: Mapping[str, Operator], services: Services, rebuild: Rebuild | None) -> int:
    """Work until `services.stop` is wished; returns the exit code. The topics must be there.

    Ends the process by itself, leaving what is not acknowledged for the next one: with 1 when too many messages are refused
    (one sentence on stderr), with 70 after an error that nobody expected or when nothing moves any more.
    """
    collect_seldom()
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    runner = Runner(config, operators, services, rebuild)
    worker = Worker(
        runner.app, loop=loop, quiet=True, redirect_stdouts=False, override_logging=False, loglevel="WARN"
    )  # fmt: skip
    runner.shelve()
    loop.add_reader(services.stop.fileno(), lambda: _stop(loop, worker, runner))
    watch = loop.create_task(runner.watch(worker))
    try:
        loop.run_until_complete(worker.start())
        if runner.stopping is not None:
            loop.run_until_complete(runner.stopping)
    except KafkaConnectionError as error:  # it was there a moment ago, when the topics were looked at
        watch.cancel()
        raise Unavailable(f"Kafka does not answer any more ({error}); see whether it runs, then start this again.") from None
    except Exception:  # noqa: BLE001  # whatever Faust could not start or go on with: a supervisor starts it again
        logger("stream").critical("Faust ended with an error", exc_info=True)
        return EXIT_BROKEN
    watch.cancel()
    return EXIT_BROKEN if worker.crashed else 0


def _stop(loop: asyncio.AbstractEventLoop, worker: Worker, runner: Runner) -> None:
    loop.remove_reader(runner.services.stop.fileno())
    if not runner.ready:
        # In the middle of joining Faust does not stop for minutes, and there is nothing that it could lose.
        runner.services.exit(0)
    runner.stopping = loop.create_task(worker.stop())


class Runner:
    """One app: it takes messages in batches, and for each batch keeps the order that `take` describes."""

    def __init__(
        self, config: StreamConfig, operators: Mapping[str, Operator], services: Services, rebuild: Rebuild | None
    ) -> None:
        self.config, self.services = config, services
        self._short = {topic(config.kafka, name): name for name in topics_of(operators)}
        self.app = make_app(config)
        self.batches = Batches(config, operators, services, rebuild, producing=self, went_on=self._went_on)
        self._changelog = changelog(app_id(config.kafka), STATE_TABLE)
        self._table: Any = self.app.Table(STATE_TABLE, key_type=bytes, value_type=bytes)
        self._shelf: _Shelf | None = None
        self._log = logger("stream")
        self.app.agent(self.app.topic(*sorted(self._short)), concurrency=1)(self._agent)
        self.app.on_rebalance_complete.connect(self._on_ready, weak=False)
        self.stopping: asyncio.Task[Any] | None = None
        self.ready = False
        self.done: dict[TP, int] = {}
        self._begins: dict[TP, int] = {}

    def shelve(self) -> None:
        """Put the journals where Faust keeps the data of its table; inside the loop, before the app starts."""
        shelf = _Shelf("memory://", self.app, self._table, table_name=STATE_TABLE, loop=self._table.loop)
        shelf.partitions, shelf.health, shelf.known = self.batches.partitions, self.services.health, {}
        shelf.changelog = self._changelog
        self._table._data = self._shelf = shelf

    async def outputs(self, records: Sequence[Output]) -> None:
        """Produce messages to where their keys belong."""
        producer, prefix = self.app.producer, self.config.kafka.prefix
        waiting = [await producer.send(prefix + each.topic, each.key, each.value, None, None, None) for each in records]
        await producer.flush()
        for each in waiting:
            await each

    async def records(self, partition: int, records: Sequence[Record]) -> None:
        """Produce records of state into their partition, as whole batches: a third of the cost of sending each."""
        producer = self.app.producer._producer
        at = 0
        while at < len(records):
            batch = producer.create_batch()
            count = 0
            while at < len(records) and batch.append(key=records[at][0], value=records[at][1], timestamp=None) is not None:
                at += 1
                count += 1
            batch.close()
            done = await (await producer.send_batch(batch, self._changelog, partition=partition))
            if self._shelf is not None:
                self._shelf.wrote(partition, done.offset, count)

    async def _on_ready(self, *_: Any, **__: Any) -> None:
        self.ready = True
        self.services.health.progress()

    async def _agent(self, stream: Any) -> None:
        try:
            await self._work(stream.channel.queue)
        except StopAsyncIteration:
            pass  # the queue says that the stream has ended
        except asyncio.CancelledError:
            # At a stop Faust cancels its agents before it tells them, and would call this a crash, with a trace.
            if self.stopping is None:
                raise

    async def _work(self, queue: Any) -> None:
        # Every event is acknowledged, in order, by one agent: a gap of one is committed past, an exception that leaves
        # the body acknowledges what it did not handle, and a second agent would acknowledge out of order.
        # They are taken from the queue of the channel itself: what Faust puts in between costs half of all that it costs.
        while True:
            batch = await self._batch(queue)
            try:
                with self.services.health.working():
                    await self.batches.take([self._taken(event.message) for event in batch])
                    for event in batch:
                        event.ack()
                        self.done[event.message.tp] = event.message.offset + 1
                    self.services.health.success()
            except Bad as error:  # a version that cannot go on, or a store that will never answer
                self.services.end(1, str(error))
            except asyncio.CancelledError:
                raise
            except Exception:  # noqa: BLE001  # see above: it must not leave the body; the next process takes the batch
                self._log.critical("A batch of messages failed, and the worker ends so that it is started again", exc_info=True)
                self.services.exit(EXIT_BROKEN)

    async def _batch(self, queue: Any) -> list[Any]:
        """The next events: as soon as there are enough, or what came in the time of waiting since the first."""
        batch = [await queue.get()]
        size_bytes = len(batch[0].message.value or b"")
        if queue.qsize() + 1 < self.config.batch_messages:
            await asyncio.sleep(self.config.linger_s)
        while len(batch) < self.config.batch_messages and size_bytes < MOST_TAKEN_BYTES and not queue.empty():
            batch.append(queue.get_nowait())
            size_bytes += len(batch[-1].message.value or b"")
        return batch

    def _went_on(self, partition: int) -> bool:
        committed = self.app.consumer._committed_offset
        return any((committed.get(TP(name, partition)) or 0) > 0 for name in self._short)

    def _taken(self, message: Any) -> Taken:
        ts_ms = int((message.timestamp or 0) * 1000)
        return Taken(self._short[message.topic], message.partition, message.offset, ts_ms, message.key, message.value)

    async def watch(self, worker: Any) -> None:
        """Look once a second whether all goes on: tell the lag, expect progress while there is one, end what is broken."""
        with ExitStack() as expecting:
            expecting.enter_context(self.services.health.working())  # until the group is joined and the table is read
            still: dict[TP, tuple[int, float]] = {}
            busy = True
            while True:
                await asyncio.sleep(WATCH_S)
                if worker.crashed or self.app.crashed:
                    self.services.end(EXIT_BROKEN)
                if not self.ready:
                    continue
                waits = bool(self.app.rebalancing or await self._lag())
                if waits != busy:
                    busy = not busy
                    if busy:
                        expecting.enter_context(self.services.health.working())
                    else:
                        expecting.pop_all().close()
                if self._stands_still(still):
                    self.services.end(EXIT_STUCK, "What was handled is not committed any more; it ends to be started again.")

    async def _lag(self) -> int:
        """How many messages wait, in all partitions of this worker."""
        consumer, total = self.app.consumer, 0
        mine = {tp for tp in consumer.assignment() if tp.topic in self._short}
        for tp in self._begins.keys() - mine:
            self.done.pop(tp, None)
            del self._begins[tp]
            self.services.metrics.lag(tp.topic, tp.partition, None)
        if new := mine - self._begins.keys():
            self._begins.update(await consumer.earliest_offsets(*new))
        for tp in mine:
            at = self.done.get(tp, max(consumer._committed_offset.get(tp) or 0, self._begins.get(tp) or 0))
            end = consumer.highwater(tp)
            lag = None if end is None else max(end - at, 0)
            self.services.metrics.lag(tp.topic, tp.partition, lag)
            total += lag or 0
        return total

    def _stands_still(self, still: dict[TP, tuple[int, float]]) -> bool:
        """Whether messages were acknowledged and the commits stopped where they were, for too long."""
        now = time.monotonic()
        for tp, done in self.done.items():
            committed = self.app.consumer._committed_offset.get(tp) or 0
            before, since = still.get(tp, (-1, now))
            if committed >= done or committed != before:
                still[tp] = committed, now
            elif now - since > self.config.stuck_after_s:
                return True
        return False


def make_app(config: StreamConfig) -> Any:
    """The Faust app. Topics are never declared by it, the web server is off, nothing of a batch is dropped at its end."""
    app = App(
        app_id(config.kafka),
        broker="kafka://" + ";kafka://".join(config.kafka.bootstrap_servers),
        broker_credentials=_credentials(config.kafka),
        key_serializer="raw",
        value_serializer="raw",
        web_enabled=False,
        autodiscover=False,
        topic_allow_declare=False,
        topic_disable_leader=True,
        table_standby_replicas=0,
        consumer_auto_offset_reset="earliest",
        consumer_metadata_max_age_ms=60_000,
        stream_wait_empty=True,
        stream_buffer_maxsize=max(config.batch_messages, 100),
        broker_commit_interval=0.5,
        broker_session_timeout=config.session_timeout_s,
        broker_heartbeat_interval=min(config.session_timeout_s / 6, 3.0),
        broker_max_poll_interval=86_400.0,  # a batch that waits for a store must not cost the partitions
        producer_linger=0.005,
        producer_compression_type="zstd",
        producer_max_batch_size=BATCH_BYTES,
        producer_max_request_size=LARGEST_REQUEST_BYTES,
    )
    transport: Any = app.transport
    transport.Producer, transport.Consumer = Producer, Consumer
    return app


def _credentials(config: KafkaConfig) -> Any:
    context = ssl_context(config)
    if config.sasl_mechanism == "OAUTHBEARER":
        return faust.auth.OAuthCredentials(oauth_cb=_Tokens(config), ssl_context=context)
    if config.sasl_mechanism is not None:
        return faust.SASLCredentials(
            username=config.username, password=password(config), mechanism=config.sasl_mechanism, ssl_context=context
        )  # fmt: skip
    return None if context is None else faust.SSLCredentials(context=context)


class _Tokens(AbstractTokenProvider):  # type: ignore[misc]  # aiokafka ships no types
    def __init__(self, config: KafkaConfig) -> None:
        self._config = config

    async def token(self) -> str:
        return await asyncio.to_thread(token, self._config)
