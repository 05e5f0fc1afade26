"""Whether a training is running, finished or interrupted: told by who writes its log."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from grow import Command, eventually

from yolometer.feed import captures

RECENT_S = 3

WRITER = """
import sys, time
data = open(sys.argv[1], "rb").read()
share = float(sys.argv[3])
with open(sys.argv[2], "ab", buffering=0) as log:
    log.write(data[: int(len(data) * share)])
    print("written", flush=True)
    sys.stdin.readline()
    log.write(data[int(len(data) * share) :])
"""


def test_a_log_is_running_then_finished_or_interrupted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("YOLOMETER_RECENT_S", str(RECENT_S))
    # a name of its own: the box sees what other processes of this machine write, too
    source = tmp_path / "source.log"
    source.write_bytes((captures() / "yolov8n-long" / "train.log").read_bytes().replace(b"long", b"mine"))
    writers = []
    for name in ("ends", "dies", "goes"):
        log = tmp_path / "runs" / name / "train.log"
        log.parent.mkdir(parents=True)
        command = [sys.executable, "-c", WRITER, str(source), str(log), "0.6"]
        writers.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE))
    for writer in writers:
        assert writer.stdout
        assert writer.stdout.readline() == b"written\n"
    ends, dies, goes = writers

    def status(command: Command) -> list[str]:
        runs = [line["run"] for line in command.lines() if "run" in line]
        newest = {run["run_id"]: run["status"] for run in runs if run["name"] == "mine"}
        return sorted(map(str, newest.values()))

    runs, store = str(tmp_path / "runs"), f"chdb://{tmp_path / 'store'}"
    with Command("up", "--store", store, "--watch", runs, "--port", "0", "--json") as command:
        for _ in eventually(20):
            if status(command) == ["running"] * 3:
                break
        else:
            raise AssertionError(f"{status(command)} {command.err!r}")
        ends.communicate(b"\n")
        dies.kill()
        dies.communicate()
        (tmp_path / "runs" / "goes" / "train.log").unlink()
        goes.kill()
        goes.communicate()
        for _ in eventually(RECENT_S + 30):
            if status(command) == ["finished", "interrupted", "interrupted"]:
                break
        else:
            raise AssertionError(f"{status(command)} {command.err!r}")
        assert command.stop(signal.SIGTERM) == 0, command.err
