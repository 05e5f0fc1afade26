"""A connection to Kafka as an administrator, whose failures are one sentence each and come in bounded time."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from kafka import KafkaAdminClient, TopicPartition
from kafka import errors as kafka_errors
from kafka.protocol.consumer import OffsetSpec

from yolometer_core.errors import Unavailable, YolometerError
from yolometer_core.kafka import KafkaConfig, client_settings, topic
from yolometer_core.kafka_reach import built, reach

TRIES_MS = (2_000, 8_000)
"""How long to wait for the first answer. The first try is short, because a refused password shows in it already."""
REQUEST_MS = 8_000
_TELLING = (YolometerError, kafka_errors.SaslAuthenticationFailedError, kafka_errors.UnsupportedSaslMechanismError)


class Position(NamedTuple):
    """One partition as one service has it: `done` is the next message it would read (None: it never read any)."""

    service: str
    topic: str
    partition: int
    done: int | None
    first: int
    end: int


@contextmanager
def connected(config: KafkaConfig) -> Iterator[KafkaAdminClient]:
    """The admin client, closed at the end.

    Unavailable, one sentence, within about 15 s, when no broker answers, the certificate is not trusted, the broker refuses
    the user or ends a request with an error; BadConfig when a file of the settings is wrong.
    """
    reach(config)
    admin = _admin(config)
    try:
        yield admin
    except kafka_errors.KafkaError as error:
        raise Unavailable(f"Kafka did not do what it was asked ({_said(error)}); see its log, then try again.") from error
    finally:
        admin.close()


def _admin(config: KafkaConfig) -> KafkaAdminClient:
    for wait_ms in TRIES_MS:
        with _Reasons() as reasons:
            found = _try(config, wait_ms)
        if found is not None:
            return found
        if isinstance(reasons.said, YolometerError):  # of the token command
            raise reasons.said
        if reasons.said:
            break
    # a refusal is often lost on its way: the broker closes the connection behind it, and the client only sees that
    if reasons.said or (config.sasl_mechanism and reasons.closed):
        who = f"the user {config.username!r}" if config.username else "the token"
        check = "check kafka.sasl_mechanism, " + ("kafka.username and the password" if config.username else "and the token")
        raise Unavailable(f"Kafka does not let {who} in ({config.sasl_mechanism}); {check}.")
    servers = ", ".join(config.bootstrap_servers)
    hint = "see whether it is well, and whether kafka.tls and kafka.sasl_mechanism are what its listener speaks"
    raise Unavailable(f"{servers} takes connections and does not answer as Kafka does; {hint}.")


def _try(config: KafkaConfig, wait_ms: int) -> KafkaAdminClient | None:
    try:
        return built(
            KafkaAdminClient, **client_settings(config), client_id="yolometer-topics",
            bootstrap_timeout_ms=wait_ms, request_timeout_ms=REQUEST_MS,
        )  # fmt: skip
    except kafka_errors.KafkaTimeoutError:
        return None


class _Reasons(logging.Handler):
    """Keeps the telling errors that kafka-python logs: it says nowhere else why it could not start. Nothing is printed."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.said: Exception | None = None
        self.closed = False
        self._logger = logging.getLogger("kafka")
        self._was = (self._logger.level, self._logger.propagate)

    def __enter__(self) -> _Reasons:
        self._logger.addHandler(self)
        self._logger.setLevel(logging.WARNING)
        self._logger.propagate = False
        return self

    def __exit__(self, *_: object) -> None:
        self._logger.removeHandler(self)
        level, self._logger.propagate = self._was
        self._logger.setLevel(level)

    def emit(self, record: logging.LogRecord) -> None:
        for value in record.args if isinstance(record.args, tuple) else ():
            if isinstance(value, _TELLING):
                self.said = value
            self.closed = self.closed or isinstance(value, kafka_errors.KafkaConnectionError)


def _said(error: Exception) -> str:
    return " ".join(str(error).split())[:300]


def positions(config: KafkaConfig, reads: Mapping[str, Sequence[str]]) -> list[Position]:
    """How far each service is in each partition of the topics that it reads, and from where to where Kafka has messages.

    `reads` are the topics, without the prefix, by service: its group is the prefix and its name. A topic that is missing
    is Unavailable. Takes some seconds at most.
    """
    with connected(config) as admin:
        names = sorted({topic(config, name) for topics in reads.values() for name in topics})
        described = {one["name"]: one for one in admin.describe_topics(names)}
        if missing := [name for name in names if not described.get(name, {}).get("partitions")]:
            raise Unavailable(f"There is no topic {missing[0]}; run `yolometer topics ensure`.")
        parts = [TopicPartition(name, one["partition_index"]) for name in names for one in described[name]["partitions"]]
        first = admin.list_partition_offsets(dict.fromkeys(parts, OffsetSpec.EARLIEST))
        end = admin.list_partition_offsets(dict.fromkeys(parts, OffsetSpec.LATEST))
        found = []
        for service, topics in reads.items():
            done = admin.list_group_offsets(topic(config, service))[topic(config, service)]
            mine = {topic(config, name) for name in topics}
            for part in (part for part in parts if part.topic in mine):
                at = done.get(part)
                committed = at.offset if at is not None and at.offset >= 0 else None
                found.append(Position(service, part.topic, part.partition, committed, first[part].offset, end[part].offset))
    return found


def stored_until(config: KafkaConfig, name: str, partition: int) -> int:
    """The first message of a partition that no sink has stored yet. Unavailable when Kafka cannot be asked."""
    group, part = topic(config, "sink"), TopicPartition(topic(config, name), partition)
    with connected(config) as admin:
        at = admin.list_group_offsets(group)[group].get(part)
        if at is not None and at.offset >= 0:
            return int(at.offset)
        return int(admin.list_partition_offsets({part: OffsetSpec.EARLIEST})[part].offset)
