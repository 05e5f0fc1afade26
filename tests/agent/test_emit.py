"""The emitter against a real broker that is away, stands still, dies, forgets, and refuses; and the traps of kafka-python.

Each trap is shown with a bare producer first: where a newer version mends it, that half of the test fails, and our guard can go.
"""

from __future__ import annotations

import gc
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from _kafka import Broker, create_topic, read_all
from kafka import KafkaAdminClient, KafkaProducer
from kafka.errors import KafkaTimeoutError, MessageSizeTooLargeError

from yolometer_agent.emit import Emitter, Pace
from yolometer_agent.sending import API_VERSION, Backoff, Bucket, check_codec
from yolometer_agent.spool.spool import Spool
from yolometer_core.errors import BadConfig
from yolometer_core.topics import LARGEST_MESSAGE_BYTES

QUICK = Pace(block_s=0.2, away_s=1.0, stuck_s=3.0, patience_s=1.0, reconnect_s=0.5)


class Sending:
    """An emitter with two lanes, and what it said."""

    def __init__(self, folder: Path, bootstrap: str, pace: Pace = QUICK, prefix: str = "", **client: Any) -> None:
        self.spools = {
            name: Spool(folder / name, max_bytes=64 << 20, max_age_s=3600, drop=name == "gpu") for name in ("fact", "gpu")
        }
        self.said: list[str] = []
        self.emitter = Emitter(
            self.spools,
            lambda: {"bootstrap_servers": bootstrap, **client},
            topic=lambda name: prefix + name,
            compression="zstd",
            pace=pace,
            warn=self.said.append,
        )
        self.emitter.start()

    def put(self, first: int, last: int, lane: str = "fact", size: int = 0) -> None:
        """Messages of these numbers, each of `size` bytes at least."""
        for number in range(first, last):
            self.spools[lane].append(lane.encode(), b"key", lambda *_, number=number: b"%d|" % number + os.urandom(size))
        self.emitter.wake()

    def waits(self) -> int:
        return sum(spool.messages_waiting for spool in self.spools.values())

    def sent(self, seconds: float = 20) -> None:
        until(lambda: not self.waits(), seconds)

    def close(self) -> None:
        assert self.emitter.stop(0.0)
        for spool in self.spools.values():
            spool.close()


@pytest.fixture
def sending(tmp_path: Path) -> Iterator[Callable[..., Sending]]:
    made: list[Sending] = []

    def make(*args: Any, **more: Any) -> Sending:
        made.append(Sending(tmp_path / str(len(made)), *args, **more))
        return made[-1]

    yield make
    for each in made:
        each.close()
    gc.collect()


@pytest.fixture(scope="module")
def standing() -> Iterator[Broker]:
    """A broker that tests make stand still, and let go on."""
    with Broker() as shared:
        yield shared


