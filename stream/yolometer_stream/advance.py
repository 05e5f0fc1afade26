"""All the thinking of the stream: one function that hands an event to every operator that takes it."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

from yolometer_core.events import Event
from yolometer_stream.operator import Operator, State

States = dict[str, dict[str, State]]


def advance(operators: Mapping[str, Operator], states: States, event: Event) -> list[Event]:
    """Give `event`, and every event that follows from it, to the operators that take it; return what followed, in order.

    `states` is `{operator name: {event key: state}}` and is changed in place; it is all the memory there is.
    """
    said: list[Event] = []
    waiting = deque([event])
    while waiting:
        current = waiting.popleft()
        for name, operator in operators.items():
            if not isinstance(current, operator.takes):
                continue
            per_key = states.setdefault(name, {})
            state = per_key.get(current.key)
            new, followed = operator.step(operator.start() if state is None else state, current)
            per_key[current.key] = new
            said.extend(followed)
            waiting.extend(followed)
    return said
