"""A fleet for tests: a broker and a ClickHouse server of its own, and the services as the commands that people start."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Self

import _clickhouse_server
from _kafka import Broker, read_all

from yolometer.admin import Position, positions
from yolometer.audit import reads
from yolometer_core import wire
from yolometer_core.errors import Unavailable
from yolometer_core.kafka import KafkaConfig
from yolometer_core.topics import STATE_TABLE, app_id, changelog
from yolometer_sinks.open_store import open_store
from yolometer_sinks.stores._base import Store

COMMAND = str(Path(sys.executable).with_name("yolometer"))
LOOK_S = 0.3
Process = subprocess.Popen[bytes]

_CHILD = """
import ctypes, os, sys
ctypes.CDLL(None).prctl(1, 9)  # PR_SET_PDEATHSIG: die with the test process; it outlives exec
if os.getppid() == int(sys.argv[1]):
    os.execv(sys.argv[2], sys.argv[2:])
"""
# The signal comes when the thread that started the child ends, and a test may start services from short-lived threads.
_starter = ThreadPoolExecutor(1, "fleet-starter")


class Fleet:
    """One deployment: topics with `prefix`, one database, a folder for settings, state and logs of all services.

    `bootstrap` and `store_url` are what services are told; a test with a proxy in between changes them before it starts them.
    Every service is a process that dies with the test; the same name started again goes on with the same state.
    """

    def __init__(
        self, folder: Path, prefix: str = "t.", partitions: int = 4, database: str = "yolometer",
        login: tuple[str, str] | None = None,
    ) -> None:  # fmt: skip
        self.folder, self.prefix, self.partitions = folder, prefix, partitions
        self.broker = Broker(*login) if login else Broker()
        with ThreadPoolExecutor(1) as pool:
            starting = pool.submit(self.broker.start)
            # in this thread: the server dies with the thread that starts it
            self.clickhouse = _clickhouse_server.start()
            starting.result()
        self.bootstrap = self.broker.bootstrap
        self.store_url = f"clickhouse://app@127.0.0.1:{self.clickhouse.port}/{database}"
        self._database = database
        self.password_file = folder / "password"
        self.password_file.write_text(_clickhouse_server.PASSWORD)
        self.processes: dict[Process, Path] = {}
        self._stores: list[Store] = []
        self.ensure_topics()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ---- services

    def start_agent(
        self, name: str, watch: Iterable[Path | str] = (), meters: Mapping[str, Any] | None = None, *, once: bool = False,
        **settings: Any,
    ) -> Process:  # fmt: skip
        """Start the agent of the node `name`; with `once` it reads what is there, sends it and ends with 0."""
        said = {
            "node": name, "state_dir": str(self.folder / f"{name}-state"), "watch": [str(path) for path in watch],
            "meters": dict(meters or {}), "processes": False, "poll_s": 0.1, "linger_s": 0.2,
        }  # fmt: skip
        return self._start("agent", name, {**said, **settings}, *(["--once"] if once else []))

    def start_stream(self, name: str = "stream", **settings: Any) -> Process:
        """Start a worker of the stream; lost state is made again from the store unless `store=None`."""
        said = {"store": self.store_url, "session_timeout_s": 3, "linger_s": 0.05}
        return self._start("stream", name, {**said, **settings})

    def start_sink(self, name: str = "sink", **settings: Any) -> Process:
        """Start a sink, which makes the tables."""
        said = {"store": self.store_url, "session_timeout_s": 3, "batch_s": 0.2, "rollup_s": 0.5}
        return self._start("sink", name, {**said, **settings})

    def kill(self, process: Process) -> None:
        """SIGKILL; returns when it is gone."""
        process.kill()
        process.wait()

    def term(self, process: Process, seconds: float = 30.0) -> int:
        """SIGTERM; returns its exit code. Fails when it does not end in time."""
        process.send_signal(signal.SIGTERM)
        try:
            return process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"It did not end within {seconds} s of SIGTERM.\n{self.said(process)}") from None

    def ended(self, process: Process, seconds: float = 60.0) -> int:
        """Wait until it ends by itself; its exit code."""
        try:
            return process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"It did not end within {seconds} s.\n{self.said(process)}") from None

    def said(self, process: Process) -> str:
        """What a process wrote on stdout and stderr."""
        return self.processes[process].read_text(errors="replace")

    def command(self, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run `yolometer ...` to its end, for example `command("audit", "--config", str(fleet.settings("sink")), "--json")`."""
        done = subprocess.run(
            [COMMAND, *arguments], capture_output=True, text=True, cwd=self.folder, env={**os.environ, "COLUMNS": "200"},
            timeout=120, check=False,
        )  # fmt: skip
        assert not check or done.returncode == 0, done.stderr
        return done

    def settings(self, name: str) -> Path:
        """The file of settings with which the service `name` was started last."""
        return self.folder / f"{name}.yaml"

    # ---- Kafka and the store

    @property
    def kafka(self) -> KafkaConfig:
        """How the tests themselves reach the broker, past any proxy."""
        return KafkaConfig(bootstrap_servers=(self.broker.bootstrap,), prefix=self.prefix)

    @property
    def changelog(self) -> str:
        """The topic with the state of the stream."""
        return changelog(app_id(self.kafka), STATE_TABLE)

    def ensure_topics(self) -> None:
        """Make the topics, with the command."""
        where = ("--bootstrap", self.broker.bootstrap, "--prefix", self.prefix)
        self.command("topics", "ensure", *where, "--partitions", str(self.partitions))

    def records(self, topic: str) -> list[tuple[int, int, bytes | None, bytes | None]]:
        """All records of a topic (without its prefix) as (partition, offset, key, value), in that order."""
        found: list[tuple[int, int, bytes | None, bytes | None]] = read_all(self.broker.bootstrap, self.prefix + topic)
        return found

    def batches(self, topic: str) -> list[wire.Batch]:
        """All messages of a topic, read."""
        return [wire.read(value) for *_, value in self.records(topic)]

    def lag(self) -> int:
        """How many messages the stream and the sink have not committed. Unavailable while Kafka is away."""
        return sum(map(_waiting, self._positions()))

    def store(self, database: str | None = None) -> Store:
        """The store, opened; closed with the fleet. The tables are there when a sink has started."""
        opened = open_store(self.clickhouse.url(database or self._database))
        self._stores.append(opened)
        return opened

    # ---- waiting

    def wait_until(
        self, condition: Callable[[], object], seconds: float = 60.0, what: str = "It", why: Callable[[], str] = lambda: ""
    ) -> None:
        """Wait until `condition` holds; while Kafka or the store cannot be asked it does not. Fails with all logs."""
        deadline = time.monotonic() + seconds
        while True:
            try:
                if condition():
                    return
                last = ""
            except Unavailable as error:
                last = str(error)
            if time.monotonic() > deadline:
                raise AssertionError(f"{what} did not come within {seconds} s. {last}{why()}\n{self.logs()}")
            time.sleep(0.05)

    def quiet(self, seconds: float = 90.0, still_s: float = 0.0, rollups: bool = True) -> None:
        """Wait until stream and sink have committed everything, nothing new came meanwhile, and all usage is made.

        `still_s`: for how long nothing may come, for agents that run. With a meter that runs it never gets quiet.
        Both services commit only when what follows is written. So when all is committed that was there at the first look,
        and at the next look nothing more is there, nothing is on its way.
        """
        store = self.store() if rollups else None
        before: dict[tuple[str, int], int] = {}
        since = time.monotonic()
        waits: list[str] = []

        def done() -> bool:
            nonlocal before, since
            time.sleep(LOOK_S)
            found = self._positions()
            ends = {(one.topic, one.partition): one.end for one in found}
            waits[:] = [f"{one.service} is at {one.done} of {one.end} in {one[1]}/{one[2]}" for one in found if _waiting(one)]
            was_done = not waits
            if ends != before or not was_done:
                before, since = (ends if was_done else {}), time.monotonic()
                return False
            if time.monotonic() - since < still_s:
                return False
            dirty = store.query("SELECT window_s, toString(ts) FROM dirty_windows").rows if store else []
            waits[:] = [f"{window_s} s from {begin} are made again" for window_s, begin in dirty]
            return not waits

        self.wait_until(done, seconds, "Quiet", lambda: ", ".join(waits))

    def logs(self) -> str:
        """The last lines of all processes."""
        tails = (f"== {path.name} ({process.poll()})\n{self.said(process)[-3000:]}" for process, path in self.processes.items())
        return "\n".join(tails)

    def close(self) -> None:
        """Kill everything that was started."""
        for store in self._stores:
            store.close()
        for process in self.processes:
            process.kill()
        for process in self.processes:
            process.wait()
        self.broker.close()
        self.clickhouse.stop()

    # ---- inside

    def _start(self, service: str, name: str, settings: dict[str, Any], *arguments: str) -> Process:
        kafka = {"bootstrap_servers": self.bootstrap, "prefix": self.prefix, **settings.pop("kafka", {})}
        said = {"metrics_port": None, "kafka": kafka, **settings}
        if said.get("store"):
            said.setdefault("store_password_file", str(self.password_file))
        file, log = self.settings(name), self.folder / f"{name}.{len(self.processes)}.log"
        file.write_text(json.dumps(said))  # which is YAML too
        argv = [sys.executable, "-S", "-E", "-c", _CHILD, str(os.getpid()), COMMAND, service, "--config", str(file)]
        with log.open("wb") as output:
            process = _starter.submit(
                subprocess.Popen, [*argv, *arguments], cwd=self.folder, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                start_new_session=True,
            ).result()  # fmt: skip
        self.processes[process] = log
        return process

    def _positions(self) -> list[Position]:
        return positions(self.kafka, reads())


def _waiting(position: Position) -> int:
    return position.end - (position.first if position.done is None else max(position.done, position.first))
