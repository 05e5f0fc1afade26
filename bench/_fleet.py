"""What the benchmarks of the fleet share: a real Kafka, services as processes and what they spend, the peers."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Self

import psutil

ROOT = Path(__file__).parents[1]
PEERS = ROOT / "bench" / "peers"
sys.path.insert(0, str(ROOT / "tests"))

from _kafka_broker import _CHILD, MEMORY, Broker  # noqa: E402  # found on the path above

MOST_S = 90.0
"""So long a benchmark waits for anything; then it says what did not come, and goes on or ends."""


class Running:
    """A process and what it spends: CPU seconds (user and system, all threads) so far, and its largest memory."""

    def __init__(self, name: str, command: Sequence[str], folder: Path) -> None:
        """Start it; it dies with this process, whatever ends that."""
        self.name, self._log = name, folder / f"{name}.log"
        command = [sys.executable, "-S", "-E", "-c", _CHILD, str(os.getpid()), *command]
        with self._log.open("ab") as log:
            self.process = psutil.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=folder)

    @property
    def cpu_s(self) -> float:
        used = self.process.cpu_times()
        return float(used.user + used.system)

    @property
    def peak_mb(self) -> float:
        """MiB that were resident at most."""
        for line in Path(f"/proc/{self.process.pid}/status").read_text(encoding="ascii").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 1024
        return 0.0

    def check(self) -> None:
        """SystemExit with what it said last when it has ended."""
        if self.process.poll() is not None:
            sys.exit(f"{self.name} ended with {self.process.returncode}: {self.said()}")

    def said(self) -> str:
        return self._log.read_text(errors="replace")[-2000:]

    def stop(self, seconds: float = 30.0) -> None:
        """SIGTERM, and SIGKILL when that does not end it."""
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(seconds)
            except psutil.TimeoutExpired:
                print(f"  {self.name} did not stop within {seconds:g} s and was killed")
                self.process.kill()
                self.process.wait()


class Fleet:
    """A broker, a folder in memory, and the processes that were started; all of it is gone at the end."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="yolometer-bench-", dir=MEMORY))
        self.broker = Broker()
        self._started: list[Running] = []
        self._admin: Any = None

    def __enter__(self) -> Self:
        self.broker.start()
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.ExitStack() as last:  # all of it, whatever goes wrong in between
            last.callback(shutil.rmtree, self.folder, ignore_errors=True)
            last.callback(self.broker.close)
            if self._admin is not None:
                last.callback(self._admin.close)
            for running in self._started:
                last.callback(running.stop, 5.0)

    def topics(self, prefix: str, partitions: int = 4) -> None:
        """Create the topics of a deployment, as an operator does."""
        command = ["topics", "ensure", "--bootstrap", self.broker.bootstrap, "--prefix", prefix, "--partitions", str(partitions)]
        subprocess.run([yolometer(), *command], check=True, stdout=subprocess.DEVNULL)

    def topic(self, name: str, partitions: int = 4) -> None:
        """Create one topic."""
        wanted = {name: {"num_partitions": partitions, "replication_factor": 1}}
        self.admin.create_topics(wanted, wait_for_metadata=True)

    def run(self, name: str, command: Sequence[str]) -> Running:
        """Start a process."""
        self._started.append(Running(name, command, self.folder))
        return self._started[-1]

    def service(self, service: str, prefix: str, name: str | None = None, **settings: Any) -> Running:
        """Start a service of yolometer with these settings beside Kafka."""
        name = name or f"{service}-{prefix.rstrip('.')}"
        file = self.folder / f"{name}.yaml"
        kafka = {"bootstrap_servers": [self.broker.bootstrap], "prefix": prefix}
        file.write_text(json.dumps({"kafka": kafka, "metrics_port": None, **settings}))
        return self.run(name, [yolometer(), service, "--config", str(file)])

    @property
    def admin(self) -> Any:
        from _kafka import KafkaAdminClient

        if self._admin is None:
            self._admin = KafkaAdminClient(bootstrap_servers=self.broker.bootstrap)
        return self._admin

    def committed(self, group: str, topic: str) -> int:
        """How many messages of a topic a group has committed, counted from the beginning; 0 before the first commit."""
        from _kafka import RetriableError

        with contextlib.suppress(RetriableError):
            found = self.admin.list_group_offsets(group)[group]
            return sum(max(at.offset, 0) for part, at in found.items() if part.topic == topic)
        return 0

    def until_committed(self, group: str, topic: str, messages: int, running: Running, seconds: float = MOST_S) -> float:
        """Wait until all messages are committed; returns the CPU seconds of the process at that moment. SystemExit if not."""
        deadline = time.monotonic() + seconds
        while (done := self.committed(group, topic)) < messages:
            running.check()
            if time.monotonic() > deadline:
                sys.exit(f"{running.name} handled only {done} of {messages} messages of {topic}: {running.said()}")
            time.sleep(0.1)
        return running.cpu_s

    def produce(self, topic: str, messages: Iterable[tuple[bytes, bytes]], together: int = 1, partitions: int = 4) -> int:
        """Write messages, compressed, `together` of them as one batch; agents send one at a time. Returns how many bytes."""
        shares: list[list[tuple[bytes, bytes]]] = [[] for _ in range(partitions)]
        for key, value in messages:
            shares[partition_of(key, partitions)].append((key, value))
        asyncio.run(_produce(self.broker.bootstrap, topic, shares, together))
        return sum(len(value) for share in shares for _, value in share)

    def records(self, topic: str) -> Iterator[bytes]:
        """The values of a topic."""
        from _kafka import read_all

        for _, _, _, value in read_all(self.broker.bootstrap, topic):
            if value is not None:
                yield value


