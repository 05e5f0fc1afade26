"""A wish to stop is heard at once; a process that does not follow it is ended. Real processes, real signals."""

from __future__ import annotations

import select
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from yolometer_core.service.stopping import Stop, StopDeadline

WAITS = """
import sys, time
from yolometer_core.service.stopping import Stop, StopDeadline
stop = Stop()
stop.on_signals({deadline})
print("ready", flush=True)
{then}
"""


def start(then: str, deadline: str = "None", **options: object) -> subprocess.Popen[str]:
    code = WAITS.format(then=then, deadline=deadline)
    process = subprocess.Popen(  # type: ignore[call-overload]
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options
    )
    assert process.stdout.readline() == "ready\n"
    found: subprocess.Popen[str] = process
    return found


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_wakes_who_waits_and_the_process_ends_by_itself(number: signal.Signals) -> None:
    process = start("stop.wait(60) and print('stopped', stop.wished)")
    began = time.monotonic()
    process.send_signal(number)
    out, err = process.communicate(timeout=20)
    assert (process.returncode, out, err) == (0, "stopped True\n", "")
    assert time.monotonic() - began < 5


def test_the_second_signal_ends_it_at_once() -> None:
    process = start("while True: time.sleep(0.05); stop.wished and print('wished', flush=True)")
    process.send_signal(signal.SIGTERM)
    assert process.stdout is not None
    assert process.stdout.readline() == "wished\n"
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=20)
    assert process.returncode == -signal.SIGTERM


def test_it_is_ended_with_75_when_it_does_not_stop() -> None:
    process = start("while True: time.sleep(60)", "StopDeadline(0.3)")
    time.sleep(0.5)
    assert process.poll() is None  # the deadline runs from the signal on, not from the start
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=20)
    assert process.returncode == 75
    assert err == "It did not stop within 0.3 s and was ended; what is not acknowledged is sent again at start.\n"


def test_a_stderr_that_nobody_reads_or_has_closed_does_not_keep_it_alive() -> None:
    fill = "import os; os.set_blocking(2, False)\ntry:\n    while True: os.write(2, b'x' * 4096)\nexcept BlockingIOError: pass\n"
    full = start(fill + "os.set_blocking(2, True)\nwhile True: time.sleep(60)", "StopDeadline(0.1)")
    full.send_signal(signal.SIGTERM)
    assert full.wait(timeout=20) == 75
    full.communicate()
    closed = start("sys.stderr.close()\nwhile True: time.sleep(60)", "StopDeadline(0.1)")
    closed.send_signal(signal.SIGTERM)
    closed.communicate(timeout=20)
    assert closed.returncode == 75


def test_one_that_stops_in_time_ends_with_its_own_code() -> None:
    process = start("stop.wait(60); sys.exit(3)", "StopDeadline(30)")
    process.send_signal(signal.SIGTERM)
    assert (process.communicate(timeout=20), process.returncode) == (("", ""), 3)


def test_a_cancelled_deadline_does_nothing() -> None:
    codes: list[int] = []
    stop, deadline = Stop(), StopDeadline(0.05, exit=codes.append)
    deadline.watch(stop)
    deadline.cancel()
    stop.set()
    time.sleep(0.2)
    assert codes == []


def test_all_threads_and_an_event_loop_hear_it() -> None:
    stop = Stop()
    heard: list[bool] = []
    threads = [threading.Thread(target=lambda: heard.append(stop.wait(30))) for _ in range(5)]
    for thread in threads:
        thread.start()
    assert select.select([stop], [], [], 0)[0] == []
    assert not stop.wait(0) and not stop.wished
    stop.set()
    stop.set()
    for thread in threads:
        thread.join(10)
    assert heard == [True] * 5 and stop.wait(0) and select.select([stop], [], [], 0)[0] == [stop]


def test_a_signal_in_the_middle_of_short_waits_is_heard() -> None:
    """The reason for an event of the kernel: a handler that runs inside wait() or set() takes no lock."""
    process = start("while not stop.wait(0.0001): pass\nprint('out')")
    time.sleep(0.2)
    process.send_signal(signal.SIGTERM)
    assert process.communicate(timeout=20)[0] == "out\n"


def test_nothing_is_left_open() -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(50):
        Stop().set()
    assert len(list(Path("/proc/self/fd").iterdir())) <= before + 1
