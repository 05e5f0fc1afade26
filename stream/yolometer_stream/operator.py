"""What an operator is: frozen settings with takes, gives, start and step. No IO, no clock, no client, no logging."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

from yolometer_core.events import Event

State = dict[str, Any]


@runtime_checkable
class Operator(Protocol):
    """Folds events into events.

    `start()` gives the state of a key that was never seen. `step(state, event)` gives the new state and the
    events that follow. The state is small, survives a JSON round trip, and ignores a `seq` it has seen, so a
    replay changes nothing. A step may change the state it was given; nobody else holds it.
    """

    @property
    def takes(self) -> tuple[type[Event], ...]: ...

    @property
    def gives(self) -> tuple[type[Event], ...]: ...

    def start(self) -> State: ...

    def step(self, state: State, event: Event) -> tuple[State, list[Event]]: ...
