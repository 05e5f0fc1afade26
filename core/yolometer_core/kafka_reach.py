"""Reaching Kafka: why it cannot be reached, in one sentence, and clients that leave nothing behind when it cannot."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from yolometer_core.errors import Unavailable
from yolometer_core.kafka import KafkaConfig, ssl_context

Client = TypeVar("Client")
REACH_S = 4.0


def reach(config: KafkaConfig, timeout_s: float = REACH_S) -> None:
    """Return when one of the brokers takes a connection, and with TLS shows a certificate that is trusted.

    Unavailable, one sentence, when none does within `timeout_s` each; BadConfig when a file of the settings is wrong.
    It does not log in: a wrong password is only known to the client.
    """
    context = ssl_context(config)
    problems: list[str] = []
    for address in config.bootstrap_servers:
        host, _, port = address.rpartition(":")
        host = host.strip("[]")
        try:
            with socket.create_connection((host, int(port)), timeout=timeout_s) as plain:
                if context is None:
                    return
                with context.wrap_socket(plain, server_hostname=host):
                    return
        except ssl.SSLCertVerificationError as error:
            raise Unavailable(
                f"The certificate of {address} is not trusted ({error.verify_message}); check kafka.ca_file and the name."
            ) from None
        except (ssl.SSLError, ConnectionResetError) as error:
            why = "it does not speak TLS, or asks for a certificate of the client" if context else _why(error)
            problems.append(f"{address}: {why}")
        except OSError as error:
            problems.append(f"{address}: {_why(error)}")
    raise Unavailable(f"Kafka does not answer ({_few(problems)}); start it, or correct kafka.bootstrap_servers.")


def _why(error: OSError) -> str:
    if isinstance(error, TimeoutError):
        return "no answer in time"
    return (error.strerror or str(error)).lower()


def _few(problems: Iterable[str]) -> str:
    listed = list(problems)
    return "; ".join(listed[:3]) + (f"; and {len(listed) - 3} more" if len(listed) > 3 else "")


def built(kind: Callable[..., Client], **settings: Any) -> Client:
    """A client of kafka-python (its consumer or admin), made with these settings.

    KafkaTimeoutError when no broker answers in its time: then the constructor would leave its thread and sockets behind,
    and they are closed here.
    """
    from kafka.errors import KafkaTimeoutError
    from kafka.net.compat import KafkaNetClient

    opened: list[Any] = []

    def connection(**given: Any) -> Any:
        opened.append(KafkaNetClient(**given))
        return opened[-1]

    try:
        return kind(kafka_client=connection, **settings)
    except KafkaTimeoutError:
        for one in opened:
            one.close()
        raise
