"""One message in, what follows out: the same bytes every time, and what cannot be understood harms nothing beside it."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, ClassVar

import msgpack
import pytest
from _worker import AT_MS, START, broken, gpu_event, messages_of
from hypothesis import given, settings
from hypothesis import strategies as st
from laws import facts_of_a_place

from yolometer.box import operators
from yolometer_core import wire
from yolometer_core.delivery import DeadLetter, Loss
from yolometer_core.events import Event, Rate, Run, Settle
from yolometer_core.gpu import Gpu
from yolometer_core.letters import MOST_RAW_BYTES, Record
from yolometer_stream.advance import States, advance, has_no_topic
from yolometer_stream.handle import dead_letters, handle, outputs_of, topics_of
from yolometer_stream.operator import State
from yolometer_stream.runs.rows import Terms

OPERATORS = operators(Terms(price_per_gpu_hour=Decimal("2.5"), currency="USD"))


@dataclass(frozen=True)
class Breaks:
    """An operator with a bug: it fails at the message number `at`, after it has changed its state."""

    at: int
    takes: tuple[type[Event], ...] = (Gpu,)
    gives: tuple[type[Event], ...] = ()

    def start(self) -> State:
        return {"seen": 0}

    def step(self, state: State, event: Event) -> tuple[State, list[Event]]:
        state["seen"] += 1
        if event.seq == self.at:
            raise ZeroDivisionError("a bug")
        return state, []


def reasons(raw_key: bytes | None, raw: bytes | None, topic: str = "gpu") -> list[tuple[int, str]]:
    outcome = handle(OPERATORS, {}, raw_key, raw, topic)
    return [(dead.at, dead.reason) for dead in outcome.dead]


def test_the_topics_follow_from_the_operators() -> None:
    assert topics_of(OPERATORS) == ("fact", "gpu", "rate")
    assert outputs_of(OPERATORS) == ("dead", "rate", "run")


FEW = settings(max_examples=40)


@FEW
@given(facts_of_a_place("p1"), st.integers(1, 7))
def test_it_says_what_the_operators_say_in_one_process(events: list[Event], per_message: int) -> None:
    facts = [event for event in events if not isinstance(event, Settle)]
    bundle: States = {}
    said: list[Event] = []
    expected: list[Event] = []
    states: States = {}
    for topic, key, raw in messages_of(facts, per_message):
        outcome = handle(OPERATORS, bundle, key, raw, topic)
        assert not outcome.dead and outcome.took
        again = wire.read(raw)
        for event in again.events:
            expected += advance(OPERATORS, states, event, goes_on=has_no_topic)
        ts = datetime.fromtimestamp(again.at_ms / 1000, UTC)
        settle = Settle(ts=ts, node="n1", source="stream", seq=0, place="p1")
        expected += advance(OPERATORS, states, settle, goes_on=has_no_topic)
        for output in outcome.outputs:
            batch = wire.read(output.value)
            assert (batch.node, batch.at_ms, batch.seq, batch.lane) == ("n1", again.at_ms, None, None)
            assert {event.key.encode() for event in batch.events} == {output.key}
            said += batch.events
    assert bundle == states
    travelled = [event for event in expected if event.topic]
    for kind in (Run, Rate):  # the order holds within a topic
        assert [each for each in said if isinstance(each, kind)] == [each for each in travelled if isinstance(each, kind)]
    assert len(said) == len(travelled)


@FEW
@given(facts_of_a_place("p1"))
def test_the_same_message_from_the_same_state_gives_the_same_bytes(events: list[Event]) -> None:
    facts = [event for event in events if not isinstance(event, Settle)]
    bundle: States = {}
    for topic, key, raw in messages_of(facts, 3):
        before = copy.deepcopy(bundle)
        assert handle(OPERATORS, before, key, raw, topic).outputs == handle(OPERATORS, bundle, key, raw, topic).outputs


GOOD = messages_of([gpu_event("n1", 0)])[0][2]


@pytest.mark.parametrize(
    ("key", "raw", "reason"),
    [
        (b"n1", None, "tombstone"),
        (b"n1", b"", "garbage"),
        (b"n1", b"\xff\x00 nothing", "garbage"),
        (b"n1", broken(GOOD, v=[2, 0]), "version"),
        (b"n1", broken(GOOD, events=[]), "empty"),
        (b"n1", broken(GOOD, at=-5), "field"),
        (None, GOOD, "key"),
        (b"\xff\xfe", GOOD, "key"),
    ],
)
def test_a_message_that_cannot_be_understood_is_dead(key: bytes | None, raw: bytes | None, reason: str) -> None:
    assert reasons(key, raw) == [(-1, reason)]


def test_an_event_of_another_key_or_topic_is_dead() -> None:
    assert reasons(b"n2", GOOD) == [(0, "key")]
    assert reasons(b"n1", GOOD, "fact") == [(0, "type")]


def test_a_bad_event_does_not_harm_its_neighbours() -> None:
    said = msgpack.unpackb(messages_of([gpu_event("n1", 0), gpu_event("n1", 1), gpu_event("n1", 2)], 3)[0][2])
    said["events"][1][1]["period_s"] = float("nan")
    said["events"].insert(0, ["unheard", {}])
    raw = msgpack.packb(said)
    bundle: States = {}
    outcome = handle(OPERATORS, bundle, b"n1", raw, "gpu")
    assert [(dead.at, dead.reason) for dead in outcome.dead] == [(0, "type"), (2, "field")]
    assert bundle["coverage"]["n1"]["sources"]["meter"]["seq"] == 2
    outputs = dead_letters(outcome, Record("t.gpu", 1, 7, b"n1", raw, AT_MS))
    letters = [event for output in outputs for event in wire.read(output.value).events]
    assert [type(letter) for letter in letters] == [DeadLetter, DeadLetter]
    alone = wire.read(letters[1].raw)  # type: ignore[attr-defined]
    assert len(alone.refused) == 1 and not alone.events and alone.seq is None, "its dead letter holds it and nothing else"


def test_a_dead_letter_keeps_where_it_came_from_and_fits_into_a_message() -> None:
    raw = b"\xc1" * 1_200_000
    outcome = handle(OPERATORS, {}, b"n1", raw, "gpu")
    outputs = dead_letters(outcome, Record("t.gpu", 3, 99, b"n1", raw, AT_MS))
    (letter,) = wire.read(outputs[0].value).events
    assert isinstance(letter, DeadLetter)
    assert (letter.from_topic, letter.from_partition, letter.from_offset, letter.index) == ("t.gpu", 3, 99, -1)
    assert letter.raw == raw[:MOST_RAW_BYTES] and "1200000" in letter.detail
    assert outputs[0].topic == "dead" and len(outputs[0].value) < 1_000_000
    assert dead_letters(outcome, Record("t.gpu", 3, 99, b"n1", raw, AT_MS)) == outputs


def test_a_step_that_fails_kills_its_message_alone() -> None:
    parts = {**OPERATORS, "breaks": Breaks(1)}
    outcome = handle(parts, {}, b"n1", messages_of([gpu_event("n1", 1)])[0][2], "gpu")
    assert outcome.failed and not outcome.outputs
    assert [(dead.at, dead.reason) for dead in outcome.dead] == [(-1, "step")]
    assert "ZeroDivisionError: a bug" in outcome.dead[0].detail


def test_what_nobody_takes_changes_nothing() -> None:
    loss = Loss(ts=START, node="n1", source="l", seq=0, last_seq=3, messages=4, size_bytes=9, reason="full")
    outcome = handle(OPERATORS, {}, b"n1", messages_of([loss])[0][2], "fact")
    assert not outcome.took and not outcome.dead and outcome.events == 1


class Alarm(Rate):
    urgent: ClassVar[bool] = True


@dataclass(frozen=True)
class Shouts:
    """Says one urgent event and one that is not."""

    takes: tuple[type[Event], ...] = (Gpu,)
    gives: tuple[type[Event], ...] = (Rate,)

    def start(self) -> State:
        return {}

    def step(self, state: State, event: Event) -> tuple[State, list[Event]]:
        said = {"node": event.node, "source": "s", "seq": event.seq, "run_id": None, "window_s": 60}
        fields: dict[str, Any] = {"ts": event.ts, **said, "rate_mtok_s": 1.0, "coverage_ratio": 1.0, "active_rate_mtok_s": None}
        return state, [Alarm(**fields), Rate(**fields)]


@pytest.mark.parametrize(("cold", "said"), [(True, 1), (False, 2)])
def test_nothing_urgent_is_said_from_a_cold_state(cold: bool, said: int) -> None:
    outcome = handle({"s": Shouts()}, {}, b"n1", GOOD, "gpu", cold=cold)
    assert sum(len(wire.read(out.value).events) for out in outcome.outputs) == said
    assert outcome.held == 2 - said