def yolometer() -> str:
    return str(Path(sys.executable).with_name("yolometer"))


def free_port() -> int:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        return int(held.getsockname()[1])


def partition_of(key: bytes, partitions: int) -> int:
    from aiokafka.partitioner import murmur2

    return int((murmur2(key) & 0x7FFFFFFF) % partitions)


async def _produce(bootstrap: str, topic: str, shares: Sequence[Sequence[tuple[bytes, bytes]]], together: int) -> None:
    from aiokafka import AIOKafkaProducer

    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, acks=1, compression_type="zstd", max_batch_size=1 << 19)
    await producer.start()

    async def one(partition: int) -> None:
        waiting = []
        for at in range(0, len(shares[partition]), together):
            batch = producer.create_batch()
            for key, value in shares[partition][at : at + together]:
                assert batch.append(key=key, value=value, timestamp=None) is not None, "too many messages together"
            batch.close()
            waiting.append(await producer.send_batch(batch, topic, partition=partition))
        await asyncio.gather(*waiting)

    try:
        await asyncio.gather(*map(one, range(len(shares))))
    finally:
        await producer.stop()


def peers_python() -> str | None:
    """The interpreter of .bench/venv with what bench/peers/requirements.txt names, made when it is not there yet.

    None, after one sentence, when it cannot be made (no network).
    """
    folder, wanted = ROOT / ".bench" / "venv", PEERS / "requirements.txt"
    python, stamp = folder / "bin" / "python", folder / "made"
    if stamp.exists() and stamp.read_text() == wanted.read_text():
        return str(python)
    print("installing the peers into .bench/venv, once", flush=True)
    subprocess.run([sys.executable, "-m", "venv", "--clear", "--without-pip", str(folder)], check=True)
    quiet = ["--quiet", "--disable-pip-version-check", "--no-input"]
    for pip in ([sys.executable, "-m", "pip"], [str(Path(sys.base_prefix) / "bin" / "python3"), "-m", "pip"]):
        made = subprocess.run([*pip, "--python", str(python), "install", *quiet, "-r", str(wanted)], check=False)
        if not made.returncode:
            stamp.write_text(wanted.read_text())
            return str(python)
    print("the peers could not be installed; they are left out")
    return None
