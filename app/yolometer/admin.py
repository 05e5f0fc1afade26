"""A connection to Kafka as an administrator, whose failures are one sentence each and come in bounded time."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from kafka import KafkaAdminClient
from kafka import errors as kafka_errors
from kafka.net.compat import KafkaNetClient

from yolometer_core.errors import Unavailable, YolometerError
from yolometer_core.kafka import KafkaConfig, client_settings
from yolometer_core.kafka_reach import reach

TRIES_MS = (2_000, 8_000)
"""How long to wait for the first answer. The first try is short, because a refused password shows in it already."""
REQUEST_MS = 8_000
_TELLING = (YolometerError, kafka_errors.SaslAuthenticationFailedError, kafka_errors.UnsupportedSaslMechanismError)


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
    opened: list[KafkaNetClient] = []

    def client(**settings: Any) -> KafkaNetClient:
        opened.append(KafkaNetClient(**settings))
        return opened[-1]

    try:
        return KafkaAdminClient(
            **client_settings(config), client_id="yolometer-topics", kafka_client=client,
            bootstrap_timeout_ms=wait_ms, request_timeout_ms=REQUEST_MS,
        )  # fmt: skip
    except kafka_errors.KafkaTimeoutError:
        for one in opened:  # the constructor leaves its thread and sockets behind
            one.close()
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
