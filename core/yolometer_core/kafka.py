"""How a service reaches Kafka: addresses, TLS, user and password or token, for kafka-python and for aiokafka (Faust).

Secrets come from the environment or from files, are hidden from logs as soon as they are read, and never travel in clear
to another machine unless `allow_plaintext` says so.
"""

from __future__ import annotations

import ipaddress
import re
import ssl
import subprocess
import time
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, SecretStr, model_validator
from pydantic_core import PydanticCustomError
from pydantic_settings import NoDecode

from yolometer_core.errors import BadConfig, Unavailable
from yolometer_core.service.hiding import hide

TOKEN_COMMAND_S = 15.0
TOKEN_KEPT_S = 30.0
LARGEST_SECRET_BYTES = 65536
_ADDRESS = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([A-Za-z0-9._-]+)):([0-9]{1,5})")
_PREFIX = re.compile(r"[A-Za-z0-9._-]{0,100}")


def _wrong(sentence: str) -> PydanticCustomError:
    return PydanticCustomError("kafka", "{sentence}", {"sentence": sentence})


def _split(value: Any) -> Any:
    """Addresses may be one text with commas, as Kafka's own settings have them."""
    return tuple(part.strip() for part in value.split(",")) if isinstance(value, str) else value


def _addresses(value: tuple[str, ...]) -> tuple[str, ...]:
    for address in value:
        found = _ADDRESS.fullmatch(address)
        if not found or not 0 < int(found[3]) < 65536:
            raise _wrong("each address is host:port, for example kafka-1.example.org:9092")
    return value


def _legal(value: str) -> str:
    if not _PREFIX.fullmatch(value):
        raise _wrong("names of topics are at most 100 letters, digits, dots, dashes and underscores here")
    return value


Mechanism = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"]


class KafkaConfig(BaseModel):
    """Where Kafka is and how to log in. Files are read when they are needed, so settings can be checked anywhere."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    bootstrap_servers: Annotated[tuple[str, ...], NoDecode, BeforeValidator(_split), AfterValidator(_addresses)] = Field(
        default=("127.0.0.1:9092",), min_length=1, description="addresses of some brokers, host:port"
    )
    prefix: Annotated[str, AfterValidator(_legal)] = Field(
        default="yolometer.", description="what the names of all topics and groups begin with"
    )
    tls: bool = Field(default=False, description="talk TLS; the certificate of the broker is always checked")
    ca_file: Path | None = Field(default=None, description="certificates to trust (PEM), instead of those of the system")
    cert_file: Path | None = Field(default=None, description="certificate of this client (PEM), where the broker asks for one")
    key_file: Path | None = Field(default=None, description="key of that certificate, where it is not in the same file")
    sasl_mechanism: Mechanism | None = Field(default=None, description="how to log in; nothing: without a user")
    username: str | None = Field(default=None, min_length=1, description="user for PLAIN and SCRAM")
    password_file: Path | None = Field(default=None, description="file that holds the password and nothing else")
    password: SecretStr | None = Field(
        default=None, description="the password, only from the environment; it wins over password_file"
    )
    token_command: tuple[str, ...] = Field(
        default=(), description="program and arguments that print a token for OAUTHBEARER; no shell is involved"
    )
    allow_plaintext: bool = Field(default=False, description="allow to log in to another machine without TLS")

    @model_validator(mode="after")
    def _fits(self) -> Self:
        mechanism = self.sasl_mechanism
        if not self.tls and (self.ca_file or self.cert_file or self.key_file):
            raise _wrong("there are certificates and `tls` is not true; add `tls: true`")
        if self.key_file and not self.cert_file:
            raise _wrong("key_file is given and cert_file is not; add cert_file")
        if mechanism is None and (self.username or self.password_file or self.password or self.token_command):
            raise _wrong("there is something to log in with and no sasl_mechanism; add sasl_mechanism")
        if mechanism == "OAUTHBEARER":
            if not self.token_command or not self.token_command[0]:
                raise _wrong("OAUTHBEARER needs token_command, a program that prints a token")
        elif mechanism:
            if not self.username:
                raise _wrong(f"{mechanism} needs a username; add username")
            if not self.password_file and not (self.password and self.password.get_secret_value()):
                raise _wrong(f"{mechanism} needs a password; add password_file, or set the password in the environment")
        if mechanism and not self.tls and not self.allow_plaintext and not all(map(_is_here, self.bootstrap_servers)):
            raise _wrong("logging in to another machine without TLS shows the password to the network; add `tls: true`")
        return self


def _is_here(address: str) -> bool:
    found = _ADDRESS.fullmatch(address)
    host = (found[1] or found[2]) if found else ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


class _Hidden(str):
    """A text that does not show itself where settings are printed: kafka-python logs all of them at level DEBUG."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "'***'"


def topic(config: KafkaConfig, name: str) -> str:
    """The whole name of a topic, for example `yolometer.fact`."""
    return config.prefix + name


