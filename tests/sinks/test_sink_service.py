"""The sink on a real Kafka and a real ClickHouse: nothing lost, nothing twice, whatever happens to either or to itself."""

from __future__ import annotations

import itertools
import json
import math
import random
import signal
import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from _clickhouse_server import Server
from _clickhouse_server import running as clickhouse
from _faultproxy import FaultProxy
from _kafka import Broker, KafkaConsumer, TopicPartition, committed, produce, read_all
from _samples import HOUR_AGO, epoch, full_gpu, gpu, message
from _service import config_of, count, running, snapshot, started, topics, until
from kafka.structs import OffsetAndMetadata

from yolometer_core import wire
from yolometer_core.delivery import DeadLetter
from yolometer_core.errors import BadDeploy, BadStore, Unavailable
from yolometer_core.events import Event
from yolometer_sinks.open_store import open_store
from yolometer_sinks.stores._base import Store

_databases = itertools.count()
GARBAGE = b"\xc1 no message"


@pytest.fixture
def database() -> str:
    return f"sink_{next(_databases)}"


@pytest.fixture
def store(database: str) -> Iterator[Store]:
    """The store of a test, with its tables."""
    opened = open_store(clickhouse().url(database))
    opened.migrate()
    yield opened
    opened.close()


@pytest.fixture
def proxy() -> Iterator[FaultProxy]:
    with FaultProxy(clickhouse().port) as running_proxy:
        yield running_proxy


def through(proxy: FaultProxy, database: str) -> str:
    return str(Server(Path(), proxy.port, clickhouse().process).url(database))


def send(kafka: Broker, topic: str, *values: bytes | None, partition: int | None = None, key: bytes = b"k") -> None:
    produce(kafka.bootstrap, topic, [(key, value) for value in values], partition)


def rewind(kafka: Broker, prefix: str) -> None:
    """Move the group back to the beginning of everything."""
    group = prefix + "sink"
    parts = [TopicPartition(*part) for part in committed(kafka.bootstrap, group)]
    consumer = KafkaConsumer(bootstrap_servers=kafka.bootstrap, group_id=group, enable_auto_commit=False)
    consumer.assign(parts)
    consumer.commit({part: OffsetAndMetadata(0, "", -1) for part in parts})
    consumer.close(autocommit=False)


def behind(kafka: Broker, prefix: str) -> int:
    """Messages that are not committed."""
    names = ("fact", "gpu", "run", "rate", "dead")
    ends = {(prefix + name, record[0]): record[1] + 1 for name in names for record in read_all(kafka.bootstrap, prefix + name)}
    done = committed(kafka.bootstrap, prefix + "sink")
    return sum(end - done.get(part, 0) for part, end in ends.items())


