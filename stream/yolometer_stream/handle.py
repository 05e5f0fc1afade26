"""Handle one message of a topic: read it, advance the state of its key, and say what follows. Pure: no IO, no clock."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from yolometer_core import wire
from yolometer_core.delivery import DeadLetter, DeadReason
from yolometer_core.events import Event, Fact, Settle
from yolometer_core.letters import Record, letter, packed
from yolometer_core.times import from_ms
from yolometer_stream.advance import States, advance, has_no_topic
from yolometer_stream.operator import Operator

SOURCE = "stream"
_LATEST_MS = 253_402_300_799_999


class Output(NamedTuple):
    """A message to produce; `topic` is the name of the topic without the prefix of the deployment."""

    topic: str
    key: bytes
    value: bytes


class Dead(NamedTuple):
    """Why a message (`at` -1), or the event number `at` of it, is not handled."""

    at: int
    reason: DeadReason
    detail: str


@dataclass
class Outcome:
    """What came of one message.

    `took` tells that an operator was given something, so that the state may be another one. After `failed` the state is
    half-way and must be thrown away: what it was before the message counts. `held` is how many events were kept back.
    """

    outputs: list[Output] = field(default_factory=list)
    dead: list[Dead] = field(default_factory=list)
    took: bool = False
    failed: bool = False
    events: int = 0
    held: int = 0
    node: str = ""
    at_ms: int | None = None


def handle(
    operators: Mapping[str, Operator],
    bundle: States,
    raw_key: bytes | None,
    raw_value: bytes | None,
    topic: str,
    *,
    cold: bool = False,
) -> Outcome:
    """Advance `bundle`, the state of this topic and key, by a message; it is changed in place.

    The same bundle and message always give the same outcome, byte for byte. What cannot be understood is in `dead`, its
    neighbours are handled. After the facts of a message the operators settle. `cold` keeps urgent events back.
    """
    outcome = Outcome()
    try:
        batch = wire.read(raw_value)
    except wire.BadWire as bad:
        outcome.dead.append(Dead(-1, bad.reason, str(bad)))
        return outcome
    outcome.node, outcome.at_ms, outcome.events = batch.node, batch.at_ms, len(batch.events)
    key = _text(raw_key)
    if key is None:
        outcome.dead.append(Dead(-1, "key", "The message has no key that is text; its events have no order without one."))
        return outcome
    outcome.dead += [Dead(refused.at, refused.reason, refused.detail) for refused in batch.refused]
    refused_at = {refused.at for refused in batch.refused}
    places = (at for at in range(len(batch.events) + len(batch.refused)) if at not in refused_at)
    good: list[Event] = []
    for at, event in zip(places, batch.events, strict=True):
        wrong = _misplaced(event, topic, key)
        if wrong is None:
            good.append(event)
        else:
            outcome.dead.append(Dead(at, *wrong))
    try:
        said = _advanced(operators, bundle, good, batch, key, outcome)
    except Exception as error:  # noqa: BLE001  # whatever a step raises is a bug of the step; the stream goes on without this message
        return _failed(outcome, error)
    if cold:
        loud = [event for event in said if not getattr(event, "urgent", False)]
        outcome.held, said = len(said) - len(loud), loud
    if said:
        messages, bad_events = wire.batches(said)
        outcome.dead += [Dead(-1, "step", f"What follows from it cannot travel: {error}") for _, error in bad_events]
        outcome.outputs = _outputs(messages, batch.node, batch.at_ms)
    return outcome


def dead_letters(outcome: Outcome, record: Record) -> list[Output]:
    """The messages that keep what `outcome` could not use of a message."""
    found = [
        letter(record, dead.at, dead.reason, dead.detail, node=outcome.node, source=SOURCE) for dead in outcome.dead
    ]  # fmt: skip
    return _outputs(packed(found), SOURCE, max(record.at_ms, 0))


def topics_of(operators: Mapping[str, Operator]) -> tuple[str, ...]:
    """The topics that some operator takes something from, sorted."""
    taken = {kind for operator in operators.values() for kind in operator.takes}
    return tuple(sorted({str(kind.topic) for kind in taken if kind.topic is not None}))


def outputs_of(operators: Mapping[str, Operator]) -> tuple[str, ...]:
    """The topics that some operator gives something to, and that of dead letters, sorted."""
    given = {kind for operator in operators.values() for kind in operator.gives}
    return tuple(sorted({str(kind.topic) for kind in given if kind.topic is not None} | {str(DeadLetter.topic)}))


def _advanced(
    operators: Mapping[str, Operator], bundle: States, events: Iterable[Event], batch: wire.Batch, key: str, outcome: Outcome
) -> list[Event]:
    said: list[Event] = []
    facts = False
    for event in events:
        outcome.took = outcome.took or any(isinstance(event, operator.takes) for operator in operators.values())
        facts = facts or isinstance(event, Fact)
        said += advance(operators, bundle, event, goes_on=has_no_topic)
    if facts:
        ts = from_ms(min(batch.at_ms, _LATEST_MS))
        settle = Settle(ts=ts, node=batch.node, source=SOURCE, seq=0, place=key)
        said += advance(operators, bundle, settle, goes_on=has_no_topic)
    return [event for event in said if event.topic is not None]


def _outputs(messages: Iterable[wire.Packed], node: str, at_ms: int) -> list[Output]:
    return [Output(each.topic, each.key.encode(), wire.message(each.events, node=node, at_ms=at_ms)) for each in messages]


def _failed(outcome: Outcome, error: Exception) -> Outcome:
    detail = f"A step of the operators failed ({type(error).__name__}: {str(error)[:500]})."
    whole = Dead(-1, "step", detail)
    return Outcome(dead=[whole], failed=True, events=outcome.events, node=outcome.node, at_ms=outcome.at_ms)


def _misplaced(event: Event, topic: str, key: str) -> tuple[DeadReason, str] | None:
    if event.topic != topic:
        return "type", f"A {event.table} event does not belong into the topic {topic}."
    if event.key != key:
        return "key", f"A {event.table} event of {event.key[:200]!r} came with the key {key[:200]!r}."
    return None


def _text(raw_key: bytes | None) -> str | None:
    try:
        return None if raw_key is None else raw_key.decode()
    except UnicodeDecodeError:
        return None
