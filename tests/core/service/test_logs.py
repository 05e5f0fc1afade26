"""Lines of log: for a person or as JSON, from us and from libraries, once and not a thousand times, wherever stderr leads."""

from __future__ import annotations

import io
import json
import logging
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from yolometer_core.service import logs
from yolometer_core.testing import ManualClock

BEGIN = "import logging, os, sys, threading, warnings\nfrom yolometer_core.service import logs\n"


def run(code: str, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", BEGIN + code], check=False, capture_output=not options, text=True, timeout=60, **options
    )


def lines(code: str) -> list[dict[str, Any]]:
    done = run(f"logs.configure('sink', json=True)\n{code}")
    assert done.stdout == ""
    return [json.loads(line) for line in done.stderr.splitlines()]


def test_one_object_a_line_with_time_level_service_and_what_was_said() -> None:
    (line,) = lines(
        "log = logs.logger('insert', table='epochs')\n"
        "log.info('Rows were\\nstored', rows=5, nan=float('nan'), none=None)\nlog.debug('x')"
    )
    stamp = line.pop("timestamp")
    assert stamp.endswith("Z") and "T" in stamp
    said = {"event": "Rows were\nstored", "rows": 5, "nan": "nan", "none": None, "table": "epochs"}
    assert line == said | {"level": "info", "service": "sink", "logger": "yolometer.insert"}


def test_a_person_reads_one_line_without_colours_and_nobody_can_forge_another() -> None:
    said = "'Refused:\\n2026 [error] fake \\x1b[31m', reason='a\\nb\\x1b[0m', rows=5"
    done = run(f"logs.configure('sink')\nlogs.logger().warning({said})")
    assert done.stderr.count("\n") == 1 and "\x1b" not in done.stderr
    assert "[warning" in done.stderr and "rows=5" in done.stderr and "service=sink" in done.stderr


def test_libraries_speak_from_warning_on_through_the_same_form() -> None:
    names = ["kafka", "aiokafka.consumer", "faust", "mode"]
    found = lines(
        f"for name in {names}:\n"
        "    logging.getLogger(name).info('chatter'); logging.getLogger(name).warning('%s is away', 'broker')\n"
        "warnings.warn('old')"
    )
    assert [each["logger"] for each in found] == [*names, "py.warnings"]
    assert {(each["event"], each["level"]) for each in found[:4]} == {("broker is away", "warning")}


def test_a_client_that_cannot_reach_its_broker_takes_one_line_and_a_fault_of_others_keeps_its_trace() -> None:
    found = lines(
        "for name in ('kafka.net.manager', 'aiokafka', 'faust'):\n"
        "    try:\n        raise ConnectionError('refused')\n"
        "    except ConnectionError:\n        logging.getLogger(name).exception('No broker')"
    )
    assert [each["event"] for each in found] == ["No broker: ConnectionError('refused')"] * 2 + ["No broker"]
    assert ["exception" in each for each in found] == [False, False, True]


def test_errors_carry_their_traceback_also_those_that_nobody_caught() -> None:
    found = lines(
        "logs.hide('hunter2-secret')\n"
        "def connect(): raise ConnectionError('no hunter2-secret here')\n"
        "try: connect()\nexcept OSError: logs.logger().exception('It failed')\n"
        "thread = threading.Thread(target=connect); thread.start(); thread.join()\n"
        "connect()"
    )
    assert [each["level"] for each in found] == ["error", "critical", "critical"]
    assert all("in connect" in each["exception"] and "no *** here" in each["exception"] for each in found)
    done = run("logs.configure('sink')\nlogs.hide('hunter2-secret')\nraise ConnectionError('no hunter2-secret here')")
    assert done.returncode == 1 and "ConnectionError: no *** here" in done.stderr and "hunter2" not in done.stderr


def test_what_cannot_be_shown_does_not_end_who_reports_it() -> None:
    code = (
        "class Bad:\n    def __repr__(self): raise RuntimeError('no')\n    __str__ = __repr__\n"
        "loop = []; loop.append(loop)\n"
        "logs.logger().warning('one', bad=Bad(), loop=loop, raw=b'\\xff', text='\\udc80')\n"
        "logging.getLogger('kafka').warning('%d', 'two')\n"
        "logging.getLogger('kafka').warning('%s', Bad())\n"
        "logs.logger().warning('last')"
    )
    done = run(f"logs.configure('sink')\n{code}")
    assert done.returncode == 0 and "Traceback" not in done.stderr and "last" in done.stderr
    assert "Bad that cannot be shown" in done.stderr and done.stderr.count("could not be shown") == 2


