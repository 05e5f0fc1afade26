"""What a meter is, and the thread that reads one at its pace and gives some seconds of samples at a time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple, Protocol, runtime_checkable

from yolometer_core.errors import BadInput, Unavailable
from yolometer_core.events import Event
from yolometer_core.gpu import MOST_SAMPLES, Gpu, Share, packed

_ABOUT = ("run_id", "user", "team", "attribution_source", "holder", "energy_source")
BLOCK_S = 5.0
STEP_S = 0.5
"""A wall clock that is off by more than this against the steady one was set; then the times of the samples follow it."""


class Device(NamedTuple):
    """A GPU, by its UUID, and for whom it works at the moment; None is unknown. The words are those of the event `Gpu`."""

    uuid: str
    model: str | None = None
    run_id: str | None = None
    user: str | None = None
    team: str | None = None
    attribution_source: str | None = None
    holder: str | None = None
    energy_source: str | None = None
    shares: tuple[Share, ...] = ()
    """Those that share it, when there are several; then the fields above say what they have in common."""


class Reading(NamedTuple):
    """What a meter read of one GPU: values by the names of `yolometer_core.gpu.METRICS`; None is unknown."""

    device: Device
    values: Mapping[str, float | None]


@runtime_checkable
class Meter(Protocol):
    """Reads the hardware. Frozen settings, given under its name in `meters:`; a module of this folder offers it as METER."""

    @property
    def period_s(self) -> float:
        """How far apart the samples are."""

    def sample(self, now: datetime) -> Sequence[Reading]:
        """Read all GPUs, each at most once; `now` is the time of the samples. Unavailable when none can be read now."""


@runtime_checkable
class Closes(Protocol):
    """A meter that holds something open."""

    def close(self) -> None:
        """Let go of it."""


class Block:
    """Samples of the same GPUs on their way into one event."""

    def __init__(self, devices: tuple[Device, ...], period_s: float) -> None:
        self.devices, self.period_s = devices, period_s
        self.times: list[datetime] = []
        self._rows: list[Sequence[Reading]] = []

    def add(self, now: datetime, readings: Sequence[Reading]) -> None:
        self.times.append(now)
        self._rows.append(readings)

    def takes(self, now: datetime, readings: Sequence[Reading]) -> bool:
        """Whether these readings fit: of the same GPUs, later, and not too many."""
        same = tuple(reading.device for reading in readings) == self.devices
        return same and now > self.times[-1] and len(self.devices) * (len(self.times) + 1) <= MOST_SAMPLES

    def event(self, node: str, source: str, seq: int) -> Gpu:
        """The samples as one event."""
        names = sorted({name for row in self._rows for reading in row for name in reading.values})
        columns = {
            name: [row[gpu].values.get(name) for gpu in range(len(self.devices)) for row in self._rows] for name in names
        }
        about: dict[str, Any] = {name: tuple(getattr(device, name) for device in self.devices) for name in _ABOUT}
        shared = {device.uuid: device.shares for device in self.devices if device.shares}
        uuids, models = zip(*((device.uuid, device.model) for device in self.devices), strict=True)
        begin = self.times[0]
        offsets_ms = tuple(round((at - begin) / timedelta(milliseconds=1)) for at in self.times)
        return Gpu(ts=begin, node=node, source=source, seq=seq, period_s=self.period_s, offsets_ms=offsets_ms,
                   gpu_uuid=uuids, gpu_model=models, columns=packed(columns), shared=shared, **about)  # fmt: skip


Put = Callable[[Callable[[int], Event]], object]
"""Puts one event into the lane; it is given the seq."""


class Ticker:
    """Reads a meter on a grid of a steady clock, in a thread of its own, and hands on a block each `BLOCK_S`.

    `news` gives what else the meter has to tell. A tick that comes too late is left out, never made up. The time of a sample is
    the wall clock of the start and what the steady clock went on since; when the wall clock was set, it follows. Waits for
    nothing but the meter and the disk.
    """

    def __init__(
        self,
        name: str,
        meter: Meter,
        node: str,
        put: Put,
        *,
        warn: Callable[[str], object],
        news: Callable[[datetime], Iterable[Callable[..., Event]]] = lambda now: (),
        wall: Callable[[], float] = time.time,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._name, self._meter, self._node, self._put, self._warn, self._news = name, meter, node, put, warn, news
        self._wall, self._clock = wall, clock
        self._anchor_s, self._zero_s = wall(), clock()
        self._ticks = 0
        self._block: Block | None = None
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"meter-{name}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self, seconds: float) -> None:
        """End it and hand on what was read; a meter that hangs is left after `seconds`."""
        self._over.set()
        if self._thread.is_alive():
            self._thread.join(seconds)

    def tick(self) -> float:
        """Read once; returns how long to wait until the next tick."""
        now = self._now()
        try:
            readings = self._meter.sample(now)
        except Unavailable as error:
            self._warn(str(error))
            readings = []
        except Exception as error:  # noqa: BLE001  # what one look at the hardware raises must not end all the others
            self._warn(f"The meter {self._name} failed ({type(error).__name__}: {error}); it is read again.")
            readings = []
        for news in self._news(now):
            self._send(lambda seq, news=news: news(seq=seq))  # type: ignore[misc]  # bound at once
        if readings:
            if self._block is not None and not self._block.takes(now, readings):
                self.flush()
            if self._block is None:
                self._block = Block(tuple(reading.device for reading in readings), self._meter.period_s)
            self._block.add(now, readings)
        if self._block is not None and (now - self._block.times[0]).total_seconds() > BLOCK_S - self._meter.period_s * 1.5:
            self.flush()
        passed_s = self._clock() - self._zero_s
        self._ticks = max(self._ticks + 1, int(passed_s / self._meter.period_s) + 1)
        return max(0.0, self._ticks * self._meter.period_s - passed_s)

    def flush(self) -> None:
        """Hand on what was read so far."""
        block, self._block = self._block, None
        if block is not None:
            self._send(lambda seq: block.event(self._node, self._name, seq))

    def _send(self, event: Callable[[int], Event]) -> None:
        try:
            self._put(event)
        except (BadInput, ValueError) as error:  # a meter that gives what no event can hold
            self._warn(f"Samples of the meter {self._name} were dropped ({error}); correct the meter.")
        except Unavailable as error:  # the disk does not take them
            self._warn(str(error))

    def _run(self) -> None:
        while not self._over.wait(self.tick()):
            pass
        self.flush()

    def _now(self) -> datetime:
        now_s = self._anchor_s + self._clock() - self._zero_s
        if abs(self._wall() - now_s) > STEP_S:
            self._anchor_s += self._wall() - now_s
            now_s = self._wall()
        return datetime.fromtimestamp(round(now_s, 3), UTC)


__all__ = ["Block", "Closes", "Device", "Meter", "Put", "Reading", "Ticker"]
