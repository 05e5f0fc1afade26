"""Reads Kafka, hands batches to a thread that keeps them, and commits offsets when they are kept."""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable

from kafka import KafkaConsumer, TopicPartition
from kafka.errors import CorruptRecordError, KafkaError, UnsupportedCodecError
from kafka.structs import OffsetAndMetadata

from yolometer_core.errors import Bad, BadInput, Unavailable
from yolometer_core.letters import Record
from yolometer_core.service import logs
from yolometer_core.service.health import Health
from yolometer_core.service.limits import DeadLimit
from yolometer_core.service.metrics import Metrics
from yolometer_core.service.stopping import Stop
from yolometer_sinks.batch import Batch, Part
from yolometer_sinks.collect import Bounds, collect
from yolometer_sinks.keep import Keeper
from yolometer_sinks.patience import Stopped

MOST_BATCH_BYTES = 32 << 20
POLL_MS = 100
JOIN_MS = 1_000
COMMIT_MS = 2_000
COMMIT_AGAIN_S = 1.0
LOOK_S = 10.0
LONGEST_PAUSE_S = 10.0


class Worker:
    """A thread that keeps one batch at a time, so that the next one is read meanwhile.

    It ends with the process: a store that does not answer must not hold it.
    """

    def __init__(self, keeper: Keeper) -> None:
        self._keeper = keeper
        self._todo: queue.SimpleQueue[Batch | None] = queue.SimpleQueue()
        self._idle = threading.Event()
        self._idle.set()
        self._done: Batch | None = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="keeper", daemon=True)
        self._thread.start()

    @property
    def busy(self) -> bool:
        return not self._idle.is_set()

    def give(self, batch: Batch) -> None:
        """Keep this batch; only when it is not busy, and what was done is taken."""
        self._idle.clear()
        self._todo.put(batch)

    def wait(self, seconds: float) -> bool:
        """Wait until it is not busy; False when it still is."""
        return self._idle.wait(seconds)

    def take(self) -> Batch | None:
        """The batch that was kept since it was last asked, if one was. Raises what keeping it raised."""
        if self.busy:
            return None
        done, self._done = self._done, None
        error, self._error = self._error, None
        if error is not None:
            raise error
        return done

    def close(self) -> None:
        self._todo.put(None)

    def _run(self) -> None:
        while (batch := self._todo.get()) is not None:
            try:
                self._keeper.keep(batch)
                self._done = batch
            except BaseException as error:  # noqa: BLE001  # whatever it is, the thread that reads raises it
                self._error = error
            self._idle.set()


