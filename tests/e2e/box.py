"""Starts the real `yolometer up` as a process of its own, and collects what it says and what it uses."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Any

import psutil

COMMAND = Path(sys.executable).with_name("yolometer")


class Box:
    """`yolometer up --json` as a context: `lines` holds (seconds by the monotonic clock, document), `cpu_s` what it used."""

    def __init__(self, store: Path, watch: Path, log: Path) -> None:
        self.store, self.watch, self.log = f"chdb://{store}", watch, log
        self.lines: list[tuple[float, dict[str, Any]]] = []
        self.stop_s = 0.0

    def __enter__(self) -> Box:
        self.watch.mkdir(parents=True, exist_ok=True)
        self._stderr = self.log.open("ab")
        # without --no-processes it would rightly read every other training log that is written on this machine
        options = ["--store", self.store, "--watch", str(self.watch), "--no-processes", "--port", "0", "--json"]
        command = [str(COMMAND), "up", *options]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=self._stderr, stdin=subprocess.DEVNULL)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self._settle()
        return self

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.lines.append((time.monotonic(), json.loads(line)))

    def _settle(self, deadline_s: float = 60.0) -> None:
        """Wait until the start is over: less than 50 ms of CPU in a second. The start is no cost of a training."""
        until = time.monotonic() + deadline_s
        while time.monotonic() < until:
            before = self.cpu_s
            time.sleep(1.0)
            if self.cpu_s - before < 0.05:
                return
        raise AssertionError(f"yolometer up does not come to rest within {deadline_s:.0f} s; read {self.log}")

    @property
    def cpu_s(self) -> float:
        """CPU seconds that the command and its children used so far."""
        if self._process.poll() is not None:
            raise AssertionError(f"yolometer up ended with {self._process.returncode}; read {self.log}")
        process = psutil.Process(self._process.pid)
        used = [one.cpu_times() for one in (process, *process.children(recursive=True))]
        return sum(times.user + times.system for times in used)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        began = time.monotonic()
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(20)
        finally:
            self._process.kill()
            self._reader.join(5)
            self._stderr.close()
            if self._process.stdout is not None:
                self._process.stdout.close()
        self.stop_s = time.monotonic() - began
        if kind is None:
            assert self._process.returncode == 0, f"yolometer up ended with {self._process.returncode}; read {self.log}"

    def epochs_seen(self, name: str) -> list[tuple[float, int]]:
        """When `up` said how many epochs of the run `name` are done."""
        said = [(at, line.get("run", line)) for at, line in list(self.lines)]
        return [(at, run["epochs_done"]) for at, run in said if run.get("name") == name and run.get("epochs_done") is not None]

    def rows(self) -> list[dict[str, Any]]:
        """The stored runs, asked of the store after the box has stopped: one process per chDB path."""
        command = [str(COMMAND), "roi", "runs", "--store", self.store, "--format", "json"]
        answer = subprocess.run(command, capture_output=True, check=True, timeout=120)
        rows: list[dict[str, Any]] = json.loads(answer.stdout)["rows"]
        return rows
