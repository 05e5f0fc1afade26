"""Workers as real processes on a real Kafka: nothing lost, the state exact, whatever happens to them."""

from __future__ import annotations

import asyncio
import json
import random
import signal
import time
from collections import deque
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from _clickhouse_server import fresh, running
from _kafka import Broker, committed, read_all
from _replayed import facts_of
from _worker import AT_MS, Fleet, Message, broken, fleet_on, get, gpu_event, messages_of, stop
from kafka import KafkaAdminClient
from laws import rows

from yolometer.box import operators
from yolometer_core import wire
from yolometer_core.delivery import Coverage, DeadLetter
from yolometer_core.errors import StoreUnavailable
from yolometer_core.events import Event, Fact, Run
from yolometer_core.service.health import Health
from yolometer_core.service.limits import DeadLimit
from yolometer_core.service.metrics import Metrics
from yolometer_core.service.stopping import Stop
from yolometer_stream import batches as module
from yolometer_stream.advance import States
from yolometer_stream.batches import Batches, Services
from yolometer_stream.config import StreamConfig
from yolometer_stream.handle import Output
from yolometer_stream.journal import Journal, Record
from yolometer_stream.partitions import Partitions, Taken
from yolometer_stream.runs.rows import Terms

CAPTURES = Path(__file__).parents[2] / "app/yolometer/captures"
OPERATORS = operators(Terms())
NODES = 6


@cache
def some_facts() -> tuple[Fact, ...]:
    names = ("yolov8n-early-stop", "yolo11n-killed-and-resumed", "yolov5n", "yolo11n-nan")
    return tuple(fact for name in names for said in facts_of(CAPTURES / name).values() for fact in said)


@cache
def some_messages() -> tuple[Message, ...]:
    """Facts of some trainings and samples of some nodes, mixed, in order within a key."""
    facts = messages_of(some_facts(), 5)
    samples = [messages_of([gpu_event(f"n{node}", seq) for seq in range(60)]) for node in range(NODES)]
    turns = [0] * len(facts) + [n + 1 for n in range(NODES) for _ in range(60)]
    random.Random(4).shuffle(turns)
    rest = [iter(facts), *map(iter, samples)]
    return tuple(next(rest[turn]) for turn in turns)

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def in_process(messages: Sequence[Message]) -> tuple[dict[str, Any], dict[tuple[str, str], Any], list[Event]]:
    """Final rows, the states by name, and the dead letters: what workers must come to as well."""
    work = Partitions(OPERATORS, DeadLimit())
    work.begin([0], 1)
    waiting, said = deque(messages), list[Event]()
    while waiting:
        topic, key, value = waiting.popleft()
        for output in work.take(Taken(topic, 0, 0, AT_MS, key, value)):
            said += wire.read(output.value).events
            if output.topic == "rate":
                waiting.append((output.topic, output.key, output.value))
    work.save()
    states = {name: plain(work.journal(0).bundle(name)) for name in work.journal(0)._records}
    letters: list[Event] = [event for event in said if isinstance(event, DeadLetter)]
    return rows(event for event in said if not isinstance(event, DeadLetter)), states, letters


def plain(bundle: Any) -> Any:
    """A state as the journal writes it, without the counts of what came twice."""
    found = json.loads(json.dumps(bundle))
    for ring in found.get("rate", {}).values():
        ring["ring"].pop("duplicates", None)
    return found


def saved(fleet: Fleet) -> dict[tuple[str, str], Any]:
    """The states as the changelog has them, all partitions together; no name lies in two of them."""
    journals = [Journal(OPERATORS) for _ in range(fleet.partitions)]
    for partition, _, key, value in read_all(fleet.bootstrap, fleet.changelog):
        assert key is not None
        journals[partition].apply(key, value)
    found: dict[tuple[str, str], Any] = {}
    for journal in journals:
        journal.begin(10**6)
        for name in journal._records:
            assert name not in found
            found[name] = plain(journal.bundle(name))
    return found


def is_exact(fleet: Fleet, messages: Sequence[Message]) -> None:
    """The rows and the states are those of a run without any accident."""
    final, states, _ = in_process(messages)
    assert rows([*fleet.events("run"), *fleet.events("rate")]) == final
    found = saved(fleet)
    assert found.keys() == states.keys()
    for name, state in states.items():
        assert found[name] == state, name


@pytest.fixture
def fleet(kafka: Broker, prefix: str, tmp_path: Path) -> Iterator[Fleet]:
    with fleet_on(kafka.bootstrap, prefix, tmp_path) as found:
        found.topics()
        yield found


def test_a_worker_says_what_the_operators_say_in_one_process(fleet: Fleet) -> None:
    worker = fleet.start(metrics_port=0, log_json=True)
    fleet.give(some_messages())
    fleet.settle()
    url = next(line["url"] for line in map(json.loads, fleet.said(worker).splitlines()) if "url" in line)
    assert get(f"{url}/healthz")["status"] == "ok"
    assert "chdb" not in Path(f"/proc/{worker.pid}/maps").read_text(), "a worker must not carry the embedded store"
    began = time.monotonic()
    assert stop(worker) == 0
    assert time.monotonic() - began < 5
    is_exact(fleet, some_messages())
    assert any(isinstance(event, Coverage) for event in fleet.events("rate"))
    assert not fleet.events("dead")


