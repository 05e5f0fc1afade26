"""The agent as a process, with a real broker and real signals: what is in the logs is in Kafka, whatever happens to it."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from _kafka import Broker, read_all
from _node import CAPTURES, NAMES, Node, end, ends, free_port, in_order, same, until

from yolometer_agent.config import AgentConfig
from yolometer_agent.emit import Emitter, Pace
from yolometer_agent.lanes import GpuLane
from yolometer_agent.meters._base import Ticker
from yolometer_agent.meters.simulated import Simulated
from yolometer_agent.service import Loop
from yolometer_agent.spool.spool import Spool
from yolometer_core import wire
from yolometer_core.delivery import Loss
from yolometer_core.events import Fact
from yolometer_core.gpu import Gpu
from yolometer_core.service.health import Health
from yolometer_core.service.metrics import Metrics

SEED = 20261130


@pytest.fixture
def node(tmp_path: Path, kafka: Broker, prefix: str) -> Iterator[Node]:
    made = Node(tmp_path, kafka, prefix)
    yield made
    end(made)


@pytest.fixture
def own_node(tmp_path: Path, broker: Broker, prefix: str) -> Iterator[Node]:
    """A node whose broker may be hurt."""
    made = Node(tmp_path, broker, prefix)
    yield made
    end(made)


def test_kill_9_at_any_time_loses_and_changes_nothing(tmp_path: Path, kafka: Broker, prefix: str) -> None:
    chance = random.Random(SEED)
    node = Node(tmp_path, kafka, prefix)
    settings = node.settings()
    over = threading.Event()
    writer = threading.Thread(target=_grow, args=(node.runs, chance.random(), over))
    writer.start()
    try:
        kills = 0
        while (writer.is_alive() and not over.is_set()) or kills < 5:
            process = node.start(settings)
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(chance.uniform(0.9, 2.2))
            process.kill()
            process.communicate()
            kills += 1
        node.once(settings)
        found = node.rows()
        first = len(node.events())
        expected = _expected(node)
        assert len(expected) > 300
        assert same(found, expected)
        assert in_order(found) == in_order(expected)
        assert first > len(found)  # there was something to survive
    finally:
        over.wait(20)
        writer.join()
        end(node)


def _grow(runs: Path, seed: float, over: threading.Event) -> None:
    """Trainings write their logs, in pieces that end anywhere."""
    chance = random.Random(seed)
    left = {}
    for name in NAMES:
        (runs / name).mkdir()
        left[name] = (CAPTURES / name / "train.log").read_bytes()
    pieces = {name: len(data) // 40 + 1 for name, data in left.items()}
    while any(left.values()):
        for name in NAMES:
            size = int(pieces[name] * chance.uniform(0.2, 1.8))
            with (runs / name / "train.log").open("ab") as file:
                file.write(left[name][:size])
            left[name] = left[name][size:]
        time.sleep(0.15)
    over.set()


def test_sigterm_in_an_outage(own_node: Node) -> None:
    """The broker stands still, then is away: the agent ends in time with 0, and what it read is sent by the next one."""
    node = own_node
    settings = node.settings(meters={"simulated": {"gpus": 2, "period_s": 0.1}})
    process = node.start(settings)
    node.place(NAMES[0])
    until(node.rows)
    node.kafka.pause()
    node.place(NAMES[1])
    time.sleep(0.5)
    assert ends(process) < 10
    node.kafka.resume()
    node.kafka.term()
    process = node.running(settings)
    node.place(NAMES[2])
    time.sleep(1)
    assert ends(process) < 10
    node.kafka.start()
    node.once(settings)
    told = {Path(fact.place).name for fact in node.rows().values()}
    assert told == set(NAMES[:3])
    gpu = [event for event in node.events("gpu") if isinstance(event, Gpu)]
    assert {event.samples for event in gpu} != {0}
    assert len({(event.gpu_uuid[0], event.ts) for event in gpu}) == len(gpu)


def test_the_service_as_it_is_used(node: Node) -> None:
    """Samples and facts arrive numbered without a gap; /healthz and /metrics answer; the files are for nobody else's eyes."""
    settings = node.settings(meters={"simulated": {"gpus": 3, "period_s": 0.1, "run_id": "r1"}}, metrics_port=free_port())
    node.place(NAMES[1])  # its losses become NaN, and so does what the agent remembers
    port = json.loads(settings.read_text())["metrics_port"]
    process = node.start(settings)
    until(lambda: len(read_all(node.kafka.bootstrap, f"{node.prefix}gpu")))
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz") as answer:
        assert json.load(answer)["status"] == "ok"
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
        text = answer.read().decode()
    assert 'yolometer_agent_lag{lane="fact"} 0.0' in text
    assert "yolometer_agent_last_success_timestamp_seconds" in text
    again = node.start(settings)
    _, said = again.communicate(timeout=20)
    assert again.returncode == 1
    assert said.count("\n") == 1
    assert f"Another agent (process {process.pid})" in said
    elsewhere = node.start(node.settings("elsewhere"))
    _, said = elsewhere.communicate(timeout=20)
    assert elsewhere.returncode == 1
    assert f"Another agent (process {process.pid}) reports for the node {node.prefix}node" in said
    assert ends(process) < 5
    for topic in ("fact", "gpu"):
        values = [value for *_, value in read_all(node.kafka.bootstrap, node.prefix + topic)]
        heads = [wire.read(value) for value in values]
        numbers = sorted(head.seq or 0 for head in heads)
        assert [number & 0xFFFFFFFF for number in numbers] == list(range(1, len(numbers) + 1))
        assert {(head.node, head.lane) for head in heads} == {(f"{node.prefix}node", topic)}
    meter = Simulated(gpus=3, period_s=0.1, run_id="r1")
    for event in node.events("gpu"):
        assert isinstance(event, Gpu)
        assert event.run_id == ("r1",) * 3
        assert event.gpu_uuid == tuple(reading.device.uuid for reading in meter.sample(event.ts))
    state = node.folder / "agent-state"
    assert [path for path in (state, *state.rglob("*")) if path.stat().st_mode & 0o077] == []
    before = len(node.events())
    subprocess.run(["rm", "-r", state / "spool"], check=True)  # then the checkpoint knows
    node.once(settings)
    assert {event.table for event in node.events()[before:]} <= {"source_state"}


