"""A reader of the stub's GPUs whose steady clock a test moves, so that no test waits for a period to pass."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import pytest
from _nvml_stub import Stub

from yolometer_agent.meters._base import Reading
from yolometer_agent.meters._nvml_reader import Habits, Reader

GIB = 2**30


def uuid(gpu: int) -> str:
    """The UUID that the stub gives a GPU."""
    return f"GPU-{gpu:08x}-0000-4000-8000-000000000000"


def nulls(reading: Reading) -> set[str]:
    """The names of what is unknown."""
    return {name for name, value in reading.values.items() if value is None}


class Clock:
    """A steady clock that stands still."""

    def __init__(self) -> None:
        self.now_s = 5000.0

    def __call__(self) -> float:
        return self.now_s


class Node(NamedTuple):
    """A reader and its clock."""

    reader: Reader
    clock: Clock

    def sample(self, after_s: float = 1.0) -> Sequence[Reading]:
        """A sample, so many seconds after the one before."""
        self.clock.now_s += after_s
        return self.reader.sample()

    def one(self, after_s: float = 1.0) -> Reading:
        """The same on a node of one GPU."""
        (reading,) = self.sample(after_s)
        return reading


Made = Callable[..., Node]


@pytest.fixture
def made(stub: Stub) -> Iterator[Made]:
    """Makes readers of the stub's node, with habits as given, and closes them."""
    nodes: list[Node] = []

    def make(**habits: float) -> Node:
        clock = Clock()
        nodes.append(Node(Reader(Habits(**habits)._replace(library=stub.library), clock), clock))
        return nodes[-1]

    yield make
    stub.release()
    for node in nodes:
        node.reader.close()


__all__ = ["GIB", "Clock", "Made", "Node", "made", "nulls", "uuid"]
