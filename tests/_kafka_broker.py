"""A real Apache Kafka for the tests: one broker in KRaft mode on loopback, its data in memory where there is such a place."""

from __future__ import annotations

import atexit
import base64
import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid
import weakref
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Self

from _kafka_jars import HERE, certificates, jars

MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else tempfile.gettempdir()
READY_S = 60.0
_JAVA = ("java", "-Xms64m", "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")

_CHILD = """
import ctypes, os, sys
ctypes.CDLL(None).prctl(1, 9)  # PR_SET_PDEATHSIG: die with the test process; it outlives exec
if os.getppid() == int(sys.argv[1]):
    os.execvp(sys.argv[2], sys.argv[2:])
"""
# The signal comes when the thread that started the child ends, and tests restart brokers from short-lived threads.
_starter = ThreadPoolExecutor(1, "kafka-starter")

# The last four keep a broker small: no 20 MB index file per partition, no 128 MB for the log cleaner.
_SETTINGS = """process.roles=broker,controller
node.id=1
log.dirs=data
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}{sasl}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}{sasl}
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SASL_SSL:SASL_SSL
controller.quorum.bootstrap.servers=127.0.0.1:{controller}
auto.create.topics.enable=false
offsets.topic.replication.factor=1
offsets.topic.num.partitions=5
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
group.min.session.timeout.ms=1000
broker.session.timeout.ms=3000
broker.heartbeat.interval.ms=500
num.network.threads=2
num.io.threads=4
log.segment.bytes=16777216
log.index.size.max.bytes=1048576
log.cleaner.dedupe.buffer.size=8388608
"""
_SASL = """sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-512,OAUTHBEARER
ssl.keystore.type=PEM
ssl.keystore.location=broker.pem
listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config=\\
  org.apache.kafka.common.security.scram.ScramLoginModule required;
listener.name.sasl_ssl.plain.sasl.jaas.config=\\
  org.apache.kafka.common.security.plain.PlainLoginModule required user_{user}="{password}";
listener.name.sasl_ssl.oauthbearer.sasl.jaas.config=\\
  org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="broker";
"""


def _held() -> tuple[socket.socket, int]:
    """A free port that stays ours while the broker is down: bound and not listening, which Java's SO_REUSEADDR may share."""
    held = socket.socket()
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    held.bind(("127.0.0.1", 0))
    return held, held.getsockname()[1]


def _cluster_id() -> str:
    return base64.urlsafe_b64encode(b"K" + uuid.uuid4().bytes[1:]).decode().rstrip("=")  # the K: it must not begin with a dash


class Broker:
    """One broker: `start` it, `close` it, and between the two do to it what happens to brokers. Ports stay the same.

    With `user` and `password` it also listens at `sasl_bootstrap` (SASL_SSL: PLAIN, SCRAM-SHA-512, and OAUTHBEARER with
    tokens that nobody signed), trusted through `ca_file`.
    """

    def __init__(self, user: str | None = None, password: str | None = None) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="yolometer-kafka-", dir=MEMORY))
        self.process: subprocess.Popen[bytes] | None = None
        self._clean = weakref.finalize(self, shutil.rmtree, str(self.folder), True)
        self._held = [_held() for _ in range(3)]
        port, controller, sasl = self._ports = [number for _, number in self._held]
        self.bootstrap = f"127.0.0.1:{port}"
        self.sasl_bootstrap = f"127.0.0.1:{sasl}" if user else None
        self.ca_file = certificates(self.folder) if user else None
        self.cluster_id = _cluster_id()
        self._scram = ["--add-scram", f"SCRAM-SHA-512=[name={user},password={password}]"] if user else []
        listener = f",SASL_SSL://127.0.0.1:{sasl}" if user else ""
        text = _SETTINGS.format(port=port, controller=controller, sasl=listener)
        text += _SASL.format(user=user, password=password) if user else ""
        (self.folder / "server.properties").write_text(text)
        _all.add(self)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> Self:
        """Start it on the data it has (formatted at first) and wait until its ports answer."""
        if not (self.folder / "data").exists():
            self._format()
        self.process = self._java("kafka.Kafka", "server.properties")
        wanted = [self.bootstrap, self.sasl_bootstrap] if self.sasl_bootstrap else [self.bootstrap]
        deadline = time.monotonic() + READY_S
        while not all(_answers(str(address)) for address in wanted):
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                raise RuntimeError(f"Kafka did not start: {self.log_text()[-4000:]}")
            time.sleep(0.02)
        return self

    def kill(self) -> None:
        """SIGKILL; returns when the process is gone. Nothing where it does not run."""
        self._stop(signal.SIGKILL)

    def term(self) -> None:
        """SIGTERM, a clean stop; returns when the process is gone (0.3 to 1 s)."""
        self._stop(signal.SIGTERM)

    def pause(self) -> None:
        """SIGSTOP: connections stay open and nothing answers."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT."""
        self._signal(signal.SIGCONT)

    def restart(self) -> Self:
        """Start again with the same data, after a clean stop where it still runs. After `kill` the port takes 4 to 5 s."""
        self.term()
        return self.start()

    def wipe(self, new_cluster: bool = False) -> None:
        """Kill it, delete its data and format again, with the same or a new cluster id; `start` brings it back empty."""
        self.kill()
        shutil.rmtree(self.folder / "data", ignore_errors=True)
        self.cluster_id = _cluster_id() if new_cluster else self.cluster_id
        self._format()

    def close(self) -> None:
        """Kill it and remove its folder."""
        self.kill()
        for held, _ in self._held:
            held.close()
        self._clean()

    def log_text(self) -> str:
        """What it said so far: warnings and errors."""
        return (self.folder / "broker.log").read_text(errors="replace")

    def _format(self) -> None:
        formatting = self._java(
            "kafka.tools.StorageTool", "format", "-t", self.cluster_id, "-c", "server.properties", "--standalone", *self._scram
        )
        if formatting.wait(READY_S):
            raise RuntimeError(f"Kafka's folder could not be formatted: {self.log_text()[-4000:]}")

    def _java(self, *arguments: str) -> subprocess.Popen[bytes]:
        java = [*_JAVA, f"-Dlog4j2.configurationFile={HERE / 'log4j2.properties'}", "-cp", f"{jars()}/*", *arguments]
        argv = [sys.executable, "-S", "-E", "-c", _CHILD, str(os.getpid()), *java]
        with (self.folder / "broker.log").open("ab") as log:
            return _starter.submit(
                subprocess.Popen, argv, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            ).result()

    def _signal(self, number: signal.Signals) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(number)

    def _stop(self, number: signal.Signals) -> None:
        if self.process is not None:
            self._signal(number)
            self._signal(signal.SIGCONT)  # a paused process takes SIGTERM only when it goes on
            self.process.wait(READY_S)
            self.process = None


_all: weakref.WeakSet[Broker] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    for left in list(_all):
        left.close()


def _answers(address: str) -> bool:
    host, _, port = address.rpartition(":")
    with contextlib.suppress(OSError), socket.create_connection((host, int(port)), timeout=1):
        return True
    return False