def until(true: Callable[[], object], seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def numbers(bootstrap: str, topic: str) -> list[int]:
    """What is in a topic of one partition, each once, in order of its first coming."""
    found = [int((value or b"").partition(b"|")[0]) for *_, value in read_all(bootstrap, topic)]
    return list(dict.fromkeys(found))


def bare(bootstrap: str, **settings: Any) -> KafkaProducer:
    """A producer as it comes."""
    return KafkaProducer(bootstrap_servers=bootstrap, api_version=API_VERSION, max_block_ms=2000, **settings)


def end(producer: KafkaProducer) -> None:
    producer._sender.force_close()
    producer._sender.join(5)
    producer._unregister_cleanup()
    producer._closed = True


def ends_at_once(ours: Sending) -> None:
    """The end does not wait for Kafka, and leaves no thread."""
    begin = time.monotonic()
    assert ours.emitter.stop(0.5)
    assert time.monotonic() - begin < 3
    assert not [thread for thread in threading.enumerate() if "yolometer-agent" in thread.name]


def test_messages_arrive_in_order_and_the_cursor_follows(kafka: Broker, prefix: str, sending: Callable[..., Sending]) -> None:
    for name in ("fact", "gpu"):
        create_topic(kafka.bootstrap, prefix + name)
    ours = sending(kafka.bootstrap, prefix=prefix)
    ours.put(0, 500)
    ours.put(0, 50, "gpu")
    ours.sent()
    assert numbers(kafka.bootstrap, f"{prefix}fact") == list(range(500))
    assert numbers(kafka.bootstrap, f"{prefix}gpu") == list(range(50))
    assert len(read_all(kafka.bootstrap, f"{prefix}fact")) == 500
    assert ours.emitter.acked("fact") == ours.spools["fact"].epoch << 32 | 500
    assert ours.emitter.problem is None
    assert not ours.said


def test_a_missing_topic_is_named_and_holds_up_nobody_else(kafka: Broker, prefix: str, sending: Callable[..., Sending]) -> None:
    create_topic(kafka.bootstrap, f"{prefix}fact")
    ours = sending(kafka.bootstrap, prefix=prefix)
    ours.put(0, 3, "gpu")
    until(lambda: ours.emitter.problem)
    assert f"The topic {prefix}gpu does not exist" in str(ours.emitter.problem)
    assert "yolometer topics ensure" in str(ours.emitter.problem)
    for number in range(5):
        ours.put(number, number + 1)
        until(lambda: not ours.spools["fact"].messages_waiting, 5)
        assert ours.emitter.problem
    create_topic(kafka.bootstrap, f"{prefix}gpu")
    ours.sent()
    assert numbers(kafka.bootstrap, f"{prefix}gpu") == [0, 1, 2]
    assert ours.emitter.problem is None
    assert len(ours.said) == 1  # a problem is said once, not at each try


def test_one_broker_through_its_whole_life(sending: Callable[..., Sending]) -> None:
    """Away at start, topic missing, killed with its data kept, back empty: nothing is lost and the order holds."""
    broker = Broker()
    try:
        ours = sending(broker.bootstrap)
        ours.put(0, 100)
        until(lambda: ours.emitter.problem)
        assert "No broker of Kafka answers" in str(ours.emitter.problem)
        assert ours.emitter.in_flight == 0
        broker.start()
        until(lambda: "does not exist" in str(ours.emitter.problem))
        create_topic(broker.bootstrap, "fact")
        ours.sent()
        broker.kill()
        ours.put(100, 200)
        # a producer that holds messages polls without a pause while the broker is away: it is not left with any
        until(lambda: not ours.emitter.in_flight and ours.emitter.problem)
        broker.start()
        ours.sent()
        assert numbers(broker.bootstrap, "fact") == list(range(200))
        assert ours.emitter.problem is None
        broker.wipe(new_cluster=True)
        ours.put(200, 300)
        broker.start()
        until(lambda: ours.emitter.problem)
        create_topic(broker.bootstrap, "fact")
        ours.sent()
        assert numbers(broker.bootstrap, "fact") == list(range(200, 300))
        broker.kill()
        ours.put(300, 310)
        ends_at_once(ours)
        assert ours.waits() == 10
    finally:
        broker.close()


def test_a_batch_that_expires_wedges_a_bare_producer_and_not_us(
    standing: Broker, prefix: str, sending: Callable[..., Sending]
) -> None:  # fmt: skip
    """The broker stands still for longer than the time-outs. Ours has none; and if it had (`mortal`), it is built anew."""
    for name in ("fact", "bare", "mortal.fact"):
        create_topic(standing.bootstrap, prefix + name)
    short = {"request_timeout_ms": 800, "delivery_timeout_ms": 2000}
    trap = bare(standing.bootstrap, **short)
    ours = sending(standing.bootstrap, prefix=prefix, request_timeout_ms=800)
    mortal = sending(standing.bootstrap, prefix=f"{prefix}mortal.", **short)
    trap.send(f"{prefix}bare", b"0").get(10)
    for each in (ours, mortal):
        each.put(0, 10)
        each.sent()
    standing.pause()
    lost = trap.send(f"{prefix}bare", b"1")
    ours.put(10, 300)
    mortal.put(10, 300)
    time.sleep(4)
    standing.resume()
    with pytest.raises(KafkaTimeoutError):
        lost.get(10)
    after = trap.send(f"{prefix}bare", b"2")
    with pytest.raises(KafkaTimeoutError):
        after.get(3)
    assert not after.is_done  # neither acknowledged nor failed
    with pytest.raises(KafkaTimeoutError):
        trap.close(timeout=0.5)
    assert trap._sender.is_alive()  # and its thread goes on for ever
    end(trap)
    ours.sent()
    mortal.sent()
    assert numbers(standing.bootstrap, f"{prefix}fact") == list(range(300))
    assert numbers(standing.bootstrap, f"{prefix}mortal.fact") == list(range(300))


def test_a_message_too_large_for_its_topic_poisons_a_bare_producer_and_not_us(
    kafka: Broker, prefix: str, sending: Callable[..., Sending]
) -> None:
    create_topic(kafka.bootstrap, f"{prefix}fact", max_message_bytes="2000")
    create_topic(kafka.bootstrap, f"{prefix}gpu")
    trap = bare(kafka.bootstrap)
    with pytest.raises(MessageSizeTooLargeError):
        trap.send(f"{prefix}fact", os.urandom(3000)).get(10)
    with pytest.raises(MessageSizeTooLargeError):
        trap.send(f"{prefix}gpu", b"small, and to another topic").get(10)
    end(trap)
    ours = sending(kafka.bootstrap, prefix=prefix)
    ours.put(0, 20)
    ours.put(20, 21, size=3000)
    ours.put(21, 40)
    ours.put(40, 41, size=LARGEST_MESSAGE_BYTES)  # more than any topic takes: the client refuses it by itself
    ours.put(41, 60)
    ours.put(0, 30, "gpu", size=2500)
    ours.sent()
    assert numbers(kafka.bootstrap, f"{prefix}fact") == [number for number in range(60) if number not in (20, 40)]
    assert numbers(kafka.bootstrap, f"{prefix}gpu") == list(range(30))
    begin = ours.spools["fact"].epoch << 32
    assert [(each.lane, each.seq - begin) for each in ours.emitter.too_large()] == [("fact", 21), ("fact", 41)]
    assert ours.emitter.too_large() == []
    ours.put(60, 300)  # and it goes on at full speed
    ours.sent(5)


def test_a_bare_producer_buffers_without_bound_and_we_do_not(
    standing: Broker, prefix: str, sending: Callable[..., Sending]
) -> None:  # fmt: skip
    topic = f"{prefix}fact"
    create_topic(standing.bootstrap, topic)
    trap = bare(standing.bootstrap)
    trap.send(topic, b"0").get(10)
    ours = sending(standing.bootstrap, prefix=prefix)
    ours.put(0, 1)
    ours.sent()
    standing.pause()
    begin = time.monotonic()
    for _ in range(400):
        trap.send(topic, bytes(100_000))
    assert time.monotonic() - begin < 5  # 40 MB, and it never waited
    end(trap)
    ours.put(1, 100, size=100_000)
    time.sleep(0.7)
    assert 0 < ours.emitter.in_flight <= QUICK.in_flight_bytes // 100_000 + 1
    until(lambda: any("acknowledges nothing" in said for said in ours.said), QUICK.stuck_s + 5)  # a hang is seen, whatever it is
    ends_at_once(ours)
    assert ours.waits() == 99
    standing.resume()


def test_a_time_that_the_topic_refuses_is_waited_out(kafka: Broker, prefix: str, sending: Callable[..., Sending]) -> None:
    """As with the clock of a node that is hours ahead; and that, too, poisons the producer."""
    topic = f"{prefix}fact"
    create_topic(kafka.bootstrap, topic, message_timestamp_before_max_ms="0")
    ours = sending(kafka.bootstrap, prefix=prefix)
    ours.put(0, 5)
    until(lambda: "the clock of this node" in str(ours.emitter.problem))
    with KafkaAdminClient(bootstrap_servers=kafka.bootstrap) as admin:
        admin.alter_configs([_config(topic, {"message.timestamp.before.max.ms": "9223372036854775807"})])
    ours.sent()
    assert numbers(kafka.bootstrap, topic) == list(range(5))


def _config(topic: str, values: dict[str, str]) -> Any:
    from kafka.admin import ConfigResource, ConfigResourceType

    return ConfigResource(ConfigResourceType.TOPIC, topic, configs=values)


def test_a_spool_is_not_replayed_faster_than_allowed(kafka: Broker, prefix: str, sending: Callable[..., Sending]) -> None:
    create_topic(kafka.bootstrap, f"{prefix}fact")
    ours = sending(kafka.bootstrap, Pace(bytes_per_s=100_000), prefix=prefix)
    begin = time.monotonic()
    ours.put(0, 300, size=1000)
    ours.sent()
    assert 1.5 < time.monotonic() - begin < 8  # 300 kB, of which 100 kB at once


def test_what_the_client_needs_may_come_later(kafka: Broker, prefix: str, tmp_path: Path) -> None:
    """A file of a certificate that is being replaced, for example: it is said, and tried again."""
    create_topic(kafka.bootstrap, f"{prefix}fact")
    calls: list[int] = []

    def client() -> dict[str, Any]:
        calls.append(1)
        if len(calls) < 3:
            raise BadConfig("ca.pem cannot be read; correct it.")
        return {"bootstrap_servers": kafka.bootstrap}

    said: list[str] = []
    with_spool = {"fact": Spool(tmp_path, max_bytes=1 << 24, max_age_s=60)}
    emitter = Emitter(with_spool, client, topic=lambda name: prefix + name, compression=None, pace=QUICK, warn=said.append)
    with_spool["fact"].append(b"fact", b"k", lambda *_: b"v")
    emitter.start()
    until(lambda: not with_spool["fact"].messages_waiting)
    assert said == ["ca.pem cannot be read; correct it."]
    assert emitter.problem is None
    assert emitter.stop(1.0)
    with_spool["fact"].close()


def test_backoff_grows_up_to_its_bound_and_is_never_the_same() -> None:
    most = Backoff(0.5, 30, chance=lambda: 1.0)
    assert [most.next_s() for _ in range(8)] == [0.5, 1, 2, 4, 8, 16, 30, 30]
    least = Backoff(0.5, 30, chance=lambda: 0.0)
    assert [least.next_s() for _ in range(3)] == [0.25, 0.5, 1]
    least.reset()
    assert least.next_s() == 0.25
    for _ in range(5000):
        assert most.next_s() == 30


def test_bucket() -> None:
    now = 0.0
    bucket = Bucket(100, lambda: now)
    assert bucket.wait_s() == 0
    bucket.take(350)  # a message larger than the bucket goes, and the next one waits
    assert 2.5 < bucket.wait_s() <= 2.52
    now = 2.6
    assert bucket.wait_s() == 0
    now = 1000.0
    bucket.wait_s()
    bucket.take(101)
    assert bucket.wait_s() > 0


def test_a_codec_that_is_not_installed_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    check_codec("zstd")
    check_codec(None)
    monkeypatch.setitem(__import__("sys").modules, "zstandard", None)
    with pytest.raises(BadConfig, match="needs the package zstandard; install yolometer"):
        check_codec("zstd")
