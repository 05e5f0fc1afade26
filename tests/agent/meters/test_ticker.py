"""The thread of a meter: its grid, its blocks, its clock, and what it does with a meter that fails."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

import pytest

from yolometer_agent.meters._base import Device, Reading, Ticker
from yolometer_core.errors import Unavailable
from yolometer_core.gpu import Gpu

DAY = datetime(2026, 12, 1, tzinfo=UTC).timestamp()


class Scripted:
    """A meter whose GPUs and failures a test sets."""

    def __init__(self, period_s: float = 1.0) -> None:
        self.period_s = period_s
        self.devices = [Device("GPU-a"), Device("GPU-b", run_id="r")]
        self.error: Exception | None = None

    def sample(self, now: datetime) -> Sequence[Reading]:
        if self.error:
            raise self.error
        return [Reading(device, {"power_w": now.timestamp() - DAY + index}) for index, device in enumerate(self.devices)]


class Clock:
    """A steady clock and a wall clock."""

    def __init__(self) -> None:
        self.steady_s, self.wall_s = 100.0, DAY

    def go(self, seconds: float) -> None:
        self.steady_s += seconds
        self.wall_s += seconds


class Made:
    def __init__(self, meter: Scripted) -> None:
        self.clock, self.meter = Clock(), meter
        self.events: list[Gpu] = []
        self.said: list[str] = []
        self.ticker = Ticker(
            "scripted", meter, "n", self._put, warn=self.said.append,
            wall=lambda: self.clock.wall_s, clock=lambda: self.clock.steady_s,
        )  # fmt: skip

    def _put(self, make: Callable[[int], Gpu]) -> None:
        self.events.append(make(len(self.events) + 1))

    def ticks(self, count: int) -> None:
        for _ in range(count):
            self.clock.go(self.ticker.tick())

    def times(self) -> list[float]:
        return [event.ts.timestamp() + offset / 1000 - DAY for event in self.events for offset in event.offsets_ms]


def test_five_seconds_are_one_event() -> None:
    made = Made(Scripted())
    made.ticks(10)
    assert [event.seq for event in made.events] == [1, 2]
    assert made.times() == list(range(10))
    assert made.events[0].gpu_uuid == ("GPU-a", "GPU-b")
    assert made.events[0].run_id == (None, "r")
    assert list(made.events[0].values("power_w")) == [0, 1, 2, 3, 4, 1, 2, 3, 4, 5]
    assert all(map(math.isnan, made.events[0].values("temperature_c")))


def test_a_late_tick_is_left_out_and_the_grid_stays() -> None:
    made = Made(Scripted())
    made.ticks(2)
    made.clock.go(2.3)  # the machine was busy
    made.ticks(3)
    made.ticker.flush()
    assert made.times() == pytest.approx([0, 1, 4.3, 5, 6])


def test_other_gpus_or_another_run_begin_a_new_event() -> None:
    made = Made(Scripted())
    made.ticks(2)
    made.meter.devices[1] = Device("GPU-b", run_id="another")
    made.ticks(1)
    made.meter.devices.pop(0)
    made.ticks(1)
    made.ticker.flush()
    assert [(event.gpu_uuid, event.run_id, event.samples) for event in made.events] == [
        (("GPU-a", "GPU-b"), (None, "r"), 4), (("GPU-a", "GPU-b"), (None, "another"), 2), (("GPU-b",), ("another",), 1)
    ]  # fmt: skip


def test_a_wall_clock_that_is_set_is_followed_and_makes_no_sample_twice() -> None:
    made = Made(Scripted())
    made.ticks(3)
    made.clock.wall_s -= 3600.25  # back
    made.ticks(3)
    made.clock.wall_s += 86400
    made.ticks(2)
    made.ticker.flush()
    assert made.times() == pytest.approx([0, 1, 2, -3597.25, -3596.25, -3595.25, 82805.75, 82806.75])
    assert len(set(made.times())) == len(made.times())


def test_a_meter_that_fails_leaves_a_gap_and_is_read_again() -> None:
    made = Made(Scripted())
    made.ticks(1)
    made.meter.error = Unavailable("The driver is away; wait.")
    made.ticks(1)
    made.meter.error = RuntimeError("what")
    made.ticks(1)
    made.meter.error = None
    made.ticks(2)
    assert made.times() == [0, 1 + 2, 4]
    assert made.said == ["The driver is away; wait.", "The meter scripted failed (RuntimeError: what); it is read again."]
    made.meter.devices = [Device("GPU-a"), Device("GPU-a")]  # no event can hold a GPU twice
    made.ticks(5)
    made.ticker.flush()
    assert "were dropped" in made.said[-1]
    made.meter.devices = [Device("GPU-a")]
    made.ticks(5)
    assert made.times()[-1] == 14


def test_its_thread_keeps_the_pace_and_ends() -> None:
    events: list[Gpu] = []
    ticker = Ticker("scripted", Scripted(0.05), "n", lambda make: events.append(make(1)), warn=print)
    begin = time.monotonic()
    ticker.start()
    time.sleep(0.5)
    ticker.close(1.0)
    lasted_s = time.monotonic() - begin
    samples = sum(len(event.offsets_ms) for event in events)
    assert 4 <= samples <= lasted_s / 0.05 + 2
