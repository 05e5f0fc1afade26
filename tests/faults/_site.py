"""A fleet under a supervisor: what ends badly is started again; and what waits, and what the agent numbered."""

from __future__ import annotations

import os
import secrets
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from _faultproxy import FaultProxy
from _fleet import Fleet, Process

from yolometer_agent.spool.spool import Spool
from yolometer_core.errors import BadStore, Unavailable

SOAK = bool(os.environ.get("YOLOMETER_SOAK"))
PARTITIONS = 2
METER = {"simulated": {"gpus": 2, "period_s": 0.5}}


@dataclass
class Service:
    """One service, started again whenever it ends with something else than 0, as systemd does with Restart=on-failure."""

    fleet: Fleet
    kind: str
    name: str
    settings: dict[str, Any]
    process: Process | None = None
    codes: list[int] = field(default_factory=list)
    """How each of its processes ended: an exit code, or minus the signal."""

    def start(self, **more: Any) -> None:
        begin = {"agent": self.fleet.start_agent, "stream": self.fleet.start_stream, "sink": self.fleet.start_sink}[self.kind]
        self.process = begin(self.name, **{**self.settings, **more})

    @property
    def is_up(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def supervise(self) -> None:
        """Start it again when it failed."""
        if self.process is not None and (code := self.process.poll()) is not None:
            self.codes.append(code)
            self.process = None
            if code:
                self.start()

    def send(self, number: signal.Signals) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(number)

    def ended(self, seconds: float) -> int:
        """Wait until it ends; the exit code."""
        assert self.process is not None
        code = self.fleet.ended(self.process, seconds)
        self.codes.append(code)
        self.process = None
        return int(code)

    def term(self, seconds: float) -> int:
        """SIGTERM, and wait until it ends; the exit code."""
        self.send(signal.SIGTERM)
        return self.ended(seconds)

    def kill(self) -> None:
        """SIGKILL; the supervisor sees it."""
        if self.process is not None:
            self.fleet.kill(self.process)

    def said(self) -> str:
        """What all its processes said."""
        mine = (process for process, log in self.fleet.processes.items() if log.name.startswith(f"{self.name}."))
        return "".join(map(self.fleet.said, mine))

    def sentences(self) -> list[str]:
        """The last words of its processes."""
        return [line for line in self.said().splitlines() if line.startswith("yolometer: ")]


@dataclass
class Site:
    """The services of one fleet, one node in it."""

    fleet: Fleet
    node: str
    runs: Path
    agent: Service
    streams: list[Service]
    sink: Service
    proxy: FaultProxy | None = None

    @property
    def services(self) -> list[Service]:
        return [self.agent, *self.streams, self.sink]

    def start(self) -> None:
        for service in self.services:
            if not service.is_up:
                service.start()

    def supervise(self) -> None:
        for service in self.services:
            service.supervise()

    def drain(self, seconds: float = 60.0) -> None:
        """End the agent, send what it has, and wait until stream and sink have committed everything."""
        self.drain_agent(seconds)
        deadline = time.monotonic() + seconds
        still = 0
        while still < 2:
            still = still + 1 if _is_so(lambda: self.fleet.lag() == 0) else 0
            assert time.monotonic() < deadline, self.tell()
            self.supervise()
            time.sleep(0.2)

    def drain_agent(self, seconds: float = 60.0) -> None:
        """End the agent and send what it has."""
        if self.agent.process is not None:
            assert self.agent.term(12) in (0, -9), self.agent.said()[-3000:]
        self.agent.start(once=True, meters={})
        assert self.agent.ended(seconds) == 0, self.agent.said()[-3000:]

    def until(self, true: Callable[[], object], seconds: float = 30.0) -> None:
        """Wait for something, with the supervisor at work; it is not so while Kafka or the store cannot be asked."""
        deadline = time.monotonic() + seconds
        while not _is_so(true):
            assert time.monotonic() < deadline, self.tell()
            self.supervise()
            time.sleep(0.1)

    def tell(self) -> str:
        """How all of it stands."""
        return "\n".join(f"--- {each.name} {each.codes} up: {each.is_up}\n{each.said()[-3000:]}" for each in self.services)

    def numbered(self, lane: str) -> int:
        """The last number (with its epoch) that the agent gave to a message of a lane, by its spool; it must not run."""
        folder = Path(self.fleet.folder / f"{self.node}-state" / "spool" / lane)
        spool = Spool(folder, max_bytes=1 << 30, max_age_s=1e9)
        last = spool._writer.last
        assert spool.messages_waiting == 0
        spool.close()
        return last


def _is_so(true: Callable[[], object]) -> bool:
    try:
        return bool(true())
    except (Unavailable, BadStore):  # tables that are being made
        return False


@contextmanager
def site_in(folder: Path, *, streams: int = 1, proxy: bool = False) -> Iterator[Site]:
    """A whole deployment, not started; with `proxy` there is one between the services and ClickHouse."""
    with Fleet(folder, partitions=PARTITIONS) as fleet:
        between = FaultProxy(fleet.clickhouse.port) if proxy else None
        if between:
            fleet.store_url = fleet.store_url.replace(str(fleet.clickhouse.port), str(between.port))
        runs = folder / "runs"
        runs.mkdir()
        node = f"node-{secrets.token_hex(4)}"  # of this site alone: two agents of one node refuse to fight
        site = Site(
            fleet,
            node,
            runs,
            Service(fleet, "agent", node, {"watch": [runs], "meters": METER, "recent_s": 86400}),
            [Service(fleet, "stream", f"stream{at}", {"gpu_model": "demo GPU", "gpus": 1}) for at in range(streams)],
            Service(fleet, "sink", "sink", {}),
            between,
        )
        try:
            yield site
        finally:
            for service in site.services:
                service.send(signal.SIGCONT)
            fleet.broker.resume()
            if between:
                between.__exit__()


__all__ = ["METER", "PARTITIONS", "SOAK", "Service", "Site", "site_in"]
