"""The topic of dead letters: sends them, and knows when Kafka has them."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

from kafka import KafkaProducer
from kafka.errors import KafkaError, RetriableError

from yolometer_core import letters, wire
from yolometer_core.delivery import DeadLetter
from yolometer_core.errors import Unavailable
from yolometer_core.kafka import KafkaConfig, client_settings, topic
from yolometer_core.times import ms_of
from yolometer_sinks.collect import SOURCE

CONNECT_MS = 4_000
BLOCK_MS = 5_000
ACKNOWLEDGED_S = 30.0


class DeadTopic:
    """Produces dead letters. For one thread. The connection is made when it is first needed.

    Without idempotence: a letter that comes twice is the same row, and no error of one letter stops the others. It has no
    deadline of its own, as one that passes in an outage would wedge or lose what it held.
    """

    def __init__(self, config: KafkaConfig) -> None:
        self._config = config
        self.topic = topic(config, "dead")
        self._producer: Any = None

    def is_own(self, letter: DeadLetter) -> bool:
        """Whether it is about a message of this topic: to send it there again would have no end."""
        return letter.from_topic == self.topic

    def send(self, found: Sequence[DeadLetter]) -> list[DeadLetter]:
        """Send the letters and wait until Kafka has them; returns those that it never takes.

        Unavailable when Kafka did not acknowledge them within 30 s: send them again.
        """
        sent: list[tuple[DeadLetter, Any]] = []
        refused: list[DeadLetter] = []
        try:
            producer = self._connected()
            for one in found:
                packed = letters.packed([one])
                if not packed:
                    refused.append(one)
                    continue
                at_ms = ms_of(one.ts)
                value = wire.message(packed[0].events, node=SOURCE, at_ms=max(at_ms, 0))
                sent.append((one, producer.send(self.topic, key=packed[0].key.encode(), value=value)))
            producer.flush(timeout=ACKNOWLEDGED_S)
            for one, future in sent:
                try:
                    future.get(timeout=0)
                except RetriableError:
                    raise
                except KafkaError:  # too large for it, or not allowed to this user
                    refused.append(one)
        except KafkaError as error:
            self.close()
            why = type(error).__name__.removesuffix("Error")
            raise Unavailable(f"Kafka does not take dead letters ({why}); see whether it is well and has {self.topic}.") from None
        return refused

    def close(self) -> None:
        """Let the connection go; what is not acknowledged is sent again by whoever reads its message again."""
        if self._producer is not None:
            with contextlib.suppress(KafkaError):
                self._producer.close(timeout=1)
            self._producer = None

    def _connected(self) -> Any:
        if self._producer is None:
            self._producer = KafkaProducer(
                **client_settings(self._config),
                client_id="yolometer-sink",
                acks="all",
                enable_idempotence=False,
                max_in_flight_requests_per_connection=1,
                delivery_timeout_ms=2**31 - 1,
                max_block_ms=BLOCK_MS,
                bootstrap_timeout_ms=CONNECT_MS,
            )
        return self._producer