class Reader:
    """The loop of the sink. `consumer` is a kafka-python consumer of a group without automatic commits."""

    def __init__(
        self, consumer: KafkaConsumer, topics: Iterable[str], keeper: Keeper, limit: DeadLimit, stop: Stop, health: Health,
        metrics: Metrics, *, batch_rows: int, batch_s: float, late_s: float, future_s: float,
        clock: Callable[[], float] = time.monotonic, wall: Callable[[], float] = time.time,
    ) -> None:  # fmt: skip
        self._consumer, self._topics = consumer, tuple(topics)
        self._limit, self._stop, self._health, self._metrics = limit, stop, health, metrics
        self._batch_rows, self._batch_s = batch_rows, batch_s
        self._late_ms, self._future_ms = int(late_s * 1000), int(future_s * 1000)
        self._clock, self._wall = clock, wall
        self._log = logs.logger("sink")
        self._keeper, self._worker = keeper, Worker(keeper)
        self._backlog: deque[Record] = deque()
        self._batch = Batch(clock())
        self._to_commit: dict[Part, int] = {}
        self._committed: dict[Part, int] = {}
        self._shown: set[Part] = set()
        self._looked_s = clock()
        self._missing = 0
        self._failures = 0
        self._tried_s = 0.0
        self._failure: BaseException | None = None
        consumer.subscribe(self._topics)

    def run(self) -> None:
        """Read until it is time to stop. For each message, in order:

        1. it is read from Kafka and understood, which changes nothing outside;
        2. its batch is given to the thread that keeps it (see Keeper.keep for its steps); meanwhile the next one is read,
           and when that is full too, the partitions are paused and polling goes on, so that the group stays as it is;
        3. when the batch is kept, its offsets are committed, for the partitions that are still ours.

        A partition that goes to another process is dropped from what was read; what is being kept stays, twice is once.
        Ends with BadDeploy when too many messages cannot be understood: those are not committed. BadStore and BadInput tell
        what no retry will mend, Unavailable that a topic is missing.
        """
        try:
            while not self._stop.wished:
                self._turn()
                self._health.progress()
                if self._failure is not None:
                    raise self._failure
        except Stopped:
            pass

    def fail(self, error: BaseException) -> None:
        """End the loop with this error, of another thread."""
        self._failure = error

    def close(self, seconds: float) -> None:
        """Wait for the batch that is being kept, for so long; commit it; leave the group. The rest is read again."""
        deadline = self._clock() + seconds
        self._worker.wait(max(seconds - 2.0, 0.1))
        with contextlib.suppress(Bad, Unavailable, Stopped):  # what ends the loop was said already; here only the commit counts
            self._taken_off()
        left_s = max(deadline - self._clock(), 0.5)
        self._commit(int(left_s * 500))
        self._worker.close()
        with contextlib.suppress(KafkaError):
            self._consumer.close(autocommit=False, timeout_ms=int(left_s * 500))

    def _turn(self) -> None:
        self._taken_off()
        self._fill()
        full = self._is_full()
        due = full or self._clock() - self._batch.begun_s >= self._batch_s
        if self._batch and due and not self._worker.busy:
            self._prepare()
            self._worker.give(self._batch)
            self._batch = Batch(self._clock())
            return
        joining = is_joining(self._consumer)
        if full:
            self._prepare()
        if full and not joining:
            self._worker.wait(POLL_MS / 1000)
        self._poll(JOIN_MS if joining else 0 if full else POLL_MS)
        self._look()

    def _prepare(self) -> None:
        """Make columns of the batch, once: a full one is ready when the one before it is kept."""
        if not self._batch.is_prepared:
            self._keeper.prepare(self._batch)
            self._batch.is_prepared = True

    def _poll(self, timeout_ms: int) -> None:
        """Take what Kafka has; nothing of it while a batch and a backlog wait."""
        consumer = self._consumer
        try:
            with contextlib.suppress(KeyError):  # a partition goes to another process at this moment
                if self._backlog:
                    consumer.pause(*consumer.assignment())
                elif paused := consumer.paused():
                    consumer.resume(*paused)
            polled = consumer.poll(timeout_ms=timeout_ms)
        except (UnsupportedCodecError, CorruptRecordError) as error:
            raise BadInput(
                f"A message in Kafka cannot be unpacked ({_said(error)}); install what its compression needs, "
                "or move the group past it."
            ) from None
        except KafkaError as error:
            self._failures += 1
            self._health.problem(f"Kafka does not serve this sink ({_said(error)}); see whether it is well and what it allows.")
            self._log.warning(f"Kafka does not serve this sink ({_said(error)})")
            self._stop.wait(min(0.2 * 2 ** min(self._failures, 10), LONGEST_PAUSE_S))
            return
        if self._failures:
            self._failures = 0
            self._health.problem(None)
        self._forget_lost()
        for records in polled.values():
            self._backlog.extend(
                Record(one.topic, one.partition, one.offset, one.key, one.value, one.timestamp) for one in records
            )
        self._fill()

    def _fill(self) -> None:
        """From the backlog into the batch, until that is full."""
        if not self._backlog:
            return
        now_ms = int(self._wall() * 1000)
        bounds = Bounds(now_ms - self._late_ms, now_ms + self._future_ms)
        if not self._batch:
            self._batch.begun_s = self._clock()
        while self._backlog and not self._is_full():
            taken = collect(self._backlog[0], bounds)
            first = taken.dead[0] if taken.dead else None
            self._limit.seen(first is None, first.detail if first else "")
            self._batch.add(taken)
            self._backlog.popleft()

    def _is_full(self) -> bool:
        return self._batch.rows >= self._batch_rows or self._batch.size_bytes >= MOST_BATCH_BYTES

    def _taken_off(self) -> None:
        """Take a batch that was kept off the worker and commit it; raises what keeping it raised."""
        kept = self._worker.take()
        if kept is not None:
            self._to_commit.update(kept.next_offsets)
            self._health.success()
        if self._to_commit and (kept is not None or self._clock() - self._tried_s >= COMMIT_AGAIN_S):
            self._commit(COMMIT_MS)

    def _commit(self, timeout_ms: int) -> None:
        """Commit what is kept, of the partitions that are ours. What cannot be committed now is with the next batch."""
        ours = self._ours()
        self._to_commit = {part: offset for part, offset in self._to_commit.items() if part in ours}
        if not self._to_commit:
            return
        offsets = {TopicPartition(*part): OffsetAndMetadata(offset, "", -1) for part, offset in self._to_commit.items()}
        try:
            self._consumer.commit(offsets, timeout_ms=timeout_ms)
        except KafkaError as error:
            self._tried_s = self._clock()
            self._log.warning(f"Offsets could not be committed ({_said(error)}); they are with the next ones")
            return
        self._committed.update(self._to_commit)
        self._to_commit = {}
        self._show_lag()

    def _forget_lost(self) -> None:
        """Drop what was read of partitions that are not ours any more.

        Only of those: kafka-python goes on where it was in a partition that is ours after a rebalance as it was before,
        although it calls it revoked meanwhile. One that comes back later begins at its committed offset.
        """
        ours = self._ours()
        held = {*self._batch.next_offsets, *((one.topic, one.partition) for one in self._backlog)}
        if lost := held - ours:
            self._batch = self._batch.without(lost)
            self._backlog = deque(one for one in self._backlog if (one.topic, one.partition) in ours)
        for part in self._committed.keys() - ours:
            del self._committed[part]

    def _ours(self) -> set[Part]:
        return {(one.topic, one.partition) for one in self._consumer.assignment()}

    def _look(self) -> None:
        """Now and then: are the topics still there, and how far behind is this process."""
        now = self._clock()
        if now - self._looked_s < LOOK_S:
            return
        self._looked_s = now
        self._show_lag()
        try:
            gone = missing(self._consumer, self._topics)
        except KafkaError:
            return  # the next poll says it
        self._missing = self._missing + 1 if gone else 0
        if self._missing >= 2:  # once may be a broker that has just started
            raise Unavailable(missing_sentence(gone))

    def _show_lag(self) -> None:
        ours = set()
        for one in self._consumer.assignment():
            part = (one.topic, one.partition)
            ours.add(part)
            with contextlib.suppress(KafkaError):  # it went to another process just now
                end = self._consumer.highwater(one)
                at = self._committed.get(part)
                self._metrics.lag(*part, None if end is None or at is None else max(end - at, 0))
        for part in self._shown - ours:
            self._metrics.lag(*part, None)
        self._shown = ours


def is_joining(consumer: KafkaConsumer) -> bool:
    """Whether the group is being joined again, and see to it that this comes to an end.

    kafka-python 3.0.12 forgets it when a poll ends meanwhile and the reason was that topics or partitions were seen anew: the
    answer is never taken, no heartbeat is sent any more, and the consumer holds what is not its own. Asked to join, it takes it.
    """
    coordinator = consumer._coordinator
    if coordinator.rejoining:
        coordinator.request_rejoin()
    return bool(coordinator.need_rejoin())


def missing(consumer: KafkaConsumer, topics: Iterable[str]) -> list[str]:
    """The topics that Kafka does not have."""
    return [name for name in topics if not consumer.partitions_for_topic(name)]


def missing_sentence(topics: Iterable[str]) -> str:
    return f"Kafka has no topic {', '.join(topics)}; create what is missing with `yolometer topics ensure`."


def _said(error: BaseException) -> str:
    return " ".join(str(error).split())[:200]


__all__ = ["Reader", "Worker", "missing", "missing_sentence"]
