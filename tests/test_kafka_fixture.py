"""The broker of the tests is a real one that keeps, loses and delays what a real one does."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from _kafka import Broker, committed, create_topic, produce, read_all
from kafka import KafkaAdminClient, KafkaConsumer, TopicPartition
from kafka.structs import OffsetAndMetadata


def test_what_is_produced_is_read(kafka: Broker, prefix: str) -> None:
    topic = f"{prefix}fact"
    create_topic(kafka.bootstrap, topic, partitions=3)
    assert read_all(kafka.bootstrap, topic) == []
    records = [(b"a", b"1"), (b"b", None), (None, b"3")]
    at = produce(kafka.bootstrap, topic, records)
    found = read_all(kafka.bootstrap, topic)
    assert sorted(found) == sorted((*place, key, value) for place, (key, value) in zip(at, records, strict=True))
    assert [offset for _, offset in produce(kafka.bootstrap, topic, [(b"k", b"v")] * 3, partition=2)] == [
        number + sum(1 for place in at if place[0] == 2) for number in range(3)
    ]


def test_topics_are_not_made_by_themselves(kafka: Broker, prefix: str) -> None:
    with KafkaAdminClient(bootstrap_servers=kafka.bootstrap) as admin:
        assert f"{prefix}none" not in admin.list_topics()
    with pytest.raises(AssertionError, match="there is no topic"):
        read_all(kafka.bootstrap, f"{prefix}none")


def test_committed_offsets_are_seen(kafka: Broker, prefix: str) -> None:
    create_topic(kafka.bootstrap, f"{prefix}fact")
    assert committed(kafka.bootstrap, f"{prefix}group") == {}
    consumer = KafkaConsumer(bootstrap_servers=kafka.bootstrap, group_id=f"{prefix}group", enable_auto_commit=False)
    part = TopicPartition(f"{prefix}fact", 0)
    consumer.assign([part])
    consumer.commit({part: OffsetAndMetadata(7, "", -1)})
    consumer.close()
    assert committed(kafka.bootstrap, f"{prefix}group") == {(part.topic, 0): 7}


def test_a_killed_broker_keeps_its_data_and_a_wiped_one_does_not(broker: Broker) -> None:
    create_topic(broker.bootstrap, "fact")
    produce(broker.bootstrap, "fact", [(b"k", b"kept")])
    broker.kill()
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", int(broker.bootstrap.rpartition(":")[2])))
    broker.restart()
    assert read_all(broker.bootstrap, "fact") == [(0, 0, b"k", b"kept")]
    was = broker.cluster_id
    broker.wipe(new_cluster=True)
    broker.start()
    assert broker.cluster_id != was
    with KafkaAdminClient(bootstrap_servers=broker.bootstrap) as admin:
        assert admin.list_topics() == []
        assert admin.describe_cluster()["cluster_id"] == broker.cluster_id


def test_a_paused_broker_answers_when_it_goes_on(broker: Broker) -> None:
    create_topic(broker.bootstrap, "fact")
    broker.pause()
    time.sleep(0.1)
    assert broker.process is not None
    assert Path(f"/proc/{broker.process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
    broker.resume()
    assert produce(broker.bootstrap, "fact", [(b"k", b"v")]) == [(0, 0)]
    broker.pause()
    broker.term()  # a paused broker can be stopped, too
    assert broker.process is None


def test_a_broker_dies_with_its_test_process_and_not_with_a_thread_of_it() -> None:
    code = (
        "import sys, threading; sys.path.insert(0, sys.argv[1])\n"
        "from _kafka import Broker\n"
        "broker = Broker()\n"
        "thread = threading.Thread(target=broker.start); thread.start(); thread.join()\n"
        "print(broker.process.pid, broker.bootstrap, broker.folder, flush=True)\n"
        "sys.stdin.read()\n"
    )
    argv = [sys.executable, "-c", code, str(Path(__file__).parent)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout
        pid, bootstrap, folder = owner.stdout.readline().split()
        create_topic(bootstrap, "alive")
        owner.send_signal(signal.SIGKILL)
    deadline = time.monotonic() + 10
    while _lives(int(pid)) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not _lives(int(pid))
    subprocess.run(["rm", "-r", folder], check=True)  # its owner had no time to


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
