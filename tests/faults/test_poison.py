"""Poison in `fact` and `gpu`: put aside once with its reason, its neighbours unharmed; and too much of it stops the workers."""

from __future__ import annotations

import math
import struct
import time
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgpack
import pytest
from _kafka import committed, produce
from _ledger import check, place
from _site import PARTITIONS, Site, site_in

from yolometer_core import wire
from yolometer_core.events import Evaluation, Event
from yolometer_core.gpu import Gpu, packed

pytestmark = pytest.mark.timeout(200)
NOW = datetime.now(UTC)
HUGE = 2**63  # more than a column holds


def samples(power_w: list[float], **said: Any) -> Gpu:
    fields = {
        "ts": NOW - timedelta(minutes=2), "node": "poison", "source": "meter", "seq": 1, "period_s": 1.0,
        "offsets_ms": tuple(1000 * at for at in range(len(power_w))), "gpu_uuid": ("GPU-x",), "gpu_model": (None,),
        "run_id": (None,), "user": (None,), "team": (None,), "attribution_source": (None,),
        "columns": packed({"power_w": power_w}),
    }  # fmt: skip
    return Gpu(**(fields | said))


def message(*events: Event, **changes: Any) -> bytes:
    """A message of no lane: it is nobody's number that is missing."""
    raw = wire.message([wire.pack(event) for event in events], node="poison", at_ms=int(NOW.timestamp() * 1000))
    changed: bytes = msgpack.packb({**msgpack.unpackb(raw), **changes})
    return changed


def evaluation(**said: Any) -> list[Any]:
    """An evaluation as it travels, with fields that no event can have."""
    good = Evaluation(ts=NOW, node="poison", source="log", seq=1, place="poison:/x", epoch=1, map50=0.5, session=0, exact=True)
    kind, fields = msgpack.unpackb(wire.pack(good))
    return [kind, {**fields, **said}]


def poison(topic: str) -> list[tuple[bytes | None, bytes | None, str]]:
    """Keys, values, and the reason with which each is refused."""
    key = b"poison" if topic == "gpu" else b"poison:/x"
    good = samples([100.0])
    common: list[tuple[bytes | None, bytes | None, str]] = [
        (key, None, "tombstone"),
        (key, b"", "garbage"),
        (key, b"\xc1 no message", "garbage"),
        (key, message(good, v=[9, 0]), "version"),
        (key, message(good, events=[]), "empty"),
        (key, message(good, events=[["what", {}]]), "type"),
    ]  # fmt: skip
    if topic == "gpu":
        infinite = struct.pack("<f", math.inf)
        fields = msgpack.unpackb(wire.pack(good))[1]
        return [
            *common,
            (key, message(good, events=[["gpu", {**fields, "ts": 2**62}]]), "field"),
            (key, message(good, events=[["gpu", {**fields, "period_s": -1.0}]]), "field"),
            (key, message(good, events=[["gpu", {**fields, "columns": {"power_w": infinite}}]]), "store"),
        ]
    return [
        *common,
        (key, message(good, events=[evaluation(val_s=math.nan)]), "field"),
        (key, message(good, events=[evaluation(session=-1)]), "field"),
        (key, message(good, events=[evaluation(epoch=-1)]), "field"),
        (key, message(good, events=[evaluation(map50=-0.5)]), "field"),
        (key, message(good, events=[evaluation(epoch=HUGE)]), "field"),
    ]


def give(site: Site, topic: str) -> Counter[str]:
    """All poison of a topic; the reasons."""
    sent = poison(topic)
    produce(site.fleet.broker.bootstrap, site.fleet.prefix + topic, [(key, value) for key, value, _ in sent])
    return Counter(f"{topic} {reason}" for _, _, reason in sent)


def test_poison_anywhere_is_put_aside_and_everywhere_stops_the_workers(tmp_path: Path) -> None:
    with site_in(tmp_path) as site:
        for service in site.services[1:]:
            # so little else is there that poison is most of it; the limit of 50 in a row stays
            service.settings |= {"dead_ratio": 1.0}
        expected = give(site, "fact") + give(site, "gpu")
        site.start()
        place(site.runs, "good", "yolov8n-early-stop")
        site.until(lambda: len(site.fleet.records("fact")) > len(poison("fact")))
        expected += give(site, "fact") + give(site, "gpu")
        place(site.runs, "better", "yolo11n-nan")
        time.sleep(2)
        site.drain()
        expected += give(site, "fact") + give(site, "gpu")
        site.drain()
        letters(site, expected)
        check(site)
        everywhere(site)


def letters(site: Site, expected: Counter[str]) -> None:
    """Each is a dead letter of each of the services that read it, once."""
    store = site.fleet.store()
    rows = store.query("SELECT from_topic, reason, count(), uniqExact(from_partition, from_offset, `index`) "
                       "FROM dead_letters GROUP BY from_topic, reason").rows  # fmt: skip
    found = Counter({f"{topic.removeprefix(site.fleet.prefix)} {reason}": each for topic, reason, _, each in rows})
    assert found == expected
    assert all(count == each for _, _, count, each in rows), f"twice: {rows}"
    assert not store.query("SELECT count() FROM gpus WHERE node = 'poison'").rows[0][0]
    assert not store.query("SELECT count() FROM evaluations WHERE node = 'poison'").rows[0][0]


def everywhere(site: Site) -> None:
    """Nothing but poison: stream and sink stop, say why, and have moved past none of it."""
    fleet = site.fleet
    before = {name: committed(fleet.broker.bootstrap, fleet.prefix + name) for name in ("stream", "sink")}
    dead = len(fleet.records("dead"))
    for topic in ("fact", "gpu"):
        for partition in range(PARTITIONS):
            produce(fleet.broker.bootstrap, fleet.prefix + topic, [(b"k", b"not for this version")] * 120, partition)
    for service in (site.streams[0], site.sink):
        assert service.ended(40) == 1, service.said()[-2000:]
        last = service.sentences()[-1]
        assert "could not be understood" in last and "roll this version back" in last
        assert "Traceback" not in service.said()
    for name, offsets in before.items():
        moved = committed(fleet.broker.bootstrap, fleet.prefix + name)
        past = {part: moved[part] - offsets.get(part, 0) for part in moved if part[0] in ("t.fact", "t.gpu")}
        assert max(past.values()) < 120, f"{name} ate the stream: {past}"
    assert len(fleet.records("dead")) - dead <= 60
