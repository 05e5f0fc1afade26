"""Workers of the stream as processes on a real broker: their topics, their settings, what they are given and what they say."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgpack
from _kafka import committed, create_topic, produce, read_all
from kafka import KafkaConsumer, TopicPartition

from yolometer_core import wire
from yolometer_core.events import Event
from yolometer_core.gpu import Gpu, packed
from yolometer_core.topics import STATE_TABLE, changelog

SOURCES = ("fact", "gpu", "rate")
OUTPUTS = ("run", "dead")
START = datetime(2026, 3, 1, 12, tzinfo=UTC)
AT_MS = 1_772_000_000_000
Message = tuple[str, bytes | None, bytes | None]


@dataclass
class Fleet:
    """The topics of one deployment and the workers that run on them."""

    bootstrap: str
    prefix: str
    folder: Path
    partitions: int = 2
    settings: dict[str, Any] = field(default_factory=dict)
    workers: list[subprocess.Popen[bytes]] = field(default_factory=list)
    _looker: KafkaConsumer | None = None

    def topics(self, names: Iterable[str] = (*SOURCES, *OUTPUTS), state: bool = True) -> None:
        """Create the topics and the changelog."""
        for name in names:
            create_topic(self.bootstrap, self.prefix + name, self.partitions)
        if state:
            create_topic(self.bootstrap, self.changelog, self.partitions, cleanup_policy="compact")

    @property
    def changelog(self) -> str:
        return changelog(f"{self.prefix}stream", STATE_TABLE)

    def start(self, **more: Any) -> subprocess.Popen[bytes]:
        """Start a worker; what it writes on stderr is in `said`."""
        config = {
            "kafka": {"bootstrap_servers": self.bootstrap, "prefix": self.prefix},
            "metrics_port": None, "session_timeout_s": 3, "linger_s": 0.05, **self.settings, **more,
        }  # fmt: skip
        file = self.folder / f"stream{len(self.workers)}.yaml"
        file.write_text(json.dumps(config))
        with (self.folder / f"said{len(self.workers)}").open("wb") as said:
            worker = subprocess.Popen(
                [str(Path(sys.executable).with_name("yolometer")), "stream", "--config", str(file)],
                stdout=subprocess.DEVNULL, stderr=said, stdin=subprocess.DEVNULL, cwd=self.folder,
            )  # fmt: skip
        self.workers.append(worker)
        return worker

    def said(self, worker: subprocess.Popen[bytes]) -> str:
        return (self.folder / f"said{self.workers.index(worker)}").read_text(errors="replace")

    def until(self, worker: subprocess.Popen[bytes], text: str, seconds: float = 30.0) -> None:
        """Wait until a worker has said this."""
        deadline = time.monotonic() + seconds
        while text not in self.said(worker):
            assert worker.poll() is None and time.monotonic() < deadline, self.said(worker)
            time.sleep(0.05)

    def close(self) -> None:
        for worker in self.workers:
            worker.kill()
            worker.wait()
        if self._looker is not None:
            self._looker.close()

    def give(self, messages: Sequence[Message]) -> None:
        """Produce messages, each topic in order."""
        for name in dict.fromkeys(name for name, _, _ in messages):
            produce(self.bootstrap, self.prefix + name, [(key, value) for of, key, value in messages if of == name])

    def moved(self, messages: Sequence[Message]) -> bool:
        """Whether some of these, the last that were given, are committed."""
        return self.lag() < len(messages) // 2

    def lag(self) -> int:
        """How many messages of the sources are not committed."""
        if self._looker is None:
            self._looker = KafkaConsumer(bootstrap_servers=self.bootstrap, enable_auto_commit=False)
        parts = [TopicPartition(self.prefix + name, number) for name in SOURCES for number in range(self.partitions)]
        ends = self._looker.end_offsets(parts)
        done = committed(self.bootstrap, f"{self.prefix}stream")
        return sum(end - done.get((part.topic, part.partition), 0) for part, end in ends.items())

    def settle(self, seconds: float = 40.0) -> None:
        """Wait until everything is handled and committed, also what the workers say to themselves."""
        deadline = time.monotonic() + seconds
        quiet = 0
        while quiet < 2:
            assert time.monotonic() < deadline, f"{self.lag()} messages still wait\n" + "\n".join(map(self.said, self.workers))
            time.sleep(0.3)
            quiet = quiet + 1 if self.lag() == 0 else 0

    def events(self, name: str) -> list[Event]:
        """All events of a topic."""
        found = []
        for _, _, _, value in read_all(self.bootstrap, self.prefix + name):
            batch = wire.read(value)
            assert not batch.refused
            found += batch.events
        return found


@contextmanager
def fleet_on(bootstrap: str, prefix: str, folder: Path, **more: Any) -> Iterator[Fleet]:
    """A fleet whose workers are killed at the end."""
    fleet = Fleet(bootstrap, prefix, folder, **more)
    try:
        yield fleet
    finally:
        fleet.close()


def stop(worker: subprocess.Popen[bytes], seconds: float = 20.0) -> int:
    """SIGTERM; the exit code."""
    worker.send_signal(signal.SIGTERM)
    return worker.wait(seconds)


def messages_of(events: Iterable[Event], per_message: int = 1, node: str = "n1") -> list[Message]:
    """Events as messages of an agent, cut into pieces of `per_message`, in order."""
    found: list[Message] = []
    batch: list[Event] = []
    for event in [*events, None]:
        if batch and (event is None or event.key != batch[0].key or len(batch) >= per_message):
            raw = wire.message([wire.pack(each) for each in batch], node=node, at_ms=AT_MS + len(found), lane="l", seq=len(found))
            found.append((str(batch[0].topic), batch[0].key.encode(), raw))
            batch = []
        if event is not None:
            batch.append(event)
    return found


def gpu_event(node: str, seq: int, gpus: int = 8, ticks: int = 5) -> Gpu:
    """Some seconds of samples, one a second; message number `seq` begins where the one before ends."""
    offsets = tuple(1000 * tick for tick in range(ticks))
    nothing = (None,) * gpus
    values = [float(value % 97) for value in range(gpus * ticks)]
    names = ("gpu_util_ratio", "memory_used_bytes", "power_w", "energy_j", "sm_clock_mhz", "temperature_c")
    columns = packed(dict.fromkeys(names, values))
    return Gpu(
        ts=START + timedelta(seconds=ticks * seq), node=node, source="meter", seq=seq, period_s=1.0, offsets_ms=offsets,
        gpu_uuid=tuple(f"GPU-{node}-{n}" for n in range(gpus)), gpu_model=("H200",) * gpus, run_id=("run-1",) * gpus,
        user=nothing, team=nothing, attribution_source=("pid",) * gpus, columns=columns,
    )  # fmt: skip


def get(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=5) as answer:
        return json.loads(answer.read())


def broken(raw: bytes, **changes: Any) -> bytes:
    """A message with other things in its envelope."""
    changed: bytes = msgpack.packb({**msgpack.unpackb(raw), **changes})
    return changed
