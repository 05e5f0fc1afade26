"""Emit: the one thread that sends to Kafka what the spools hold. Nobody waits for it, and it ends when it is told to."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from yolometer_agent.sending import Backoff, Bucket, Connection, Outgoing, Sent
from yolometer_agent.spool.spool import Spool
from yolometer_core.errors import YolometerError

if TYPE_CHECKING:
    from yolometer_agent.spool.reading import Spooled
    from yolometer_core.service.health import Health

IDLE_S = 1.0
FIRST_S = 0.2
LAST_S = 0.05
STRIKES = 2


@dataclass(frozen=True)
class Pace:
    """How the emitter sends. The producer has no bound of its own: what it holds at a time is bounded here, for each lane.

    `away_s`: so long it waits for a broker or a topic that went away before it takes its messages back into the spool, for
    a producer that holds messages polls without a pause then. `stuck_s`: so long for an acknowledgement in any other case;
    it doubles each time. `patience_s` bounds the back-off, `reconnect_s` how seldom a broker that is away is tried.
    """

    in_flight_messages: int = 64
    in_flight_bytes: int = 2 << 20
    bytes_per_s: float = 2e6
    linger_s: float = 0.02
    block_s: float = 0.5
    away_s: float = 5.0
    stuck_s: float = 60.0
    patience_s: float = 30.0
    reconnect_s: float = 15.0
    close_s: float = 1.0


class TooLarge(NamedTuple):
    """A message that was passed over."""

    lane: str
    seq: int
    size_bytes: int


class Emitter:
    """Sends the lanes, each in order, from a thread of its own. The order of side effects for one message:

    1. The writer put it on disk, in the spool.
    2. It is read from there and sent; at most `Pace.in_flight_messages` of a lane are not acknowledged.
    3. Kafka acknowledged it and all before it in its lane: the cursor of the spool moves.

    A producer that fails is thrown away; the next one sends again from the first message that is not acknowledged. `acked`,
    `problem` and `too_large` may be called by any thread; `client` gives the settings of the client (it may read files).
    """

    def __init__(
        self,
        spools: Mapping[str, Spool],
        client: Callable[[], Mapping[str, Any]],
        *,
        topic: Callable[[str], str],
        compression: str | None,
        pace: Pace = Pace(),
        health: Health | None = None,
        warn: Callable[[str], object] = lambda sentence: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._lanes = [Outgoing(name, spool, Backoff(FIRST_S, pace.patience_s)) for name, spool in spools.items()]
        self._client, self._topic, self._compression = client, topic, compression
        self._pace, self._health, self._warn, self._clock = pace, health, warn, clock
        self._bucket = Bucket(pace.bytes_per_s, clock)
        self._backoff = Backoff(FIRST_S, pace.patience_s)
        self._connection: Connection | None = None
        self._not_before_s = self._acked_s = clock()
        self._stuck = 0
        self._acked: dict[str, int] = {}
        self._too_large: deque[TooLarge] = deque()
        self._problem: str | None = None
        self._wake = threading.Event()
        self._end_s: float | None = None
        self._thread = threading.Thread(target=self._run, name="emitter", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def wake(self) -> None:
        """There is something new in a spool."""
        self._wake.set()

    def stop(self, seconds: float) -> bool:
        """Send what is there for up to `seconds`, then end. True when the thread has ended; else it hangs, and may be left."""
        self._end_s = self._clock() + seconds
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join(seconds + 3 * self._pace.close_s)
        return not self._thread.is_alive()

    @property
    def problem(self) -> str | None:
        """Why messages wait, in one sentence; None while they are taken."""
        return self._problem or next((lane.problem for lane in self._lanes if lane.problem), None)

    def acked(self, lane: str) -> int:
        """Up to which seq a lane was acknowledged by this process; 0 for none."""
        return self._acked.get(lane, 0)

    @property
    def in_flight(self) -> int:
        """How many messages the producer has that are not acknowledged."""
        return sum(len(lane.sent) for lane in self._lanes)

    def too_large(self) -> list[TooLarge]:
        """Messages that their topic can never take and that were passed over, since the last call."""
        return [self._too_large.popleft() for _ in range(len(self._too_large))]

    # ---- the thread

    def _run(self) -> None:
        while not self._is_over():
            try:
                self._reap()
                wait_s = self._feed()
            except Exception as error:  # noqa: BLE001  # whatever the client raises: a new one is built, nothing is lost
                wait_s = self._start_over(_why(error))
            self._wake.wait(wait_s if self._end_s is None else min(wait_s, LAST_S))
            self._wake.clear()
        self._drop_connection()

    def _is_over(self) -> bool:
        if self._end_s is None:
            return False
        return self._clock() >= self._end_s or not any(lane.spool.messages_waiting for lane in self._lanes)

    def _feed(self) -> float:
        """Send what may be sent now, one message of each lane in turn; returns how long there is nothing more to do."""
        now = self._clock()
        if now < self._not_before_s:
            return self._not_before_s - now
        lanes = [lane for lane in self._lanes if lane.not_before_s <= now]
        while lanes:
            for lane in list(lanes):
                if (wait_s := self._bucket.wait_s()) > 0:
                    return min(wait_s, IDLE_S)
                if not self._may_send(lane) or (message := lane.next()) is None or not self._send(lane, message):
                    lanes.remove(lane)
        waits = [IDLE_S, *(lane.not_before_s - now for lane in self._lanes if lane.not_before_s > now)]
        return min(waits)

    def _may_send(self, lane: Outgoing) -> bool:
        if any(each.alone_to for each in self._lanes):
            return not any(each.sent for each in self._lanes)
        return len(lane.sent) < self._pace.in_flight_messages and lane.sent_bytes < self._pace.in_flight_bytes

    def _send(self, lane: Outgoing, message: Spooled) -> bool:
        """Hand one message to the producer; False when the lane has to wait."""
        from kafka.errors import KafkaTimeoutError, MessageSizeTooLargeError

        topic = self._topic(message.topic.decode())
        connection = self._connected()
        try:
            future = connection.send(topic, message.key, message.value, self._wake.set)
        except MessageSizeTooLargeError:
            if lane.sent:  # those before it come first
                return False
            lane.ready.popleft()
            self._give_up(lane, message)
            return True
        except KafkaTimeoutError:
            self._wait(lane, topic, connection)
            return False
        lane.push(Sent(message, topic, future, self._clock()))
        self._bucket.take(len(message.value))
        return True

    def _wait(self, lane: Outgoing, topic: str, connection: Connection) -> None:
        """There is no metadata for a topic: the topic is missing, or nobody answers."""
        if connection.is_up:
            lane.not_before_s = self._clock() + lane.backoff.next_s()
            said = f"The topic {topic} does not exist or may not be seen; create it with `yolometer topics ensure`."
            if said != lane.problem:
                self._warn(said)
            lane.problem, self._problem = said, None
        else:
            self._say("No broker of Kafka answers, or the login is refused; what is read waits in the spool.")
            # the client goes on trying to connect, with a back-off of its own
            self._not_before_s = self._clock() + min(self._backoff.next_s(), IDLE_S)

    def _reap(self) -> None:
        """Acknowledge what Kafka acknowledged, in order; look for what failed and for what hangs."""
        for lane in self._lanes:
            if seq := lane.pop_acknowledged():
                self._acknowledge(lane, seq)
        for lane in self._lanes:
            if failed := lane.failed():
                self._failed(lane, failed)
                return
        self._look_for_hang()

    def _acknowledge(self, lane: Outgoing, seq: int) -> None:
        lane.spool.ack(seq)
        self._acked[lane.name] = seq
        self._acked_s, self._stuck = self._clock(), 0
        self._problem = lane.problem = None
        self._backoff.reset()
        lane.backoff.reset()
        if seq >= lane.alone_to:
            lane.alone_to = 0
        if self._health is not None:
            self._health.success()

    def _failed(self, lane: Outgoing, sent: Sent) -> None:
        """A message was refused, and with it, as kafka-python has it, all others of this producer."""
        from kafka.errors import MessageSizeTooLargeError, RecordListTooLargeError

        if not isinstance(sent.future.exception, MessageSizeTooLargeError | RecordListTooLargeError):
            self._start_over(_why(sent.future.exception, sent.topic))
            return
        seq = sent.message.seq
        if sum(len(each.sent) for each in self._lanes) == 1:  # it alone is meant
            lane.strikes[seq] = lane.strikes.get(seq, 0) + 1
        if lane.strikes.get(seq, 0) >= STRIKES:
            self._give_up(lane, sent.message)
        else:
            for each in self._lanes:
                each.alone_to = max(each.alone_to, each.sent[-1].message.seq if each.sent else 0)
        self._drop_connection()

    def _give_up(self, lane: Outgoing, message: Spooled) -> None:
        """Pass over a message that its topic can never take; all before it are acknowledged."""
        lane.strikes.pop(message.seq, None)
        self._too_large.append(TooLarge(lane.name, message.seq, len(message.value)))
        self._warn(f"A message of {len(message.value)} bytes is larger than its topic takes; it was dropped and counted.")
        self._acknowledge(lane, message.seq)

    def _look_for_hang(self) -> None:
        pending = [lane.sent[0] for lane in self._lanes if lane.sent]
        connection = self._connection
        if not pending or connection is None:
            return
        quiet_s = self._clock() - max(self._acked_s, min(sent.at_s for sent in pending))
        if quiet_s > self._pace.away_s and not (connection.is_up and all(connection.knows(sent.topic) for sent in pending)):
            self._drop_connection()
        elif quiet_s > self._pace.stuck_s * 2.0 ** min(self._stuck, 6):
            self._stuck += 1
            self._start_over("Kafka is connected and acknowledges nothing; the connection was made anew.")

    # ---- the producer

    def _connected(self) -> Connection:
        if self._connection is None:
            pace = self._pace
            self._connection = Connection(self._client(), compression=self._compression, linger_s=pace.linger_s,
                                          block_s=pace.block_s, reconnect_s=pace.reconnect_s)  # fmt: skip
        return self._connection

    def _start_over(self, why: str) -> float:
        """Throw the producer away and wait a little; returns how long."""
        self._say(why)
        self._drop_connection()
        wait_s = self._backoff.next_s()
        self._not_before_s = self._clock() + wait_s
        return wait_s

    def _drop_connection(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(Exception):  # whatever it says, it is gone
                connection.close(0.0 if any(lane.sent for lane in self._lanes) else self._pace.close_s)
        for lane in self._lanes:
            lane.take_back()

    def _say(self, problem: str) -> None:
        if problem != self._problem:
            self._problem = problem
            self._warn(problem)


def _why(error: Exception, topic: str | None = None) -> str:
    """What a person can do about an error."""
    name = type(error).__name__
    if isinstance(error, YolometerError):
        return str(error)
    about = f" for the topic {topic}" if topic else ""
    if "Authorization" in name:
        return f"Kafka does not allow this user to send{about} ({name}); allow it to write there."
    if "timestamp" in f"{name} {error}".lower():
        return f"Kafka refuses the time of messages{about}: the clock of this node is wrong, or the topic's limit; correct it."
    if isinstance(error, OSError | ImportError):
        return f"Kafka cannot be reached ({error}); correct the connection."
    return f"Kafka refuses messages{about} ({name}); they are sent again."


__all__ = ["Emitter", "Pace", "TooLarge"]