def test_kills_at_any_time_lose_nothing(fleet: Fleet) -> None:
    chance, messages = random.Random(), list(some_messages())
    pieces = [messages[at : at + len(messages) // 4 + 1] for at in range(0, len(messages), len(messages) // 4 + 1)]
    for piece in pieces:
        worker = fleet.start(session_timeout_s=1.5)
        fleet.give(piece[: len(piece) // 2])
        deadline = time.monotonic() + 20
        while not fleet.moved(piece) and time.monotonic() < deadline:
            time.sleep(0.02)
        fleet.give(piece[len(piece) // 2 :])
        time.sleep(chance.uniform(0, 0.8))
        worker.kill()
        worker.wait()
    worker = fleet.start()
    fleet.settle()
    is_exact(fleet, messages)
    assert stop(worker) == 0


def test_workers_come_and_go_and_one_wakes_up_too_late(fleet: Fleet) -> None:
    messages = list(some_messages())
    quarter = len(messages) // 4 + 1
    first = fleet.start()
    fleet.give(messages[:quarter])
    fleet.settle()
    second = fleet.start()
    time.sleep(1.5)
    fleet.give(messages[quarter : 2 * quarter])
    fleet.settle()
    fleet.give(messages[2 * quarter : 3 * quarter])
    first.send_signal(signal.SIGSTOP)  # longer than the session: the second one takes over
    fleet.settle()
    first.send_signal(signal.SIGCONT)
    fleet.give(messages[3 * quarter :])
    fleet.settle()
    assert first.poll() in (None, 70), fleet.said(first)
    assert stop(second) == 0
    is_exact(fleet, messages)


def test_poison_is_kept_and_harms_nothing_beside_it(fleet: Fleet) -> None:
    good = list(some_messages())
    other = messages_of([gpu_event("n0", 99)])[0][2]
    assert other is not None
    poison: list[Message] = [
        ("gpu", b"n0", None),
        ("gpu", b"n0", b""),
        ("gpu", b"n0", b"\xc1garbage"),
        ("gpu", None, other),
        ("gpu", b"\xff\xfe", other),
        ("gpu", b"n1", other),
        ("fact", b"n0", other),
        ("gpu", b"n0", broken(other, v=[9, 0])),
        ("gpu", b"n0", broken(other, events=[])),
        ("gpu", b"n0", broken(other, events=[["gpu", {"ts": 2**62}], 7])),
    ]
    messages = [*poison, *good[:200], *poison, *good[200:], *poison]
    worker = fleet.start()
    fleet.give(messages)
    fleet.settle()
    assert stop(worker) == 0
    is_exact(fleet, good)
    letters = fleet.events("dead")
    expected = in_process(messages)[2]
    assert sorted((e.reason, e.index, e.raw) for e in letters) == sorted((e.reason, e.index, e.raw) for e in expected)  # type: ignore[attr-defined]
    assert len({letter.event_id for letter in letters}) == 33, "each has a place of its own, also when the bytes are the same"


def test_a_lost_changelog_is_made_again_from_the_store(fleet: Fleet) -> None:
    store = fresh("clickhouse")
    try:
        store.migrate()
        database = str(store.query("SELECT currentDatabase()").rows[0][0])
        facts = messages_of(some_facts())
        early = [message for message in facts if message[1] == facts[0][1]][:-12]
        late = [message for message in facts if message[1] == facts[0][1]][-12:]
        worker = fleet.start(store=running().url(database))
        fleet.give(early)
        fleet.settle()
        assert stop(worker) == 0
        kept = [event for _, _, raw in early for event in wire.read(raw).events if event.is_row]
        said = [event for event in fleet.events("run") if event.is_row]
        store.write([*kept, *said, *[event for event in fleet.events("rate") if event.is_row and event.table == "rate"]])
        ghost = next(event for event in said if isinstance(event, Run)).model_copy(update={"run_id": "ghost-1", "version": 1})
        store.write([ghost])
        with KafkaAdminClient(bootstrap_servers=fleet.bootstrap) as admin:
            admin.delete_topics([fleet.changelog])
            done = admin.list_group_offsets(f"{fleet.prefix}stream")[f"{fleet.prefix}stream"]
            part = next(part for part in done if part.topic == f"{fleet.prefix}fact" and done[part].offset > 0)
            admin.alter_group_offsets(f"{fleet.prefix}sink", {part: done[part]._replace(offset=done[part].offset - 1)})
        fleet.topics(names=())
        worker = fleet.start(store=running().url(database), metrics_port=0, log_json=True)
        fleet.give(late)
        fleet.until(worker, "does not hold all facts yet")
        with KafkaAdminClient(bootstrap_servers=fleet.bootstrap) as admin:
            admin.alter_group_offsets(f"{fleet.prefix}sink", {part: done[part]})
        fleet.settle()
        url = next(line["url"] for line in map(json.loads, fleet.said(worker).splitlines()) if "url" in line)
        assert get(f"{url}/healthz")["status"] == "cold"
        assert stop(worker) == 0
    finally:
        store.close()
    final = in_process([*early, *late])[0]
    found = rows(fleet.events("run"))
    assert found[ghost.event_id]["is_deleted"], "a row that does not follow from the facts is taken back"
    for name, row in final.items():
        if row.get("run_id") and "window_s" not in row:
            assert in_ms(found[name]) == in_ms(row)


def in_ms(row: dict[str, Any]) -> dict[str, Any]:
    """A row with its times as a store keeps them: whole milliseconds, rounded half up.

    Without `ts`, the time of the last fact: what an epoch told of itself before it was whole is in no table.
    """
    row = {name: value for name, value in row.items() if name != "ts"}
    since_us = {name: (value - EPOCH) // timedelta(microseconds=1) for name, value in row.items() if isinstance(value, datetime)}
    return row | {name: (value + 500) // 1000 for name, value in since_us.items()}


def test_a_store_that_is_away_is_waited_for_with_nothing_acknowledged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "STORE_RETRY_S", (0.01, 0.01))
    away = [StoreUnavailable("The store is away; start it.")] * 3
    health = Health("stream", stuck_after_s=60)
    told, kept = [], []

    def rebuild(topic: str, key: str, partition: int, offset: int) -> States | None:
        told.append(health.told()["status"])
        if away:
            raise away.pop()
        return {"coverage": {"n0": {"sources": {}, "rebuilt": True}}}

    class Kept:
        async def outputs(self, records: Sequence[Output]) -> None:
            kept.append("outputs")

        async def records(self, partition: int, records: Sequence[Record]) -> None:
            kept.append("records")

    services = Services(health, Metrics("stream"), Stop())
    batches = Batches(StreamConfig(), OPERATORS, services, rebuild, producing=Kept(), went_on=lambda partition: True)
    batches.partitions.begin([0], 3)
    message = messages_of([gpu_event("n0", 0)])[0]
    asyncio.run(batches.take([Taken("gpu", 0, 7, AT_MS, b"n0", message[2])]))
    assert told[1:] == ["degraded"] * 3
    assert kept == ["outputs", "records"], "what follows is out before the state knows it"
    assert batches.partitions.journal(0).bundle(("gpu", "n0"))["coverage"]["n0"]["rebuilt"]  # type: ignore[index]
    assert health.told()["status"] == "cold"


def test_a_version_that_refuses_everything_stops(fleet: Fleet) -> None:
    fleet.give([("gpu", b"n0", b"not for this version")] * 60)
    worker = fleet.start()
    assert worker.wait(30) == 1
    last = fleet.said(worker).splitlines()[-1]
    assert last.startswith("yolometer: ") and "could not be understood" in last and "roll this version back" in last
    assert not any(topic.endswith("gpu") for topic, _ in committed(fleet.bootstrap, f"{fleet.prefix}stream"))


def test_what_is_wrong_with_the_topics_is_said_in_one_sentence(kafka: Broker, prefix: str, tmp_path: Path) -> None:
    with fleet_on(kafka.bootstrap, prefix, tmp_path) as fleet:
        fleet.topics(names=("fact", "rate", "run"), state=False)
        worker = fleet.start()
        assert worker.wait(30) == 1
        missing = f"{prefix}dead, {prefix}gpu, {fleet.changelog}"
        sentence = f"yolometer: Kafka has no topic {missing}; create what is missing with `yolometer topics ensure`."
        assert fleet.said(worker).splitlines() == [sentence]
        fleet.topics(names=("dead", "gpu"), state=False)
        fleet.partitions = 3
        fleet.topics(names=())
        worker = fleet.start()
        assert worker.wait(30) == 1
        assert "has 3 partitions" in fleet.said(worker) and len(fleet.said(worker).splitlines()) == 1


def test_a_broker_that_is_away_is_waited_for_and_a_stop_never_hangs(broker: Broker, tmp_path: Path) -> None:
    with fleet_on(broker.bootstrap, "t.", tmp_path) as fleet:
        fleet.topics()
        fleet.give(some_messages()[:100])
        broker.term()
        waiting, leaving = fleet.start(), fleet.start()
        for worker in (waiting, leaving):
            fleet.until(worker, "Waiting for Kafka")
        assert stop(leaving, 10) == 0
        assert "Traceback" not in fleet.said(waiting) + fleet.said(leaving)
        broker.start()
        fleet.settle()
        stubborn = fleet.start(stop_s=3, metrics_port=0)
        fleet.until(stubborn, "Numbers and health")
        time.sleep(2)
        broker.pause()
        began = time.monotonic()
        assert stop(stubborn, 15) in (0, 75)
        assert time.monotonic() - began < 8
        broker.resume()
