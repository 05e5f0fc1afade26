"""A node with trainings, and the agents that tests start on it as processes."""

from __future__ import annotations

import gc
import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from _kafka import Broker, create_topic, read_all

from yolometer_core import wire
from yolometer_core.events import Event, Fact

CAPTURES = Path(__file__).parents[1] / "cases" / "replay"
NAMES = (
    "ultralytics-8.3.253-detect",
    "ultralytics-8.4.190-nan-recovery",
    "yolov5repo-7.0-detect",
    "ultralytics-8.4.190-detect-120ep",
    "ultralytics-8.0.196-segment",
)
COMMAND = Path(sys.executable).parent / "yolometer"


class Node:
    """A node with a folder of trainings, and the agents that are started on it."""

    def __init__(self, folder: Path, kafka: Broker, prefix: str) -> None:
        self.folder, self.kafka, self.prefix = folder, kafka, prefix
        self.runs = folder / "runs"
        self.runs.mkdir(exist_ok=True)
        self.started: list[subprocess.Popen[str]] = []
        for name in ("fact", "gpu"):
            create_topic(kafka.bootstrap, prefix + name, partitions=2)

    def settings(self, name: str = "agent", **more: Any) -> Path:
        path = self.folder / f"{name}.json"  # which is YAML too
        settings = {
            "node": f"{self.prefix}node",
            "state_dir": str(self.folder / f"{name}-state"),
            "watch": [str(self.runs)],
            "processes": False,
            "poll_s": 0.1,
            "linger_s": 0.2,
            "kafka": {"bootstrap_servers": self.kafka.bootstrap, "prefix": self.prefix},
            "metrics_port": None,
        }
        path.write_text(json.dumps({**settings, **more}))
        return path

    def start(self, settings: Path, *arguments: str) -> subprocess.Popen[str]:
        argv = [str(COMMAND), "agent", "--config", str(settings), *arguments]
        self.started.append(subprocess.Popen(argv, stderr=subprocess.PIPE, text=True))
        return self.started[-1]

    def running(self, settings: Path, *arguments: str) -> subprocess.Popen[str]:
        """An agent that has begun its work: it holds its lock."""
        process = self.start(settings, *arguments)
        lock = Path(json.loads(settings.read_text())["state_dir"]) / "lock"
        until(lambda: lock.exists() and lock.read_text().strip() == str(process.pid))
        return process

    def once(self, settings: Path) -> None:
        """Read what is there and send all of it."""
        process = self.start(settings, "--once")
        _, said = process.communicate(timeout=60)
        assert process.returncode == 0, said

    def events(self, topic: str = "fact") -> list[Event]:
        """All events of a topic as they lie there."""
        batches = [wire.read(value) for *_, value in read_all(self.kafka.bootstrap, self.prefix + topic)]
        assert not [batch for batch in batches if batch.refused]
        return [event for batch in batches for event in batch.events]

    def rows(self) -> dict[str, Fact]:
        """The facts that are rows and do not depend on when the agent looked, in order of their first coming."""
        facts = (event for event in self.events() if isinstance(event, Fact) and event.is_row and event.table != "source_state")
        found: dict[str, Fact] = {}
        for fact in facts:
            found.setdefault(fact.event_id, fact)
        return found

    def place(self, name: str) -> None:
        """A finished training."""
        target = self.runs / name
        target.mkdir()
        (target / "train.log").write_bytes((CAPTURES / name / "train.log").read_bytes())


def end(node: Node) -> None:
    for process in node.started:
        if process.poll() is None:
            process.kill()
            process.communicate()
    gc.collect()


def until(true: Callable[[], object], seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def in_order(facts: dict[str, Fact]) -> dict[tuple[str, str], list[str]]:
    found: dict[tuple[str, str], list[str]] = {}
    for event_id, fact in facts.items():
        found.setdefault((fact.place, fact.source), []).append(event_id)
    return found


def same(some: dict[str, Fact], others: dict[str, Fact]) -> bool:
    """Whether the same was said, but for when it was seen."""
    return {key: fact.model_dump_json(exclude={"ts"}) for key, fact in some.items()} == {
        key: fact.model_dump_json(exclude={"ts"}) for key, fact in others.items()
    }


def ends(process: subprocess.Popen[str]) -> float:
    begin = time.monotonic()
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=20)
    assert process.returncode == 0, said
    assert "Traceback" not in said
    return time.monotonic() - begin


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])