def test_wrong_settings_are_one_sentence(node: Node) -> None:
    for settings, said in (
        ({"meters": {"nvidia": {}}}, "There is no meter 'nvidia'; the meters are dcgm, nvml, simulated."),
        ({"meters": {"simulated": {"gpu": 1}}}, "'meters.simulated.gpu' is wrong"),
        ({"kafka": {"bootstrap_servers": node.kafka.bootstrap, "tls": True, "ca_file": "/none"}}, "/none cannot be read"),
        ({"wach": []}, "did you mean 'watch'"),
    ):
        process = node.start(node.settings("wrong", **settings))
        _, heard = process.communicate(timeout=20)
        assert process.returncode == 2
        assert said in heard
        assert heard.count("\n") == 1


class Inside:
    """The loop of the service in this process, with small spools."""

    def __init__(self, node: Node, bootstrap: str, state: str = "inside") -> None:
        folder = node.folder / state
        self.config = AgentConfig(node=f"{node.prefix}node", watch=(str(node.runs),), processes=False, state_dir=folder,
                                  linger_s=0)  # fmt: skip
        self.spools = {
            "fact": Spool(folder / "fact", max_bytes=60_000, segment_bytes=15_000, max_age_s=3600, drop=False),
            "gpu": Spool(folder / "gpu", max_bytes=40_000, max_age_s=3600, drop=True),
        }
        self.metrics = Metrics("agent")
        self.health = Health("agent", stuck_after_s=60, metrics=self.metrics)
        pace = Pace(block_s=0.2, patience_s=1, reconnect_s=0.5)
        self.emitter = Emitter(
            self.spools,
            lambda: {"bootstrap_servers": bootstrap},
            topic=lambda name: node.prefix + name,
            compression=None,
            pace=pace,
        )
        self.loop = Loop(self.config, self.spools, self.emitter, self.metrics, self.health, once=False, most_bytes=4000)

    def rounds(self, until_true: Callable[[], object], seconds: float = 30) -> None:
        deadline = time.monotonic() + seconds
        while not until_true():
            assert time.monotonic() < deadline
            self.loop.round()
            time.sleep(0.005)

    def is_done(self) -> bool:
        self.loop.every_second(last=True)
        return not self.loop.is_busy and self.loop.is_done

    def close(self) -> None:
        self.loop.close()
        for spool in self.spools.values():
            spool.close()