@pytest.mark.parametrize("form", [True, False])
@pytest.mark.parametrize("gone", ["sys.stderr.close()", "os.close(2)", "sys.stderr = None"])
def test_a_stderr_that_is_gone_is_no_error(gone: str, form: bool) -> None:
    begin = f"logs.configure('sink', json={form})\nlogs.logger().error('one')\n"
    done = run(f"{begin}{gone}\nlogs.logger().error('two')\nos.write(1, b'on')\nos._exit(0)")
    assert (done.returncode, done.stdout) == (0, "on") and "one" in done.stderr and "two" not in done.stderr


def test_a_reader_that_is_gone_is_no_error() -> None:
    code = "logs.configure('sink')\ninput()\nfor n in range(3): logs.logger().error('one')\nprint('on', flush=True)\nos._exit(0)"
    with subprocess.Popen([sys.executable, "-c", BEGIN + code], stdin=-1, stdout=-1, stderr=-1) as process:
        assert process.stdin and process.stdout and process.stderr
        process.stderr.close()
        process.stdin.write(b"\n")
        process.stdin.close()
        assert process.stdout.read() == b"on\n"
    assert process.returncode == 0


def test_a_process_that_began_without_stderr_does_not_log_into_its_next_file(tmp_path: Any) -> None:
    file = tmp_path / "segment"
    use = "logs.logger().error('one')\nos.write(2, b'what C code says')\nkept.close()"
    code = f"logs.configure('sink')\nkept = open({str(file)!r}, 'w')\n{use}"
    done = subprocess.run(["sh", "-c", '"$0" -c "$1" 2>&-', sys.executable, BEGIN + code], check=False, timeout=60)
    assert done.returncode == 0 and file.read_text() == ""


def collected(clock: ManualClock, form: bool = True) -> tuple[logging.Logger, Callable[[], list[str]]]:
    stream = io.StringIO()
    logger = logging.Logger("test", logging.DEBUG)
    logger.addHandler(logs.handler("sink", json=form, stream=stream, repeat_s=60, clock=clock.monotonic))
    return logger, lambda: stream.getvalue().splitlines()


def test_the_same_warning_comes_once_a_while_with_the_count_of_the_others() -> None:
    clock = ManualClock()
    logger, seen = collected(clock)
    for number in range(100):
        logger.warning("broker %d is away after %.1f s", 1, number / 10)
        logger.warning("topic %s is away", "abc"[number % 3])
        logger.error("broker %d is away", 1)
        logger.critical("it ends")
        logger.info("stored")
        clock.advance(0.1)
    events = [json.loads(line)["event"] for line in seen()]
    assert sum("after" in each for each in events) == 1
    assert [each for each in events if each.startswith("topic")] == ["topic a is away", "topic b is away", "topic c is away"]
    assert events.count("broker 1 is away") == 1 and events.count("it ends") == 100 and events.count("stored") == 100
    clock.advance(60)
    logger.warning("broker %d is away after %.1f s", 1, 70.0)
    assert json.loads(seen()[-1])["left_out"] == 99
    clock.advance(60)
    logger.warning("broker %d is away after %.1f s", 1, 130.0)
    assert "left_out" not in json.loads(seen()[-1])


def test_what_it_remembers_of_repeats_has_a_bound() -> None:
    repeats = logs.Repeats(60)
    words = [f"{chr(97 + n % 26)}{chr(97 + n // 26 % 26)}{chr(97 + n // 676)}" for n in range(5000)]
    assert all(repeats.filter(logging.LogRecord("x", logging.WARNING, "p", 1, word, (), None)) for word in words)
    assert len(repeats._said) == logs.MOST_REMEMBERED


def test_configure_twice_says_it_once() -> None:
    again = "logs.configure('a')\nlogs.configure('sink', json=True, level='ERROR')\n"
    done = run(f"{again}logs.logger().warning('no')\nlogs.logger().error('one')")
    assert [json.loads(line)["service"] for line in done.stderr.splitlines()] == ["sink"]


def test_a_service_does_not_carry_rich() -> None:
    done = run("logs.configure('agent')\nlogs.logger().warning('x')\nprint('rich' in sys.modules)\nimport rich\n")
    assert (done.returncode, done.stdout) == (0, "False\n")
