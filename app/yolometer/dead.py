"""Dead letters: finds them in the store, shows what they hold, and sends them again to where they came from."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, get_args

import msgpack
from kafka import KafkaProducer
from kafka.errors import KafkaError

from yolometer_core.delivery import DeadLetter, DeadReason
from yolometer_core.errors import BadUsage, Unavailable
from yolometer_core.kafka import KafkaConfig, client_settings
from yolometer_core.kafka_reach import reach
from yolometer_sinks.stores._base import Store, Table

REASONS = get_args(DeadReason)
PREVIEW_BYTES = 512
_SENT_S = 30.0
_FIELDS = (
    "event_id", "ts", "node", "source", "seq", "from_topic", "from_partition", "from_offset", "index", "reason", "detail",
    "digest", "version", "retried_ts",
)  # fmt: skip
_COLUMNS = ", ".join(f"`{name}`" for name in _FIELDS)


@dataclass(frozen=True)
class Choice:
    """Which letters: by the beginnings of their ids, by reason, those not sent again yet only."""

    ids: tuple[str, ...] = ()
    reason: str | None = None
    waiting: bool = False

    def where(self) -> tuple[str, dict[str, Any]]:
        """The condition, and what is bound to it. BadUsage for what is no id and for a reason that there is not."""
        for one in self.ids:
            if not 4 <= len(one) <= 32 or set(one) - set("0123456789abcdef"):
                raise BadUsage(f"{one[:40]!r} is no id of a dead letter; `yolometer dead list` shows them (4 to 32 hex digits).")
        if self.reason is not None and self.reason not in REASONS:
            raise BadUsage(f"There is no reason {self.reason[:40]!r}; the reasons are {', '.join(REASONS)}.")
        parts, bound = ["true"], {}
        if self.ids:
            parts.append("arrayExists(start -> startsWith(event_id, start), {ids:Array(String)})")
            bound["ids"] = list(self.ids)
        if self.reason is not None:
            parts.append("reason = {reason:String}")
            bound["reason"] = self.reason  # type: ignore[assignment]
        if self.waiting:
            parts.append("isNull(retried_ts)")
        return " AND ".join(parts), bound


def listed(store: Store, choice: Choice, most: int) -> Table:
    """The letters, newest first, without their bytes."""
    where, bound = choice.where()
    return store.query(
        f"SELECT {_COLUMNS}, length(raw) AS raw_bytes FROM dead_letters WHERE {where} "  # noqa: S608  # values are bound
        "ORDER BY ts DESC, from_topic, from_partition, from_offset DESC, `index` LIMIT {most:UInt32}",
        {**bound, "most": most},
    )


def summary(store: Store, choice: Choice) -> Table:
    """How many there are by reason and topic, how many of them were sent again, and when they came."""
    where, bound = choice.where()
    return store.query(
        "SELECT reason, from_topic, count() AS letters, countIf(isNotNull(retried_ts)) AS retried, min(ts) AS first_ts, "  # noqa: S608
        f"max(ts) AS last_ts FROM dead_letters WHERE {where} GROUP BY reason, from_topic "  # values are bound
        "ORDER BY letters DESC, reason, from_topic",
        bound,
    )


def letters(store: Store, choice: Choice) -> list[DeadLetter]:
    """The letters themselves with their bytes, in the order in which they lay in Kafka."""
    where, bound = choice.where()
    rows = store.query(
        f"SELECT {_COLUMNS}, hex(raw_key) AS raw_key, hex(raw) AS raw FROM dead_letters WHERE {where} "  # noqa: S608  # values are bound
        "ORDER BY from_topic, from_partition, from_offset, `index`",
        bound,
    ).dicts()
    return [_letter(row) for row in rows]


def one_letter(store: Store, ident: str) -> DeadLetter:
    """The letter of an id or of the beginning of one. BadUsage when there is none, or several."""
    found = letters(store, Choice((ident,)))
    if len(found) != 1:
        many = f"{len(found)} dead letters begin" if found else "no dead letter begins"
        raise BadUsage(f"{many.capitalize()} with {ident}; `yolometer dead list` shows their ids.")
    return found[0]


def shown(letter: DeadLetter) -> dict[str, Any]:
    """All that is known of a letter: its fields, its bytes as hex and as text, and what they say where they are msgpack."""
    fields = letter.row()
    raw, key = fields.pop("raw"), fields.pop("raw_key")
    return {
        "event_id": fields.pop("event_id"),
        **fields,
        "raw_bytes": len(raw),
        "whole": is_whole(letter),
        "raw_key": key.decode("utf-8", "replace"),
        "raw_hex": raw[:PREVIEW_BYTES].hex(),
        "raw_text": "".join(sign if sign.isprintable() else "." for sign in raw[:PREVIEW_BYTES].decode("utf-8", "replace")),
        "decoded": _decoded(raw),
    }


def is_whole(letter: DeadLetter) -> bool:
    """Whether all bytes of the message are there: of a very large one only the first are kept."""
    return hashlib.md5(letter.raw, usedforsecurity=False).hexdigest() == letter.digest


def retry(store: Store, kafka: KafkaConfig, chosen: Sequence[DeadLetter], now: datetime) -> None:
    """Send letters again to the topics that they came from. In order:

    1. all are produced, and acknowledged by Kafka;
    2. their rows are written again, one version on, with the time.

    What ends in between is sent once more the next time; rows that come twice are one. Unavailable when Kafka does not
    take them all: then no row is written.
    """
    _produce(kafka, chosen)
    store.write([one.model_copy(update={"version": one.version + 1, "retried_ts": now}) for one in chosen])


def can_be_sent(chosen: Iterable[DeadLetter]) -> tuple[list[DeadLetter], list[DeadLetter]]:
    """Part those that can be sent again from those whose bytes are not all there (also: a message that had none)."""
    good: list[DeadLetter] = []
    bad: list[DeadLetter] = []
    for one in chosen:
        (good if one.raw and is_whole(one) else bad).append(one)
    return good, bad


def _produce(kafka: KafkaConfig, chosen: Sequence[DeadLetter]) -> None:
    reach(kafka)
    try:
        producer = KafkaProducer(
            **client_settings(kafka), client_id="yolometer-dead", acks="all", enable_idempotence=False,
            max_in_flight_requests_per_connection=1, bootstrap_timeout_ms=8_000, max_block_ms=10_000,
        )  # fmt: skip
        try:
            sent = [producer.send(one.from_topic, key=one.raw_key or None, value=one.raw) for one in chosen]
            producer.flush(timeout=_SENT_S)
            for future in sent:
                future.get(timeout=0)
        finally:
            producer.close(timeout=2)
    except KafkaError as error:
        said = " ".join(str(error).split())[:200]
        raise Unavailable(f"Kafka did not take the messages ({said}); see whether it is well, then try again.") from None


def _letter(row: Mapping[str, Any]) -> DeadLetter:
    fields = {name: row[name] for name in _FIELDS if name != "event_id"}
    return DeadLetter(**fields, raw_key=bytes.fromhex(row["raw_key"]), raw=bytes.fromhex(row["raw"]))


def _decoded(raw: bytes) -> Any:
    try:
        return _plain(msgpack.unpackb(raw, strict_map_key=False))
    except Exception:  # noqa: BLE001  # whatever bytes do to the decoder: they are no msgpack
        return None


def _plain(value: Any) -> Any:
    """What JSON can hold: bytes as hex, shortened."""
    if isinstance(value, bytes):
        return value.hex() if len(value) <= 32 else f"{value[:32].hex()}... ({len(value)} bytes)"
    if isinstance(value, dict):
        return {str(_plain(key)): _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return value if isinstance(value, (str, int, float, bool, type(None))) else str(value)
