"""Sending: one producer of kafka-python, around what its version 3.0 gets wrong, and what is known of a lane that is sent."""

from __future__ import annotations

import contextlib
import random
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from yolometer_agent.spool.reading import Spooled
from yolometer_agent.spool.spool import Spool
from yolometer_core.errors import BadConfig
from yolometer_core.topics import LARGEST_MESSAGE_BYTES

# The newest protocol that kafka-python knows. With it the constructor does not wait for a broker; an older broker says what
# it speaks when it is connected.
API_VERSION = (4, 3)
NEVER_MS = 2**31 - 1
"""A batch that was sent once and expires wedges an idempotent producer: nothing expires. The spool is what is bounded."""
JOIN_S = 1.0
READ_MESSAGES = 16
READ_BYTES = 1 << 17
CODECS = {"zstd": ("zstandard", "zstandard"), "lz4": ("lz4.frame", "lz4")}


def check_codec(compression: str | None) -> None:
    """BadConfig when the library of this compression is not installed."""
    if compression is None:
        return
    module, package = CODECS[compression]
    try:
        __import__(module)
    except ImportError:
        raise BadConfig(
            f"The compression {compression} needs the package {package}; install yolometer[agent], or set `compression: none`."
        ) from None


class Connection:
    """One producer, and what can be known of its connection. Made and used by one thread; needs no broker to be made.

    `client` are keyword arguments of kafka-python's producer, and win over those of this class.
    """

    def __init__(
        self, client: Mapping[str, Any], *, compression: str | None, linger_s: float, block_s: float, reconnect_s: float
    ) -> None:  # fmt: skip
        from kafka import KafkaProducer
        from kafka.net.compat import KafkaNetClient

        self._client: Any = None

        def remembered(**settings: Any) -> Any:
            self._client = KafkaNetClient(**settings)
            return self._client

        ours = {
            "client_id": "yolometer-agent",
            "acks": "all",
            "enable_idempotence": True,
            "compression_type": compression,
            "delivery_timeout_ms": NEVER_MS,
            "max_request_size": LARGEST_MESSAGE_BYTES,
            "max_block_ms": int(block_s * 1000),
            "linger_ms": int(linger_s * 1000),
            "batch_size": 1 << 16,
            "reconnect_backoff_max_ms": int(reconnect_s * 1000),
            "api_version": API_VERSION,
            "allow_auto_create_topics": False,
            "metrics_enabled": False,
            "kafka_client": remembered,
        }
        self._producer = KafkaProducer(**{**ours, **client})

    def send(self, topic: str, key: bytes, value: bytes, done: Callable[[], object]) -> Any:
        """Hand a message over; `done` is called, in another thread, when the future that is returned is done.

        Waits up to `block_s` for the metadata of a topic that it has not sent to. Raises errors of Kafka.
        """
        future = self._producer.send(topic, value=value, key=key)
        future.add_both(lambda _: done())
        return future

    @property
    def is_up(self) -> bool:
        """Whether a broker of the cluster is connected."""
        return any(self._client.connected(broker.node_id) for broker in self._client.cluster.brokers())

    def knows(self, topic: str) -> bool:
        """Whether the cluster, as it was last heard, has the topic."""
        return self._client.cluster.partitions_for_topic(topic) is not None

    def close(self, seconds: float) -> None:
        """End it within about `seconds`. What is not acknowledged is given up; whether it arrived is not known."""
        from kafka.errors import KafkaError

        with contextlib.suppress(KafkaError):
            self._producer.close(timeout=seconds)
        # close() raises when something is left after its timeout, and then its thread goes on for ever
        sender = self._producer._sender
        if sender.is_alive():
            sender.force_close()
            sender.join(JOIN_S)


class Backoff:
    """How long to wait before the next try: about twice as long each time, never the same, `most_s` at most.

    tenacity sleeps while it waits; the thread that sends has other things to do.
    """

    def __init__(self, first_s: float, most_s: float, chance: Callable[[], float] = random.random) -> None:
        self._first_s, self._most_s, self._chance = first_s, most_s, chance
        self._tries = 0

    def next_s(self) -> float:
        """The wait before the next try: 50 to 100 % of its step."""
        longest_s = min(self._most_s, self._first_s * 2.0**self._tries)
        self._tries = min(self._tries + 1, 60)
        return longest_s * (0.5 + self._chance() / 2)

    def reset(self) -> None:
        """It went well: the next wait is a short one again."""
        self._tries = 0


class Bucket:
    """At most `bytes_per_s` on average over a second. A message larger than what is left goes, and the next ones wait."""

    def __init__(self, bytes_per_s: float, clock: Callable[[], float]) -> None:
        self._rate, self._clock = bytes_per_s, clock
        self._left, self._filled_at = bytes_per_s, clock()

    def wait_s(self) -> float:
        """How long until the next message may go; 0 for now."""
        now = self._clock()
        self._left = min(self._rate, self._left + (now - self._filled_at) * self._rate)
        self._filled_at = now
        return 0.0 if self._left > 0 else (1.0 - self._left) / self._rate

    def take(self, size_bytes: int) -> None:
        self._left -= size_bytes


class Sent(NamedTuple):
    """A message that the producer has."""

    message: Spooled
    topic: str
    future: Any
    at_s: float


@dataclass
class Outgoing:
    """A lane as it is sent: what was read and not sent, what was sent and not acknowledged."""

    name: str
    spool: Spool
    backoff: Backoff
    ready: deque[Spooled] = field(default_factory=deque)
    sent: deque[Sent] = field(default_factory=deque)
    sent_bytes: int = 0
    alone_to: int = 0
    """Up to this seq each message goes alone: one of them is too large for its topic, and it is not known which."""
    strikes: dict[int, int] = field(default_factory=dict)
    not_before_s: float = 0.0
    problem: str | None = None

    def next(self) -> Spooled | None:
        """The next message to send. Unavailable when the spool cannot be read."""
        if not self.ready:
            self.ready.extend(self.spool.read(READ_MESSAGES, READ_BYTES))
        return self.ready[0] if self.ready else None

    def push(self, sent: Sent) -> None:
        """The next message is sent."""
        self.ready.popleft()
        self.sent.append(sent)
        self.sent_bytes += len(sent.message.value)

    def pop_acknowledged(self) -> int:
        """Take off what is acknowledged without a gap; the seq of the last one, 0 for none."""
        seq = 0
        while self.sent and self.sent[0].future.is_done and self.sent[0].future.exception is None:
            message = self.sent.popleft().message
            self.sent_bytes -= len(message.value)
            seq = message.seq
        return seq

    def failed(self) -> Sent | None:
        """The first message that was refused."""
        return next((sent for sent in self.sent if sent.future.is_done and sent.future.exception is not None), None)

    def take_back(self) -> None:
        """The producer is gone: nothing was sent that is not acknowledged."""
        self.ready.clear()
        self.sent.clear()
        self.sent_bytes = 0
        self.spool.rewind()


__all__ = ["API_VERSION", "NEVER_MS", "Backoff", "Bucket", "Connection", "Outgoing", "Sent", "check_codec"]