def fleet(messages: int, nodes: int = 5) -> list[tuple[bytes, bytes]]:
    made = []
    for at in range(messages):
        node = f"n{at % nodes}"
        event = full_gpu(node, at // nodes * 5, seq=at)
        made.append((node.encode(), message(event, lane="gpu", seq=at // nodes, node=node)))
    return made


def of_everything(kafka: Broker, prefix: str) -> None:
    """Something in each topic, good and bad."""
    produce(kafka.bootstrap, prefix + "gpu", fleet(60))
    send(kafka, prefix + "gpu", GARBAGE, message(gpu("inf", columns={"power_w": [1.0] * 5 + [math.inf]})))
    send(kafka, prefix + "run", *(message(epoch(f"r{at}", at), epoch(f"r{at}", at + 1, version=2)) for at in range(20)))
    send(kafka, prefix + "run", message(epoch("r1", 1, version=9, is_deleted=True)))
    send(kafka, prefix + "fact", None, wire.message([b"\x92\xa4what\x80"], node="n", at_ms=1))


def test_from_the_beginning_again_changes_nothing(kafka: Broker, prefix: str, store: Store, database: str) -> None:
    topics(kafka.bootstrap, prefix)
    of_everything(kafka, prefix)
    config = config_of(kafka.bootstrap, prefix, clickhouse().url(database), batch_rows=500)
    with running(config):
        until(lambda: count(store, "gpus") == 60 * 40 and count(store, "epochs") == 39 and count(store, "dead_letters") == 4)
        until(lambda: behind(kafka, prefix) == 0)
    before = snapshot(store)
    assert store.query("SELECT sum(samples), sum(gpu_seconds) FROM usage_days").rows == [(2400, 2400.0)]
    assert store.query("SELECT reason FROM dead_letters ORDER BY reason").rows == [
        ("garbage",), ("store",), ("tombstone",), ("type",)
    ]  # fmt: skip
    assert count(store, "messages") == 60 and count(store, "dirty_windows") == 0
    rewind(kafka, prefix)
    assert behind(kafka, prefix) > 60
    with running(config):
        until(lambda: behind(kafka, prefix) == 0)
    assert snapshot(store) == before


FAULTS: list[dict[str, Any]] = [
    {"kind": "status", "times": 2},
    {"kind": "status", "code": 429},
    {"kind": "reset_before", "times": 3},
    {"kind": "reset_after"},
    {"kind": "reset_after", "times": 3},
    {"kind": "cut"},
    {"kind": "slow", "seconds": 0.5},
    {"kind": "late", "seconds": 0.1, "times": 2},
    *({"kind": "error", "code": code} for code in (3, 107, 159, 164, 202, 203, 209, 210, 241, 242, 252, 285, 319, 425, 999)),
    {"kind": "reset_after", "match": "dirty_window", "times": 2},
    {"kind": "error", "code": 241, "match": "dirty_window"},
]


def test_each_fault_of_the_store_leaves_the_tables_the_same(
    kafka: Broker, prefix: str, store: Store, database: str, proxy: FaultProxy
) -> None:
    topics(kafka.bootstrap, prefix)
    with running(config_of(kafka.bootstrap, prefix, through(proxy, database))) as sink:
        for at, said in enumerate(FAULTS):
            fault = proxy.fault(**({"match": "INSERT INTO .?gpu"} | said))
            node = f"n{at}"
            send(kafka, prefix + "gpu", message(full_gpu(node, 0, at), lane="gpu", seq=at, node=node))
            until(lambda: count(store, "gpus") == 40 * (at + 1) and fault.times == 0, what=str(said))  # noqa: B023  # used at once
        until(lambda: behind(kafka, prefix) == 0)
        assert sink.health.told()["status"] == "ok"
    spoiled = snapshot(store)
    assert {fault.kind for fault in proxy.faults} == {*proxy.done}
    clean = open_store(clickhouse().url(database + "_clean"))
    rewind(kafka, prefix)
    with running(config_of(kafka.bootstrap, prefix, clickhouse().url(database + "_clean"))):
        until(lambda: behind(kafka, prefix) == 0)
    assert snapshot(clean) == spoiled
    clean.close()


def test_while_the_store_is_away_it_stays_in_its_group_and_says_so(
    kafka: Broker, prefix: str, store: Store, database: str, proxy: FaultProxy
) -> None:
    topics(kafka.bootstrap, prefix)
    away = proxy.fault("error", match="INSERT", times=10**9, code=242)
    config = config_of(kafka.bootstrap, prefix, through(proxy, database), batch_rows=200, session_timeout_s=2.0)
    with running(config) as sink:
        produce(kafka.bootstrap, prefix + "gpu", fleet(100))
        until(lambda: sink.health.told()["status"] == "degraded")
        time.sleep(3)  # longer than the session
        told = sink.health.told()
        assert "only be read" in told["reason"] and "nothing is lost" in told["reason"] and told["status"] == "degraded"
        assert committed(kafka.bootstrap, prefix + "sink") == {} and count(store, "gpus") == 0
        away.times = 0
        until(lambda: count(store, "gpus") == 4000 and behind(kafka, prefix) == 0, 60)
        assert sink.health.told()["status"] == "ok"


def test_killed_again_and_again_under_load_it_loses_and_doubles_nothing(
    kafka: Broker, prefix: str, store: Store, database: str, tmp_path: Path
) -> None:
    topics(kafka.bootstrap, prefix)
    made = fleet(600)
    config = config_of(kafka.bootstrap, prefix, clickhouse().url(database), batch_rows=400, batch_s=0.1)

    def load() -> None:
        for at in range(0, len(made), 10):
            produce(kafka.bootstrap, prefix + "gpu", made[at : at + 10])

    loading = threading.Thread(target=load)
    loading.start()
    drawn = random.Random(4)
    for _ in range(4):
        before = count(store, "gpu")
        sink = started(config, tmp_path)
        until(lambda: count(store, "gpu") > before, 40)  # noqa: B023  # used at once
        time.sleep(drawn.random())
        sink.kill()
        sink.wait()
    loading.join()
    with running(config):
        until(lambda: behind(kafka, prefix) == 0, 60)
    assert store.query("SELECT count(), uniqExact(event_id) FROM gpus").rows == [(24_000, 24_000)]
    assert store.query("SELECT count(), sum(rows) FROM messages").rows == [(600, 24_000)]
    for table in ("usage_minutes", "usage_hours", "usage_days"):
        assert store.query(f"SELECT sum(samples) FROM {table}").rows == [(24_000,)]
    assert count(store, "dead_letters") == 0


@pytest.mark.parametrize("where", ["start", "middle", "end", "everywhere"])
def test_poison_is_put_aside_and_its_neighbours_are_kept(
    kafka: Broker, prefix: str, store: Store, database: str, where: str
) -> None:
    topics(kafka.bootstrap, prefix, 1)
    good = [message(epoch(f"r{at}", 1)) for at in range(6)]
    bad = [GARBAGE, None, b"", message(gpu("n9", columns={"power_w": [-1.0] * 6}))]
    at = {"start": 0, "middle": 3, "end": 6, "everywhere": 0}[where]
    sent = [*bad] if where == "everywhere" else [*good[:at], *bad, *good[at:]]
    send(kafka, prefix + "run", *sent)
    with running(config_of(kafka.bootstrap, prefix, clickhouse().url(database))):
        until(lambda: count(store, "dead_letters") == len(bad) and behind(kafka, prefix) == 0)
    assert count(store, "epochs") == (0 if where == "everywhere" else 6)
    columns = "from_topic, from_partition, from_offset, `index`, reason, hex(raw)"
    rows = store.query(f"SELECT {columns} FROM dead_letters ORDER BY 3").rows
    wanted = [("garbage", -1), ("tombstone", -1), ("garbage", -1), ("store", 0)]
    for number, (row, (reason, index)) in enumerate(zip(rows, wanted, strict=True)):
        assert row[:5] == (prefix + "run", 0, at + number, index, reason)
    assert bytes.fromhex(rows[0][5]) == GARBAGE
    assert wire.read(bytes.fromhex(rows[3][5])).events == wire.read(bad[3]).events


def test_single_events_are_put_aside_alone(kafka: Broker, prefix: str, store: Store, database: str) -> None:
    topics(kafka.bootstrap, prefix, 1)
    old, future = timedelta(days=8), timedelta(hours=2)
    events: list[Event] = [epoch("r", 1), gpu("old", ts=HOUR_AGO - old), gpu("new"), gpu("future", ts=HOUR_AGO + future)]
    send(kafka, prefix + "gpu", message(*events, lane="gpu", seq=7))
    with running(config_of(kafka.bootstrap, prefix, clickhouse().url(database))):
        until(lambda: count(store, "dead_letters") == 2 and behind(kafka, prefix) == 0)
    assert store.query("SELECT `index`, reason FROM dead_letters ORDER BY 1").rows == [(1, "clock"), (3, "clock")]
    assert store.query("SELECT DISTINCT node FROM gpus").rows == [("new",)] and count(store, "epochs") == 1
    assert store.query("SELECT node, source, seq, events, rows FROM messages").rows == [("n1", "gpu", 7, 4, 7)]
    assert len(read_all(kafka.bootstrap, prefix + "dead")) == 2


def test_a_dead_letter_that_cannot_be_read_is_a_row_and_no_new_message(
    kafka: Broker, prefix: str, store: Store, database: str
) -> None:
    topics(kafka.bootstrap, prefix, 1)
    letter = DeadLetter(ts=HOUR_AGO, node="n", source="stream", seq=1, from_topic="t", from_partition=0, from_offset=1,
                        reason="step", detail="d", raw_key=b"", raw=b"\xff", digest="0")  # fmt: skip
    send(kafka, prefix + "dead", GARBAGE, message(letter), message(letter.model_copy(update={"ts": HOUR_AGO.replace(year=9000)})))
    with running(config_of(kafka.bootstrap, prefix, clickhouse().url(database))):
        until(lambda: count(store, "dead_letters") == 3 and behind(kafka, prefix) == 0)
        time.sleep(0.5)
    assert len(read_all(kafka.bootstrap, prefix + "dead")) == 3
    assert store.query("SELECT reason FROM dead_letters ORDER BY reason").rows == [("garbage",), ("step",), ("store",)]


def test_too_many_bad_messages_stop_it_and_are_not_committed(
    kafka: Broker, prefix: str, store: Store, database: str, tmp_path: Path
) -> None:
    topics(kafka.bootstrap, prefix, 1)
    send(kafka, prefix + "run", message(epoch("r", 1)), *[GARBAGE] * 60)
    config = config_of(kafka.bootstrap, prefix, clickhouse().url(database))
    with pytest.raises(BadDeploy, match="could not be understood"), running(config) as sink:
        sink.ended()
    assert committed(kafka.bootstrap, prefix + "sink").get((prefix + "run", 0), 0) <= 1
    assert count(store, "dead_letters") == 0
    sink_process = started(config, tmp_path)
    assert sink_process.wait(30) == 1
    said = (tmp_path / "sink.log").read_text()
    assert "could not be understood" in said and "Traceback" not in said


def test_bad_rows_count_for_the_limit_too(kafka: Broker, prefix: str, store: Store, database: str) -> None:
    topics(kafka.bootstrap, prefix, 1)
    send(kafka, prefix + "gpu", *(message(gpu(f"n{at}", columns={"power_w": [math.inf] * 6})) for at in range(60)))
    with pytest.raises(BadDeploy), running(config_of(kafka.bootstrap, prefix, clickhouse().url(database))) as sink:
        sink.ended()
    assert committed(kafka.bootstrap, prefix + "sink") == {} and read_all(kafka.bootstrap, prefix + "dead") == []


def test_sigterm_with_the_store_away_ends_in_time_and_loses_nothing(
    kafka: Broker, prefix: str, store: Store, database: str, proxy: FaultProxy, tmp_path: Path
) -> None:
    topics(kafka.bootstrap, prefix)
    for kind in ("status", "late"):
        fault = proxy.fault(kind, match="INSERT", times=10**9, seconds=60)
        config = config_of(kafka.bootstrap, prefix, through(proxy, database), batch_rows=100)
        produce(kafka.bootstrap, prefix + "gpu", fleet(20))
        sink = started(config, tmp_path)
        until(lambda: fault.times < 10**9, 40)  # noqa: B023  # used at once
        begun = time.monotonic()
        sink.send_signal(signal.SIGTERM)
        assert sink.wait(20) == 0 and time.monotonic() - begun < config.stop_s
        assert committed(kafka.bootstrap, prefix + "sink") == {}
        fault.times = 0
    with running(config_of(kafka.bootstrap, prefix, clickhouse().url(database))):
        until(lambda: count(store, "gpus") == 800 and behind(kafka, prefix) == 0)


def test_two_sinks_share_the_work_and_one_takes_over(kafka: Broker, prefix: str, store: Store, database: str) -> None:
    topics(kafka.bootstrap, prefix, 4)
    made = fleet(400, nodes=20)
    config = config_of(kafka.bootstrap, prefix, clickhouse().url(database), batch_rows=300)
    produce(kafka.bootstrap, prefix + "gpu", made[:200])
    with running(config):
        until(lambda: count(store, "gpus") > 0)
        with running(config):
            produce(kafka.bootstrap, prefix + "gpu", made[200:300])
            until(lambda: count(store, "gpus") == 300 * 40)
        produce(kafka.bootstrap, prefix + "gpu", made[300:])
        until(lambda: count(store, "gpus") == 400 * 40 and behind(kafka, prefix) == 0)
    assert store.query("SELECT sum(samples) FROM usage_days").rows == [(16_000,)]


def test_a_broker_that_is_away_is_waited_for(broker: Broker, prefix: str, store: Store, database: str) -> None:
    topics(broker.bootstrap, prefix, 1)
    broker.term()
    with running(config_of(broker.bootstrap, prefix, clickhouse().url(database))) as sink:
        until(lambda: sink.health.told()["status"] == "degraded")
        assert "Kafka does not answer" in sink.health.told()["reason"]
        broker.start()
        send(broker, prefix + "run", message(epoch("r", 1)))
        until(lambda: count(store, "epochs") == 1)
        assert sink.health.told()["status"] == "ok"
        broker.restart()
        send(broker, prefix + "run", message(epoch("r", 2)))
        until(lambda: count(store, "epochs") == 2 and behind(broker, prefix) == 0)


def test_missing_topics_and_tables_are_one_sentence(kafka: Broker, prefix: str, database: str, tmp_path: Path) -> None:
    config = config_of(kafka.bootstrap, prefix, clickhouse().url(database))
    with pytest.raises(Unavailable, match="yolometer topics ensure"), running(config) as sink:
        sink.ended()
    process = started(config, tmp_path)
    assert process.wait(30) == 1
    said = (tmp_path / "sink.log").read_text()
    assert f"Kafka has no topic {prefix}dead" in said and "Traceback" not in said
    unmade = config_of(kafka.bootstrap, prefix, clickhouse().url(database + "_unmade"), migrate=False)
    with pytest.raises(BadStore, match="sql migrate"), running(unmade) as sink:
        sink.ended()


def test_numbers_are_told(kafka: Broker, prefix: str, store: Store, database: str) -> None:
    topics(kafka.bootstrap, prefix, 1)
    send(kafka, prefix + "gpu", message(gpu()), GARBAGE)
    with running(config_of(kafka.bootstrap, prefix, clickhouse().url(database))) as sink:
        until(lambda: count(store, "dead_letters") == 1 and behind(kafka, prefix) == 0)
        until(lambda: f'lag{{partition="0",topic="{prefix}gpu"}} 0.0' in sink.metrics.rendered("")[0].decode(), 15)
        told = sink.metrics.rendered("")[0].decode()
    assert 'yolometer_sink_dead_letters_total{reason="garbage"} 1.0' in told
    assert "yolometer_sink_batch_rows_sum 7.0" in told  # six samples, and the dead letter as it came back
    assert json.dumps(sink.health.told())
