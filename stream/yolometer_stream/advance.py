"""All the thinking of the stream: one function that hands an event to every operator that takes it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping

from yolometer_core.events import Event
from yolometer_stream.operator import Operator, State

States = dict[str, dict[str, State]]


def stays(event: Event) -> bool:
    """For a runner in one process: every event goes straight on to the operators that take it."""
    return True


def has_no_topic(event: Event) -> bool:
    """For a runner over topics: what has a topic comes back through it, to where its key has its state."""
    return event.topic is None


def advance(
    operators: Mapping[str, Operator], states: States, event: Event, goes_on: Callable[[Event], bool] = stays
) -> list[Event]:
    """Give `event`, and every event that follows from it, to the operators that take it; return what followed, in order.

    `states` is `{operator name: {event key: state}}` and is changed in place; it is all the memory there is. An event
    that followed and does not `goes_on` is returned only: the runner brings it to the operators by another way.
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
            waiting.extend(filter(goes_on, followed))
    return said
