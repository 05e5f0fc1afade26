"""The sink as a service: puts the parts together, waits for what is away, and ends in time."""

from __future__ import annotations

import contextlib
import logging
import random
import threading
import time
from collections.abc import Callable

from kafka import KafkaConsumer
from kafka.errors import KafkaError, KafkaTimeoutError

from yolometer_core import wire
from yolometer_core.errors import Bad, Unavailable, YolometerError
from yolometer_core.kafka import KafkaConfig, client_settings, topic
from yolometer_core.kafka_reach import built, reach
from yolometer_core.service import logs
from yolometer_core.service.garbage import collect_seldom
from yolometer_core.service.health import Health
from yolometer_core.service.limits import DeadLimit
from yolometer_core.service.metrics import Metrics
from yolometer_core.service.stopping import Stop
from yolometer_sinks import rollups, unpack
from yolometer_sinks.config import SinkConfig
from yolometer_sinks.consume import Reader, missing, missing_sentence
from yolometer_sinks.keep import Keeper
from yolometer_sinks.letters import DeadTopic
from yolometer_sinks.open_store import open_store
from yolometer_sinks.patience import Patience, Stopped
from yolometer_sinks.stores._base import Store

REACH_S = 2.0
CONNECT_MS = 4_000
CONNECT_AGAIN_S = 5.0
LAST_STEP_S = 3.0
COARSE_S = 60.0


def topics() -> tuple[str, ...]:
    """The topics that carry events that are stored, without the prefix."""
    return tuple(sorted({str(form.kind.topic) for form in wire.forms().values() if form.kind.stored}))


def group(config: KafkaConfig) -> str:
    """The name of the consumer group of all sinks."""
    return topic(config, "sink")


def serve(config: SinkConfig, stop: Stop, health: Health, metrics: Metrics) -> None:
    """Write what comes through Kafka into the store until it is time to stop.

    A store or a Kafka that is away is waited for. Ends with BadDeploy when too many messages cannot be understood,
    BadStore when the store contradicts this version, Unavailable when a topic is missing; nothing of it is committed.
    """
    # It warns of each step of its own that took 0.1 s, which on a busy machine is no news to anybody.
    logging.getLogger("kafka.net.selector").setLevel(logging.ERROR)
    unpack.install()
    collect_seldom()
    patience = Patience(stop, health)
    store: Store | None = None
    try:
        with health.working():
            store = patience.until(lambda: opened(config))
            consumer = Patience(stop, health, longest_s=CONNECT_AGAIN_S).until(lambda: connected(config))
            _consume(config, store, consumer, stop, health, metrics)
    except Stopped:
        pass
    finally:
        if store is not None:
            with contextlib.suppress(YolometerError):
                store.close()


def opened(config: SinkConfig) -> Store:
    """The store, with its tables. EmptyStore when they are missing and it may not make them."""
    store = open_store(config.store_url())
    try:
        if config.migrate:
            for name in store.migrate():
                logs.logger("sink").info(f"Applied the migration {name}")
        store.query("SELECT count() FROM dirty_windows WHERE false")
    except BaseException:
        store.close()
        raise
    return store


def connected(config: SinkConfig) -> KafkaConsumer:
    """A consumer of the group that has not subscribed yet. Unavailable, one sentence, when Kafka does not answer."""
    reach(config.kafka, REACH_S)
    try:
        return built(
            KafkaConsumer,
            **client_settings(config.kafka),
            client_id="yolometer-sink",
            group_id=group(config.kafka),
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            allow_auto_create_topics=False,
            bootstrap_timeout_ms=CONNECT_MS,
            session_timeout_ms=int(config.session_timeout_s * 1000),
            heartbeat_interval_ms=int(config.session_timeout_s * 100),
            metadata_max_age_ms=10_000,  # added partitions are seen so soon
            reconnect_backoff_max_ms=2_000,
            fetch_max_bytes=16 << 20,
            max_poll_records=500,
            metrics_enabled=False,
        )
    except KafkaTimeoutError:
        raise Unavailable(
            f"{', '.join(config.kafka.bootstrap_servers)} takes connections and does not answer as Kafka does; "
            "see whether it is well, and whether kafka.tls, kafka.username and the password are right."
        ) from None


def _consume(
    config: SinkConfig, store: Store, consumer: KafkaConsumer, stop: Stop, health: Health, metrics: Metrics
) -> None:  # fmt: skip
    names = [topic(config.kafka, name) for name in topics()]
    dead = DeadTopic(config.kafka)
    limits = [DeadLimit(config.dead_ratio, max_consecutive=config.dead_in_a_row) for _ in range(2)]
    reader: Reader | None = None
    rollup: Rollups | None = None
    try:
        if gone := Patience(stop, health).until(lambda: _missing(consumer, names)):
            raise Unavailable(missing_sentence(gone))
        keeper = Keeper(store, dead, limits[0], stop, health, metrics)
        reader = Reader(
            consumer, names, keeper, limits[1], stop, health, metrics, batch_rows=config.batch_rows, batch_s=config.batch_s,
            late_s=config.late_s, future_s=config.future_s,
        )  # fmt: skip
        rollup = Rollups(store, config.rollup_s, stop, reader.fail)
        reader.run()
    finally:
        if reader is None:
            consumer.close(autocommit=False, timeout_ms=1000)
        else:
            reader.close(config.stop_s * 0.6)
        if rollup is not None:
            rollup.close(LAST_STEP_S)
        dead.close()


def _missing(consumer: KafkaConsumer, names: list[str]) -> list[str]:
    try:
        return missing(consumer, names)
    except KafkaError as error:
        raise Unavailable(f"Kafka does not say which topics it has ({error}); see whether it is well.") from None


class Rollups:
    """A thread that makes the usage of touched windows again, and once more at the end. Hours and days less often."""

    def __init__(
        self, store: Store, every_s: float, stop: Stop, fail: Callable[[BaseException], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        self._store, self._every_s, self._stop, self._fail, self._clock = store, every_s, stop, fail, clock
        self._last = threading.Event()
        self._thread = threading.Thread(target=self._run, name="rollups", daemon=True)
        self._thread.start()

    def close(self, seconds: float) -> None:
        """Let it make its last step, for so long; what is left is noted and made at the next start."""
        self._last.set()
        self._thread.join(seconds)

    def _run(self) -> None:
        coarse_s = self._clock()
        away = False
        while not self._stop.wait(self._every_s * random.uniform(0.8, 1.2)):  # noqa: S311  # so that two sinks drift apart
            coarse = self._clock() - coarse_s >= min(COARSE_S, 6 * self._every_s)
            try:
                rollups.step(self._store, rollups.LEVELS if coarse else (rollups.MINUTE,))
                away = False
            except Unavailable as error:
                if not away:
                    logs.logger("sink").warning(f"Usage cannot be made again now: {error}")
                away = True
                continue
            except BaseException as error:  # noqa: BLE001  # whatever it is, the thread that reads raises it
                self._fail(error)
                return
            if coarse:
                coarse_s = self._clock()
        self._last.wait()
        try:
            rollups.step(self._store)
        except (Unavailable, Bad) as error:
            logs.logger("sink").warning(f"The last usage is made at the next start: {error}")