def client_settings(config: KafkaConfig) -> dict[str, Any]:
    """The keyword arguments of kafka-python's clients for this connection; reads the files.

    BadConfig, one sentence, when a file cannot be read or is none of its kind.
    """
    given: dict[str, Any] = {
        "bootstrap_servers": list(config.bootstrap_servers),
        "security_protocol": ("SASL_" if config.sasl_mechanism else "") + ("SSL" if config.tls else "PLAINTEXT"),
    }
    if config.tls:
        given["ssl_context"] = ssl_context(config)
    if config.sasl_mechanism == "OAUTHBEARER":
        given["sasl_mechanism"] = config.sasl_mechanism
        given["sasl_oauth_token_provider"] = _token_provider(config)
    elif config.sasl_mechanism:
        given["sasl_mechanism"] = config.sasl_mechanism
        given["sasl_plain_username"] = config.username
        given["sasl_plain_password"] = _Hidden(password(config))
    return given


def ssl_context(config: KafkaConfig) -> ssl.SSLContext | None:
    """The TLS side: certificate and name of the broker are checked; None without TLS. BadConfig names the file that is wrong."""
    if not config.tls:
        return None
    for key, path in (("ca_file", config.ca_file), ("cert_file", config.cert_file), ("key_file", config.key_file)):
        if path:
            _text(key, path)  # ssl says of some files that one is missing, not which
    try:
        context = ssl.create_default_context(cafile=config.ca_file)
    except (ssl.SSLError, OSError):
        raise BadConfig(f"kafka.ca_file: {config.ca_file} holds no certificates in PEM; name another file.") from None
    if config.cert_file:
        try:
            # a key with a passphrase would ask at the terminal; it gets an empty answer instead
            context.load_cert_chain(config.cert_file, config.key_file, password="")
        except (ssl.SSLError, OSError):
            key = f" with the key {config.key_file}" if config.key_file else " with its key in the same file"
            said = f"kafka.cert_file: {config.cert_file}{key} is no pair of certificate and plain key in PEM; correct it."
            raise BadConfig(said) from None
    return context


def password(config: KafkaConfig) -> str | None:
    """The password, from the environment or else from its file; None where no password is used. It is hidden from logs."""
    if config.sasl_mechanism in (None, "OAUTHBEARER"):
        return None
    if config.password and config.password.get_secret_value():
        found = config.password.get_secret_value()
    else:
        assert config.password_file  # noqa: S101  # validated
        found = _text("password_file", config.password_file).rstrip("\r\n")
        if not found:
            raise BadConfig(f"kafka.password_file: {config.password_file} is empty; write the password into it.")
    hide(found)
    return found


def token(config: KafkaConfig) -> str:
    """A fresh token from the token command. It is hidden from logs; what the command says on stderr is not shown at all.

    BadConfig when there is no such program, Unavailable when it fails, says nothing or takes longer than 15 s.
    """
    name = config.token_command[0]
    try:
        said = subprocess.run(  # noqa: S603  # the operator's own command, as a list, without a shell
            config.token_command, stdin=subprocess.DEVNULL, capture_output=True, timeout=TOKEN_COMMAND_S, check=False
        )
    except subprocess.TimeoutExpired:
        raise Unavailable(f"The token command {name} did not end within {TOKEN_COMMAND_S:.0f} s; run it by hand.") from None
    except OSError as error:
        raise BadConfig(f"kafka.token_command: {name} cannot be run ({error.strerror}); correct it.") from None
    found = said.stdout.decode("ascii", "replace").strip()
    hide(found)
    if said.returncode:
        raise Unavailable(f"The token command {name} failed with exit code {said.returncode}; run it by hand.")
    if not found or not found.isascii() or any(sign.isspace() or not sign.isprintable() for sign in found):
        raise Unavailable(f"The token command {name} did not print one token on one line; run it by hand.")
    return found


def _token_provider(config: KafkaConfig) -> Any:
    """The token provider of kafka-python; a token is used again for 30 s, as a client connects to all brokers at once."""
    from kafka.net.sasl.oauth import AbstractTokenProvider

    class Tokens(AbstractTokenProvider):  # type: ignore[misc]  # kafka-python ships no types
        kept = ""
        until_s = 0.0

        def token(self) -> str:
            if time.monotonic() >= self.until_s:
                self.kept, self.until_s = token(config), time.monotonic() + TOKEN_KEPT_S
            return self.kept

    return Tokens()


def _text(key: str, path: Path) -> str:
    try:
        with path.open("rb") as file:
            found = file.read(LARGEST_SECRET_BYTES * 16 + 1)
    except OSError as error:
        raise BadConfig(f"kafka.{key}: {path} cannot be read ({error.strerror}); name another file.") from None
    if len(found) > LARGEST_SECRET_BYTES * 16:
        raise BadConfig(f"kafka.{key}: {path} is larger than such a file can be; name another file.")
    try:
        return found.decode()
    except UnicodeDecodeError:
        raise BadConfig(f"kafka.{key}: {path} is no text in UTF-8; name another file.") from None


__all__ = ["KafkaConfig", "client_settings", "password", "ssl_context", "token", "topic"]
