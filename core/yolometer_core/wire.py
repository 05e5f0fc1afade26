"""Wire: how events travel. One message is a batch of events of one key, in order, as a versioned msgpack map (docs/wire.md).

`{"v": [major, minor], "node", "lane", "seq", "at", "events": [[type, {field: value}], ...]}`. Times are whole microseconds
since 1970, money is text, unknown fields are left out. `lane` and `seq` number the messages of one agent without a gap.
A reader refuses another major version, and passes over fields that a newer minor version added.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from typing import Any, NamedTuple

import msgpack
from pydantic import ValidationError

from yolometer_core import delivery, devices, gpu  # noqa: F401  # their classes are among the types of events
from yolometer_core.delivery import DeadReason
from yolometer_core.errors import BadInput
from yolometer_core.events import Event
from yolometer_core.times import from_us, us_of

MAJOR, MINOR = 1, 1
MOST_BYTES = 840_000
"""A message is no larger: Kafka takes 1 MiB with its own framing, and a dead letter has to hold all of it."""
MOST_EVENTS = 10_000
_LARGEST_INT = 2**63


class BadWire(BadInput):
    """A message that cannot be understood as a whole; `reason` is a word for counting."""

    def __init__(self, reason: DeadReason, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason


class Refused(NamedTuple):
    """The event number `at` of a message, which cannot be understood; its neighbours can."""

    at: int
    reason: DeadReason
    detail: str


@dataclass(frozen=True)
class Batch:
    """A message, read. `seq` is None for messages that no agent numbered; `at_ms` is when it was made, in ms since 1970."""

    node: str
    lane: str | None
    seq: int | None
    at_ms: int
    events: list[Event]
    refused: list[Refused]


class Packed(NamedTuple):
    """Events of one topic and key that fit into one message, each encoded."""

    topic: str
    key: str
    events: list[bytes]


class Form(NamedTuple):
    """How the fields of one type of event travel."""

    kind: type[Event]
    fields: frozenset[str]
    required: frozenset[str]
    times: frozenset[str]
    money: frozenset[str]
    special: frozenset[str]
    may_be_nan: frozenset[str]


@cache
def forms() -> dict[str, Form]:
    """The types of events that travel, by table."""
    return {kind.table: _form(kind) for kind in kinds() if kind.topic is not None}


def kinds(base: type[Event] = Event) -> Iterator[type[Event]]:
    """All classes of events that have a table."""
    for kind in base.__subclasses__():
        if "table" in kind.__dict__:
            yield kind
        yield from kinds(kind)


def pack(event: Event) -> bytes:
    """One event, encoded. BadInput for one that has no topic, or a number that no message can hold."""
    form = forms().get(event.table)
    if form is None:
        raise BadInput(f"A {event.table} event does not travel; it has no topic.")
    fields = {
        name: value
        for name, value in event.__dict__.items()
        if (value is not None or name in form.required) and (value or name not in _LEFT_OUT_EMPTY)
    }
    for name in form.times & fields.keys():  # a time that is required is never None
        fields[name] = us_of(fields[name])
    for name in form.money & fields.keys():
        fields[name] = str(fields[name])
    try:
        packed: bytes = msgpack.packb([event.table, fields])
    except (OverflowError, ValueError, TypeError) as error:
        raise BadInput(f"A {event.table} event cannot be sent ({error}); correct it where it is made.") from error
    return packed


def batches(events: Iterable[Event], most_bytes: int = MOST_BYTES) -> tuple[list[Packed], list[tuple[Event, BadInput]]]:
    """Group events by topic and key, each group in order and cut into messages that are not too large.

    Also returns the events that cannot travel at all, with the reason.
    """
    groups: dict[tuple[str, str], list[Packed]] = {}
    sizes: dict[tuple[str, str], int] = {}
    bad: list[tuple[Event, BadInput]] = []
    for event in events:
        try:
            packed = pack(event)
            if len(packed) > most_bytes:
                raise BadInput(f"A {event.table} event has {len(packed)} bytes, more than a message may have ({most_bytes}).")
        except BadInput as error:
            bad.append((event, error))
            continue
        where = str(event.topic), event.key
        group = groups.setdefault(where, [])
        if not group or sizes[where] + len(packed) > most_bytes or len(group[-1].events) >= MOST_EVENTS:
            group.append(Packed(*where, []))
            sizes[where] = 0
        group[-1].events.append(packed)
        sizes[where] += len(packed)
    return [packed for group in groups.values() for packed in group], bad


def message(events: Sequence[bytes], *, node: str, at_ms: int, lane: str | None = None, seq: int | None = None) -> bytes:
    """The bytes of one message of encoded events."""
    head = {"v": [MAJOR, MINOR], "node": node, "lane": lane, "seq": seq, "at": at_ms}
    packer = msgpack.Packer()
    parts = [packer.pack_map_header(len(head) + 1)]
    parts += [packer.pack(item) for pair in head.items() for item in pair]
    parts += [packer.pack("events"), packer.pack_array_header(len(events)), *events]
    return b"".join(parts)


def read(raw: bytes | None) -> Batch:
    """Understand a message. BadWire when nothing of it can be used; single bad events are in `refused`."""
    said = _envelope(raw)
    batch = Batch(said["node"], said.get("lane"), said.get("seq"), said["at"], [], [])
    by_table = forms()
    for index, item in enumerate(said["events"]):
        event = _event(by_table, index, item)
        if type(event) is Refused:
            batch.refused.append(event)
        else:
            batch.events.append(event)  # type: ignore[arg-type]
    return batch


def _envelope(raw: bytes | None) -> dict[str, Any]:
    if raw is None:
        raise BadWire("tombstone", "The message has no value; nothing in this topic is ever deleted.")
    try:
        said = msgpack.unpackb(raw)
    except Exception as error:  # noqa: BLE001  # whatever bytes do to the decoder, they are bad bytes
        raise BadWire("garbage", f"The message is no msgpack ({type(error).__name__}).") from None
    if not isinstance(said, dict) or not isinstance(version := said.get("v"), list) or not version:
        raise BadWire("garbage", "The message is no batch of events: it has no version.")
    if version[0] != MAJOR:
        raise BadWire("version", f"The message has wire version {str(version)[:40]}, this program reads {MAJOR}; update it.")
    seq, lane = said.get("seq"), said.get("lane")
    numbered = (seq is None or _whole(seq)) and (lane is None or isinstance(lane, str))
    if not (isinstance(said.get("node"), str) and _whole(said.get("at")) and isinstance(said.get("events"), list) and numbered):
        raise BadWire("field", "The message lacks its node, time or events, or they have the wrong type.")
    if not said["events"]:
        raise BadWire("empty", "The message holds no events.")
    if len(said["events"]) > MOST_EVENTS:
        raise BadWire("too_large", f"The message holds more than {MOST_EVENTS} events.")
    return said


def _event(by_table: dict[str, Form], index: int, item: Any) -> Event | Refused:
    if not (isinstance(item, list) and len(item) == 2 and isinstance(item[0], str) and isinstance(item[1], dict)):
        return Refused(index, "garbage", "An event is no pair of type and fields.")
    form = by_table.get(item[0])
    if form is None:
        return Refused(index, "type", f"There is no event of type {item[0][:40]!r}; update this program.")
    try:
        fields = item[1] if form.fields.issuperset(item[1]) else {name: item[1][name] for name in form.fields & item[1].keys()}
        for name, value in fields.items():  # values are replaced, never names
            kind = type(value)
            if name in form.special:
                fields[name] = _special(form, name, value)
            elif kind is float:
                if value - value != 0.0 and name not in form.may_be_nan:  # not finite
                    raise ValueError(f"{name} is no number")
            elif kind is int and not -_LARGEST_INT <= value < _LARGEST_INT:
                raise ValueError(f"{name} is larger than any column")
        return form.kind.model_validate(fields)
    except ValidationError as error:
        mistake = error.errors(include_input=False, include_url=False)[0]
        where = ".".join(str(part) for part in mistake["loc"]) or item[0]
        return Refused(index, "field", f"{item[0]}: {where} is wrong ({mistake['msg']}).")
    except (ValueError, TypeError, OverflowError, ArithmeticError) as error:
        return Refused(index, "field", f"{item[0]}: {error}.")


def _special(form: Form, name: str, value: Any) -> Any:
    """A time or an amount of money as the event wants it."""
    if name in form.times:
        if value is None:
            return None
        if type(value) is not int:
            raise ValueError(f"{name} is no whole number of microseconds")
        return from_us(value)
    return Decimal(value) if type(value) is str else value


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _LARGEST_INT


_LEFT_OUT_EMPTY = frozenset({"holder", "energy_source", "shared"})
"""Fields that came with 1.1: a message that has nothing to say in them is as it was before."""
_NOT_A_NUMBER_IS_SAID = frozenset({"map50", "map50_95", "top1"})
"""A training that diverged prints nan for these, and that is what it says. (Losses are lists and not looked into.)"""


def _form(kind: type[Event]) -> Form:
    fields = kind.model_fields
    names = frozenset(fields) | {info.alias for info in fields.values() if info.alias}
    times = frozenset(name for name, info in fields.items() if "datetime" in str(info.annotation))
    money = frozenset(name for name, info in fields.items() if "Decimal" in str(info.annotation))
    required = frozenset(name for name, info in fields.items() if info.is_required())
    return Form(kind, names, required, times, money, times | money, _NOT_A_NUMBER_IS_SAID & names)