def _expected(node: Node) -> dict[str, Fact]:
    """What an agent reads that nothing happens to."""
    other = Node(node.folder, node.kafka, f"{node.prefix}w.")
    other.once(other.settings("expected", node=f"{node.prefix}node"))
    found: dict[str, Fact] = other.rows()
    return found


def test_a_full_spool_stops_the_tail_and_drops_samples_that_are_counted(node: Node) -> None:
    """Facts then wait in the logs; nothing of them is lost. Samples have no other buffer: the oldest go, and that is told."""
    for name in NAMES:
        node.place(name)
    inside = Inside(node, node.kafka.bootstrap)
    try:
        inside.rounds(lambda: "is full (60000 bytes)" in str(inside.health.told()["reason"]))
        assert inside.health.told()["status"] == "degraded"
        lane = GpuLane(inside.spools["gpu"], inside.config.name)
        ticker = Ticker("simulated", Simulated(gpus=8, period_s=0.05), inside.config.name, lane.put, warn=print)
        for _ in range(200):
            ticker.tick()
            ticker.flush()
            time.sleep(0.001)
        for _ in range(20):
            inside.loop.round()
        assert inside.spools["fact"].size_bytes <= 60_000
        assert not inside.loop.is_busy
        inside.emitter.start()
        inside.rounds(inside.is_done)
        expected = _expected(node)
        assert same(node.rows(), expected)
        losses = [event for event in node.events() if isinstance(event, Loss)]
        assert losses
        assert {(event.source, event.reason) for event in losses} == {("gpu", "full")}
        numbers = [wire.read(value).seq or 0 for *_, value in read_all(node.kafka.bootstrap, f"{node.prefix}gpu")]
        gone = [seq for event in losses for seq in range(event.seq, event.last_seq + 1)]
        begin = inside.spools["gpu"].epoch << 32
        assert sorted(numbers + gone) == list(range(begin + 1, begin + 201))
        assert inside.health.told()["status"] == "ok"
        text = inside.metrics.rendered()[0].decode()
        assert f'yolometer_agent_dropped_total{{reason="full"}} {len(gone)}.0' in text
    finally:
        inside.emitter.stop(1.0)
        inside.close()


def test_a_damaged_spool_is_read_again_from_the_logs(node: Node) -> None:
    node.place(NAMES[3])
    inside = Inside(node, node.kafka.bootstrap)
    inside.rounds(lambda: inside.spools["fact"].size_bytes > 35_000)
    inside.close()
    segments = sorted((inside.config.folder / "fact").glob("*.seg"))
    assert len(segments) > 2
    raw = bytearray(segments[1].read_bytes())
    raw[len(raw) // 2] ^= 1
    segments[1].write_bytes(raw)
    inside = Inside(node, node.kafka.bootstrap)
    inside.emitter.start()
    try:
        inside.rounds(lambda: inside.is_done() and any(isinstance(event, Loss) for event in node.events()))
        inside.rounds(inside.is_done)
        assert same(node.rows(), _expected(node))
        losses = [event for event in node.events() if isinstance(event, Loss)]
        assert {(event.source, event.reason) for event in losses} == {("fact", "damaged")}
    finally:
        inside.emitter.stop(1.0)
        inside.close()


def test_once_that_is_stopped_says_so(node: Node) -> None:
    node.place(NAMES[0])
    nobody = {"bootstrap_servers": f"127.0.0.1:{free_port()}", "prefix": node.prefix}
    process = node.running(node.settings(kafka=nobody), "--once")
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(1)
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=15)
    assert process.returncode == 1
    assert "It was stopped before all was sent" in said
    node.once(node.settings())
    assert node.rows()
