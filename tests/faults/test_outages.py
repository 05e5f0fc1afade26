"""What a fleet depends on goes away, stands still, comes back empty, or refuses: it recovers, or says in one sentence why not."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import _clickhouse_server as clickhouse
import pytest
from _kafka import KafkaAdminClient, committed
from _ledger import audit, check, place
from _site import SOAK, Service, Site, site_in
from kafka.admin import ConfigResource, ConfigResourceType

pytestmark = pytest.mark.timeout(400)
SHORT = ("yolov8n-early-stop", "yolov5n", "yolov7-tiny", "yolo11n-nan", "yolo11n-killed-and-resumed")
STOP_S = {"agent": 10.0, "stream": 8.0, "sink": 8.0}
SESSION_S = 3.0
STANDS_S = 150.0 if SOAK else 42.0
"""Longer than any client waits for an answer (40 s), so that all they have sent has expired."""


@contextmanager
def site_of(folder: Path, **more: Any) -> Iterator[Site]:
    """A site whose services stop as fast as they can; agent and sink show nobody a traceback of their own."""
    with site_in(folder, **more) as site:
        for service in site.services[1:]:
            service.settings |= {"stop_s": STOP_S[service.kind]}
        yield site
        said = site.agent.said() + site.sink.said()  # the client of Kafka logs tracebacks, and those are not through our files
        assert "/yolometer_agent/" not in said and "/yolometer_sinks/" not in said, site.tell()


def arrives(site: Site, name: str, seconds: float = 40.0) -> None:
    """Wait until a training has its run and its epochs in the store."""
    store = site.fleet.store()  # of now: a server that was started again has another port
    sql = "SELECT count() FROM epochs WHERE run_id IN (SELECT run_id FROM runs WHERE endsWith(place, {place:String}))"
    site.until(lambda: store.query(sql, {"place": f"/runs/{name}"}).rows[0][0], seconds)


def stop_each(site: Site, *, again: bool = True) -> None:
    """SIGTERM to all of them: each ends within its time."""
    began = time.monotonic()
    for service in site.services:
        assert service.is_up, site.tell()
        service.send(signal.SIGTERM)
    took_s: dict[str, float] = {}
    while len(took_s) < len(site.services):
        for service in site.services:
            if service.name not in took_s and not service.is_up:
                took_s[service.name] = time.monotonic() - began
        assert time.monotonic() - began < 20, site.tell()
        time.sleep(0.02)
    for service in site.services:
        code = service.ended(1)
        assert code in (0, 75), f"{service.name} ended with {code}: {service.said()[-2000:]}"
        assert took_s[service.name] < STOP_S[service.kind] + 1.5, took_s  # its own limit, and some of a busy machine
    if again:
        site.start()


def stands_still(what: Any, seconds: float, meanwhile: Callable[[], object] = lambda: None) -> None:
    """SIGSTOP for some seconds, then SIGCONT."""
    began = time.monotonic()
    what.send(signal.SIGSTOP) if isinstance(what, Service) else what.pause()
    meanwhile()
    time.sleep(max(0.0, seconds - (time.monotonic() - began)))
    what.send(signal.SIGCONT) if isinstance(what, Service) else what.resume()


def is_whole(site: Site, **more: Any) -> None:
    """The ledger holds, and the audit finds nothing missing but samples of the time in which no agent ran."""
    site.drain(90)
    check(site, **more)
    site.until(lambda: site.fleet.store().query("SELECT count() FROM dirty_windows").rows[0][0] == 0)
    _, checks = audit(site)
    assert {name for name, each in checks.items() if each["missing"]} <= {"samples"}


def test_kafka_away_and_standing_still(tmp_path: Path) -> None:
    with site_of(tmp_path) as site:
        broker = site.fleet.broker
        broker.term()
        site.start()
        place(site.runs, "early", SHORT[0])
        for service, said in ((site.agent, "No broker"), (site.streams[0], "Waiting for Kafka"), (site.sink, "Waiting")):
            site.until(lambda said=said, service=service: said in service.said())
        stop_each(site)
        broker.start()
        arrives(site, "early")
        # past the session time-out of the groups, first the broker, then each service
        stands_still(broker, 2 * SESSION_S, lambda: place(site.runs, "still", SHORT[1]))
        for service in (site.streams[0], site.sink, site.agent):
            stands_still(service, 2 * SESSION_S)
        arrives(site, "still")
        # past all time-outs of requests and deliveries
        stands_still(broker, STANDS_S, lambda: place(site.runs, "long", SHORT[2]))
        arrives(site, "long")
        broker.pause()
        place(site.runs, "stopped", SHORT[3])
        time.sleep(1)
        stop_each(site)
        broker.resume()
        arrives(site, "stopped")
        broker.kill()
        place(site.runs, "killed", SHORT[4])
        broker.start()
        arrives(site, "killed")
        is_whole(site)


def test_kafka_back_empty_and_topics_changed(tmp_path: Path) -> None:
    with site_of(tmp_path) as site:
        fleet = site.fleet
        site.start()
        place(site.runs, "before", SHORT[0])
        arrives(site, "before")
        site.drain()
        site.start()
        fleet.broker.wipe(new_cluster=True)
        fleet.broker.start()
        place(site.runs, "empty", SHORT[1])
        site.until(lambda: "yolometer topics ensure" in site.agent.said())
        fleet.ensure_topics()
        arrives(site, "empty", 90)
        with admin(site) as kafka:
            kafka.delete_topics([f"{fleet.prefix}gpu"])
        site.until(lambda: any("Kafka has no topic t.gpu" in said for said in site.sink.sentences()), 60)
        place(site.runs, "missing", SHORT[2])
        fleet.ensure_topics()
        arrives(site, "missing", 90)
        site.drain(90)
        more_partitions(site)
        is_whole(site, whole_topics=False)


def more_partitions(site: Site) -> None:
    """One topic more than the others: the workers say what to do, and when it is done they go on."""
    stream, fleet = site.streams[0], site.fleet
    said = len(stream.sentences())
    with admin(site) as kafka:
        kafka.create_partitions({f"{fleet.prefix}fact": 2 * fleet.partitions})
    stream.kill()
    place(site.runs, "more", SHORT[3])
    site.start()
    site.until(lambda: any("they must be the same" in each for each in stream.sentences()[said:]), 60)
    stream.process, fleet.partitions = None, 2 * fleet.partitions
    with admin(site) as kafka:
        others = {one["name"]: fleet.partitions for one in kafka.describe_topics()
                  if one["name"].startswith(fleet.prefix) and len(one["partitions"]) < fleet.partitions}  # fmt: skip
        others.pop(fleet.changelog)
        kafka.create_partitions(others)
        kafka.delete_topics([fleet.changelog])
    site.until(lambda: ensured(site))
    site.start()
    arrives(site, "more", 60)


def ensured(site: Site) -> bool:
    try:
        site.fleet.ensure_topics()
    except AssertionError:
        return False
    return True


@contextmanager
def admin(site: Site) -> Iterator[KafkaAdminClient]:
    with KafkaAdminClient(bootstrap_servers=site.fleet.broker.bootstrap) as client:
        yield client


def test_too_large_and_without_a_codec(tmp_path: Path) -> None:
    with site_of(tmp_path) as site:
        fleet = site.fleet
        site.start()
        place(site.runs, "whole", SHORT[0])
        arrives(site, "whole")
        limit(site, "600")
        place(site.runs, "large", SHORT[1])
        site.until(lambda: "is larger than its topic takes" in site.agent.said())
        limit(site, "1048588")
        place(site.runs, "after", SHORT[2])
        arrives(site, "after")
        site.drain()
        store = fleet.store()
        lost = store.query("SELECT sum(messages), groupUniqArray(reason) FROM losses").rows[0]
        assert lost[0] > 0 and lost[1] == ["too_large"]
        _, checks = audit(site)
        assert [row["lost"] for row in checks["messages"]["rows"] if row["source"] == "fact"] == [lost[0]]
        assert checks["messages"]["missing"] == 0, checks["messages"]
        assert site.sink.term(STOP_S["sink"] + 2) == 0
        place(site.runs, "packed", SHORT[3])  # for there must be something to unpack
        site.drain_agent()
        for kind, hidden in (("stream", "zstandard"), ("stream", "cramjam"), ("sink", "zstandard"), ("agent", "zstandard")):
            without(site, kind, hidden)


def limit(site: Site, size_bytes: str) -> None:
    with admin(site) as kafka:
        found = ConfigResource(ConfigResourceType.TOPIC, f"{site.fleet.prefix}fact", configs={"max.message.bytes": size_bytes})
        kafka.alter_configs([found])


def without(site: Site, kind: str, module: str) -> None:
    """A service whose environment lacks a library says so, and moves nothing on."""
    service = next(each for each in site.services if each.kind == kind)
    if service.is_up:
        service.term(STOP_S[kind] + 2)
    stubs = site.fleet.folder / f"without-{module}"
    (stubs / module).mkdir(parents=True, exist_ok=True)
    (stubs / module / "__init__.py").write_text(f"raise ModuleNotFoundError(name={module!r})\n")
    group = f"{site.fleet.prefix}{kind}"
    before = committed(site.fleet.broker.bootstrap, group)
    command = [str(Path(sys.executable).with_name("yolometer")), kind, "--config", str(site.fleet.settings(service.name))]
    done = subprocess.run(command, env={"PYTHONPATH": str(stubs), "PATH": "/usr/bin:/bin", "HOME": str(stubs)}, timeout=40,
                          capture_output=True, text=True, check=False)  # fmt: skip
    said = [line for line in done.stderr.splitlines() if line.startswith("yolometer: ")]
    assert done.returncode in (1, 2) and len(said) == 1, f"{kind} without {module}: {done.returncode} {done.stderr[-3000:]}"
    assert "Traceback" not in done.stderr, done.stderr[-3000:]
    assert committed(site.fleet.broker.bootstrap, group) == before


def test_clickhouse_away_slow_and_refusing(tmp_path: Path) -> None:
    with site_of(tmp_path, proxy=True) as site:
        fleet, proxy = site.fleet, site.proxy
        assert proxy is not None
        down(site)
        site.start()
        place(site.runs, "away", SHORT[0])
        site.until(lambda: "Waiting" in site.sink.said())
        began = time.monotonic()
        assert site.sink.term(STOP_S["sink"] + 2) == 0
        assert time.monotonic() - began < STOP_S["sink"]
        site.start()
        up(site)
        arrives(site, "away")
        down(site)
        place(site.runs, "killed", SHORT[1])
        time.sleep(2)
        up(site)
        arrives(site, "killed")
        for kind, times in (("slow", 6), ("late", 3), ("status", 3), ("reset_after", 3), ("cut", 3)):
            proxy.fault(kind, times=times, seconds=1.5)
        place(site.runs, "slow", SHORT[2])
        arrives(site, "slow", 60)
        store = fleet.store()
        store.command("SYSTEM STOP MERGES progress")
        low = "parts_to_throw_insert = 1, parts_to_delay_insert = 1, inactive_parts_to_throw_insert = 1"
        store.command(f"ALTER TABLE progress MODIFY SETTING {low}")
        before = len(site.sink.said())
        place(site.runs, "parts", SHORT[3])
        site.until(lambda: "Waiting" in site.sink.said()[before:])
        began = time.monotonic()
        assert site.sink.term(STOP_S["sink"] + 2) == 0
        assert time.monotonic() - began < STOP_S["sink"]
        store.command(f"ALTER TABLE progress RESET SETTING {low.replace(' = 1', '')}")
        store.command("SYSTEM START MERGES progress")
        read_only(site)
        site.start()
        arrives(site, "parts")
        is_whole(site)


def read_only(site: Site) -> None:
    """A user who may only read: the sink says which right is missing and waits for it; nothing is committed."""
    place(site.runs, "reader", SHORT[4])
    group = f"{site.fleet.prefix}sink"
    before = committed(site.fleet.broker.bootstrap, group)
    for settings in ({}, {"migrate": False}):
        said = len(site.sink.said())
        site.sink.start(store=site.fleet.store_url.replace("app@", "reader@"), **settings)
        site.until(lambda said=said: "lacks a grant" in site.sink.said()[said:])
        assert site.sink.term(STOP_S["sink"] + 2) == 0
    assert committed(site.fleet.broker.bootstrap, group) == before


def down(site: Site) -> None:
    site.fleet.clickhouse.process.kill()
    site.fleet.clickhouse.process.wait()


def up(site: Site) -> None:
    """The same server on the same data again, at another port, behind the proxy."""
    assert site.proxy is not None
    site.fleet.clickhouse = clickhouse.start(site.fleet.clickhouse.folder)
    site.proxy.server_port_behind = site.fleet.clickhouse.port
