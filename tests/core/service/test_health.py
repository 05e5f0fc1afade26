"""Health is the worst thing that is true; the watchdog ends a process that hangs, and none that was only stopped."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from datetime import UTC, datetime

import pytest

from yolometer_core.service.health import Health, Watchdog
from yolometer_core.service.hiding import hide
from yolometer_core.service.metrics import Metrics
from yolometer_core.testing import ManualClock

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def test_the_worst_thing_is_the_status() -> None:
    clock = ManualClock(NOON)
    health = Health("sink", stuck_after_s=10, clock=clock.monotonic)
    assert health.told() | {"reason": None} == {
        "service": "sink",
        "status": "starting",
        "reason": None,
        "busy": False,
        "last_success_age_s": None,
        "last_progress_age_s": None,
        "uptime_s": 0,
    }
    clock.advance(3600)
    assert health.told()["status"] == "starting"  # nothing to do yet is no fault
    health.success()
    clock.advance(4)
    told = health.told()
    assert (told["status"], told["reason"], told["last_success_age_s"], told["uptime_s"]) == ("ok", None, 4, 3604)
    health.cold(True)
    assert health.told()["status"] == "cold"
    health.problem("The store is away.")
    assert (health.told()["status"], health.told()["reason"]) == ("degraded", "The store is away.")
    with health.working():
        clock.advance(9)
        assert health.told()["status"] == "degraded" and health.told()["busy"]
        clock.advance(2)
        assert health.told()["status"] == "stuck" and "No progress for 11 s" in health.told()["reason"]
        health.progress()
        assert health.told()["status"] == "degraded"
        clock.advance(11)
    assert health.told()["status"] == "degraded"  # not busy any more
    health.problem(None)
    health.cold(False)
    assert health.told()["status"] == "ok"


def test_the_wait_before_work_began_is_no_time_without_progress() -> None:
    clock = ManualClock(NOON)
    health = Health("stream", stuck_after_s=10, clock=clock.monotonic)
    health.success()
    clock.advance(500)
    with health.working():
        assert health.told()["status"] == "ok"
        clock.advance(6)
        with health.working():
            clock.advance(6)
            assert health.told()["status"] == "stuck"  # more work does not hide what hangs


def test_the_numbers_are_told_and_a_secret_is_not() -> None:
    metrics = Metrics("stream")
    health = Health("stream", stuck_after_s=10, metrics=metrics)
    health.cold(True)
    health.success()
    text = metrics.rendered()[0].decode()
    assert "yolometer_stream_cold 1.0" in text and "yolometer_stream_last_success_timestamp_seconds 1." in text
    hide("hunter2-of-health")
    health.problem("The broker refused hunter2-of-health.")
    assert health.told()["reason"] == "The broker refused ***."


def watchdog(clock: ManualClock, health: Health) -> Watchdog:
    return Watchdog(health, 10, warn=lambda text: None, exit=lambda code: None, clock=clock.monotonic)


def test_the_deadline_counts_only_while_busy_and_without_progress() -> None:
    clock = ManualClock(NOON)
    health = Health("sink", stuck_after_s=5, clock=clock.monotonic)
    dog = watchdog(clock, health)

    def ticks(seconds: int, progress: bool = False) -> bool:
        ended = False
        for _ in range(seconds):
            clock.advance(1)
            if progress:
                health.progress()
            ended = dog.tick() or ended
        return ended

    assert not ticks(100)
    with health.working():
        assert not ticks(100, progress=True)
        assert not ticks(9)
        health.progress()
        assert not ticks(10)
        assert ticks(1)
    assert not ticks(100)


def test_time_in_which_the_process_was_stopped_does_not_count() -> None:
    clock = ManualClock(NOON)
    health = Health("sink", stuck_after_s=5, clock=clock.monotonic)
    dog = watchdog(clock, health)
    with health.working():
        dog.tick()
        clock.advance(3600)
        assert not dog.tick()
        for _ in range(8):
            clock.advance(1)
        assert not dog.tick()  # 2 ticks at most for each look


HANGS = """
import os, sys, time
from yolometer_core.service.health import Health, Watchdog
from yolometer_core.service import logs
logs.configure("sink", json={json})
logs.hide("hunter2")
health = Health("sink", stuck_after_s=0.2)
dog = Watchdog(health, 0.4, warn=logs.logger().critical)
dog.start()
{before}
def hangs_here():
    with health.working():
        print("busy", flush=True)
        while True: time.sleep({nap}); {step}
hangs_here()
"""


def start(before: str = "", nap: float = 60, step: str = "pass", json: bool = False) -> subprocess.Popen[str]:
    code = HANGS.format(before=before, nap=nap, step=step, json=json)
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "busy\n"
    return process


def test_a_process_that_hangs_ends_with_70_and_shows_where() -> None:
    process = start()
    _, err = process.communicate(timeout=30)
    assert process.returncode == 70
    assert "The sink made no progress for" in err and "critical" in err
    assert "in hangs_here" in err and "Thread 0x" in err


def test_a_process_that_gets_on_or_was_only_stopped_lives() -> None:
    process = start(nap=0.05, step="health.progress()")
    process.send_signal(signal.SIGSTOP)
    time.sleep(1.0)
    process.send_signal(signal.SIGCONT)
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(timeout=1.0)
    process.kill()
    assert process.communicate()[1] == ""


@pytest.mark.parametrize(
    "before",
    [
        "os.set_blocking(2, False)\ntry:\n    while True: os.write(2, b'xxx')\nexcept BlockingIOError: os.set_blocking(2, True)",
        "sys.stderr.close()",
        "os.close(2)",
        "sys.stderr = None",
        "dog._warn = lambda text: 1 / 0",
    ],
    ids=["full", "closed", "fd-closed", "none", "warn-fails"],
)
def test_it_ends_also_when_its_last_words_cannot_be_said(before: str) -> None:
    process = start(before)
    assert process.wait(timeout=30) == 70
    process.communicate()


def test_a_watchdog_that_is_closed_is_gone() -> None:
    codes: list[int] = []
    health = Health("sink", stuck_after_s=1)
    dog = Watchdog(health, 0.2, warn=lambda text: None, exit=codes.append)
    dog.start()
    dog.close()
    with health.working():
        time.sleep(0.4)
    assert codes == []
