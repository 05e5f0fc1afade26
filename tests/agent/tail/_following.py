"""What the tests of Follow share: a reader that remembers, and lines to write."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from yolometer_agent.tail.follow import Batch, Follow


class Reader:
    """A Follow that remembers what it was given; `restart` throws it away and goes on from its JSON state."""

    def __init__(self, path: Path, **options: Any) -> None:
        self.path, self.options = path, options
        self.follow = Follow(path, **options)
        self.got: list[tuple[int, bytes]] = []
        self.ends: list[int] = []
        self.fresh: list[int] = []

    def poll(self, max_bytes: int = 1 << 18) -> Batch | None:
        batch = self.follow.poll(max_bytes)
        if batch is not None:
            self.got += [(batch.incarnation, record) for record in batch.chunk.records]
            self.ends += [batch.chunk.ends(index) for index in range(len(batch.chunk.records))]
            if batch.fresh:
                self.fresh.append(batch.incarnation)
        return batch

    def read(self, max_bytes: int = 1 << 18) -> list[tuple[int, bytes]]:
        """All that is new, polled until there is nothing."""
        before = len(self.got)
        while self.poll(max_bytes) is not None:
            pass
        return self.got[before:]

    def restart(self) -> None:
        state = json.loads(json.dumps(self.follow.state()))
        self.follow.close()
        self.follow = Follow(self.path, state, **self.options)
        assert self.follow.state() == state


def append(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


def lines(start: int, stop: int) -> bytes:
    return b"".join(b"line %d\n" % number for number in range(start, stop))


def records(incarnation: int, start: int, stop: int) -> list[tuple[int, bytes]]:
    return [(incarnation, b"line %d" % number) for number in range(start, stop)]
