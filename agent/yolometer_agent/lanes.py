"""Lanes: how facts and samples become numbered messages in their spools, with what the agent knew when they were in."""

from __future__ import annotations

import contextlib
import threading
import time
import zlib
from collections import deque
from collections.abc import Callable, Iterable

from yolometer_agent.spool.spool import Spool
from yolometer_core import wire
from yolometer_core.errors import BadInput
from yolometer_core.events import Event
from yolometer_core.gpu import Gpu

FACT, GPU = "fact", "gpu"
STATE_S = 10.0
STATE_BYTES_PER_S = 20_000


def seq_of(epoch: int, number: int) -> int:
    """The number of a message in its lane, as it travels."""
    return epoch << 32 | number


class FactLane:
    """Facts on their way into their spool, and the states of the agent between them. One thread.

    The order of side effects: 1. `take` keeps facts in memory. 2. `flush` puts them into the spool as messages, each place in
    order. 3. Only when none is left, `put_state` puts behind them the state that follows from them. A crash before 3 reads
    the same lines again.
    """

    def __init__(
        self,
        spool: Spool,
        node: str,
        *,
        refused: Callable[[int, str], object],
        most_bytes: int = wire.MOST_BYTES,
        wall: Callable[[], float] = time.time,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`refused` is told how many events can never travel, and why. The spool has to take messages of `most_bytes`."""
        self._spool, self._node, self._refused, self._wall, self._clock = spool, node, refused, wall, clock
        self._most_bytes = most_bytes
        self._taken: list[Event] = []
        self._packed: deque[wire.Packed] = deque()
        self._state = b""
        self._since_bytes = 0
        self._state_s = clock()
        self.last = 0
        """The seq of the last message that this process put into the spool; 0 for none."""
        self.events = 0
        """How many events this process put into the spool."""

    def take(self, events: Iterable[Event]) -> None:
        """Keep events for the next flush."""
        self._taken += events

    @property
    def taken(self) -> int:
        """How many events are taken and not yet cut into messages."""
        return len(self._taken)

    @property
    def is_waiting(self) -> bool:
        """Whether something is taken that is not in the spool."""
        return bool(self._taken or self._packed)

    def flush(self) -> None:
        """Put all that was taken into the spool. Unavailable when it takes no more now: what is left waits for the next flush."""
        packed, bad = wire.batches(self._taken, self._most_bytes)
        self._taken = []
        self._packed.extend(packed)
        for _, error in bad:
            self._refused(1, str(error))
        while self._packed:
            message = self._packed[0]
            try:
                self.last = self._spool.append(message.topic.encode(), message.key.encode(), self._value_of(message.events))
                self.events += len(message.events)
                self._since_bytes += sum(map(len, message.events))
            except BadInput as error:
                self._refused(len(message.events), str(error))
            self._packed.popleft()

    def state_is_due(self) -> bool:
        """Whether to put a state into the spool: states must not take more room than messages do, nor wait for ever."""
        age_s = self._clock() - self._state_s
        return self._since_bytes > len(self._state) or age_s >= max(STATE_S, len(self._state) / STATE_BYTES_PER_S)

    def put_state(self, state: bytes) -> bool:
        """Put a state behind the messages; False when it is the one that is there. Unavailable when the spool takes no more."""
        small = zlib.compress(state, 1)
        self._state_s = self._clock()
        if small == self._state:
            return False
        with contextlib.suppress(BadInput):  # larger than a spool takes: only the checkpoint has it, and more is read again
            self._spool.append_state(small)
        self._state, self._since_bytes = small, 0
        return True

    def last_state(self) -> bytes | None:
        """The newest state in the spool; None when there is none."""
        found = self._spool.last_state()
        try:
            return zlib.decompress(found[1]) if found else None
        except zlib.error:
            return None

    def _value_of(self, events: list[bytes]) -> Callable[[int, int], bytes]:
        at_ms = int(self._wall() * 1000)
        return lambda epoch, number: wire.message(
            events, node=self._node, at_ms=at_ms, lane=FACT, seq=seq_of(epoch, number)
        )  # fmt: skip


class GpuLane:
    """Samples on their way into their spool; for any number of meters, each in its thread."""

    def __init__(self, spool: Spool, node: str, *, wall: Callable[[], float] = time.time) -> None:
        self._spool, self._node, self._wall = spool, node, wall
        self._lock = threading.Lock()

    def put(self, event: Callable[[int], Event]) -> None:
        """Put one event into the spool; `event` makes it from its seq. Unavailable when the disk does not take it."""
        at_ms = int(self._wall() * 1000)

        def value(epoch: int, number: int) -> bytes:
            seq = seq_of(epoch, number)
            return wire.message([wire.pack(event(seq))], node=self._node, at_ms=at_ms, lane=GPU, seq=seq)

        with self._lock:
            self._spool.append(str(Gpu.topic).encode(), self._node.encode(), value)


__all__ = ["FACT", "GPU", "FactLane", "GpuLane", "seq_of"]
