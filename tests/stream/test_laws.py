"""Every operator that discovery finds keeps the laws of laws.py."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import laws
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import yolometer_stream.ops
from yolometer_core.events import Event, Rate, Work
from yolometer_core.parts import discover
from yolometer_stream.operator import Operator

OPERATORS = discover(yolometer_stream.ops, "OPERATOR", Operator)

# slow machines are no reason to fail, and a history takes many draws
LAW = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
every_operator = pytest.mark.parametrize("name", sorted(OPERATORS))


def history(data: st.DataObject, name: str, key: str = "k1") -> list[Event]:
    if name not in laws.HISTORIES:
        pytest.fail(f"The operator {name!r} has no strategy; add one to HISTORIES in tests/stream/laws.py.")
    events: list[Event] = data.draw(laws.HISTORIES[name](key), label=f"history of {key}")
    return events


def mixed(data: st.DataObject, *histories: Sequence[Event]) -> list[Event]:
    """Any interleaving that keeps the order within each history."""
    turns = data.draw(st.permutations([n for n, events in enumerate(histories) for _ in events]), label="turns")
    rest = [iter(events) for events in histories]
    return [next(rest[n]) for n in turns]


def test_there_are_operators() -> None:
    assert OPERATORS, "discovery found no operator in yolometer_stream.ops"


@every_operator
@LAW
@given(data=st.data())
def test_restart_at_any_point_changes_nothing(name: str, data: st.DataObject) -> None:
    laws.restart_changes_nothing(OPERATORS[name], history(data, name))


@every_operator
@LAW
@given(data=st.data())
def test_the_same_event_twice_changes_nothing(name: str, data: st.DataObject) -> None:
    laws.repeated_at_once_changes_nothing(OPERATORS[name], history(data, name))


@every_operator
@LAW
@given(data=st.data())
def test_the_whole_history_again_changes_nothing(name: str, data: st.DataObject) -> None:
    events = history(data, name)
    laws.replay_changes_nothing(OPERATORS[name], events, 0, len(events))


@every_operator
@LAW
@given(data=st.data())
def test_a_part_of_the_history_again_changes_nothing(name: str, data: st.DataObject) -> None:
    events = history(data, name)
    at = data.draw(st.integers(0, len(events)), label="at")
    laws.replay_changes_nothing(OPERATORS[name], events, data.draw(st.integers(0, at), label="back to"), at)


@every_operator
@LAW
@given(data=st.data())
def test_the_order_of_other_keys_is_irrelevant(name: str, data: st.DataObject) -> None:
    one, two = history(data, name, "k1"), history(data, name, "k2")
    laws.other_keys_change_nothing(OPERATORS[name], mixed(data, one, two), one, two)


@every_operator
@LAW
@given(data=st.data())
def test_events_stay_as_they_are_and_what_is_given_is_announced(name: str, data: st.DataObject) -> None:
    events = history(data, name)
    laws.events_stay_as_they_are(OPERATORS[name], events)
    laws.only_what_is_announced(OPERATORS[name], events)


# The laws themselves: an operator that breaks one is caught --------------------------------------------------------------


@dataclass(frozen=True)
class Careless:
    """Says how often it was asked, in a Rate that is its own input's row; remembers what `remember` makes of the count."""

    remember: Callable[[int], Any] = int
    takes: tuple[type[Event], ...] = (Work,)
    gives: tuple[type[Event], ...] = (Rate,)

    def start(self) -> dict[str, Any]:
        return {"n": self.remember(0)}

    def step(self, state: dict[str, Any], event: Event) -> tuple[dict[str, Any], list[Event]]:
        n = state["n"] if isinstance(state["n"], int) else state["n"][0]
        return {"n": self.remember(n + 1)}, [laws.a_rate("n1", event.key, event.seq, 60, n)]


SAID_BY = {"node": "n1", "source": "s", "run_id": "k1", "attempt": 1}
EVENTS = [Work(ts=laws.START, seq=seq, duration_s=1.0, amount_mtok=1.0, **SAID_BY) for seq in range(3)]


def test_counting_an_event_twice_is_caught() -> None:
    with pytest.raises(AssertionError):
        laws.repeated_at_once_changes_nothing(Careless(), EVENTS)
    with pytest.raises(AssertionError, match="came twice"):
        laws.replay_changes_nothing(Careless(), EVENTS, 0, 3)


def test_a_state_that_json_changes_is_caught() -> None:
    with pytest.raises(AssertionError, match="round trip"):
        laws.restart_changes_nothing(Careless(remember=lambda n: (n,)), EVENTS)


def test_state_shared_by_keys_is_caught() -> None:
    shared: list[int] = [0]
    careless = Careless(remember=lambda n: shared.__setitem__(0, shared[0] + 1) or shared[0])
    others = [event.model_copy(update={"run_id": "k2"}) for event in EVENTS]
    with pytest.raises(AssertionError):
        laws.other_keys_change_nothing(careless, [*others, *EVENTS], EVENTS, others)


def test_giving_what_was_not_announced_is_caught() -> None:
    with pytest.raises(AssertionError, match="Rate"):
        laws.only_what_is_announced(Careless(gives=()), EVENTS)


@pytest.mark.parametrize("name", sorted(laws.HISTORIES))
@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_seq_grows_within_a_source_of_a_history_and_all_events_have_its_key(name: str, data: st.DataObject) -> None:
    events = history(data, name)
    assert {event.key for event in events} == {"k1"}
    if name == "run":
        for source in {event.source for event in events}:
            seqs = [event.seq for event in events if event.source == source]
            assert seqs == sorted(set(seqs))
