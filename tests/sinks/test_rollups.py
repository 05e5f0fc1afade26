"""Rollups: what a run used is what its samples say, however often, late or corrected they came."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from _samples import HOUR_AGO, full_gpu, gpu

from yolometer_core.errors import BadUsage
from yolometer_sinks import rollups
from yolometer_sinks.collect import minutes_of
from yolometer_sinks.stores._base import Store

VIEWS = {"usage_minutes": "toStartOfMinute", "usage_hours": "toStartOfHour", "usage_days": "toStartOfDay"}


def said(store: Store, *events: Any) -> None:
    store.write(events)
    rollups.touch(store, 60, minutes_of(events))


def wrong(store: Store) -> list[Any]:
    """Where the rollups and the samples differ."""
    found = []
    for view, start in VIEWS.items():
        both = store.query(
            f"SELECT * FROM (SELECT toDateTime({start}(ts), 'UTC') AS w, node, gpu_uuid, run_id, team, count() AS n, "
            "sum(period_s) AS s, sum(power_w * period_s) AS j, sum(gpu_util_ratio) AS u, max(power_w) AS p, "
            f"max(memory_used_bytes) AS m, groupBitOr(clock_event_reasons) AS c FROM gpus GROUP BY ALL) AS a "
            f"FULL JOIN {view} AS b ON a.w = b.ts AND a.node = b.node AND a.gpu_uuid = b.gpu_uuid "
            "AND ifNull(a.run_id, '') = ifNull(b.run_id, '') "
            "AND ifNull(a.team, '') = ifNull(b.team, '') WHERE NOT (n = samples AND s = gpu_seconds AND p <=> power_w_max "
            "AND m <=> memory_used_bytes_max AND c <=> b.clock_event_reasons AND abs(ifNull(j, 0) - ifNull(energy_j, 0)) < 1e-6 "
            "AND abs(ifNull(u, 0) - ifNull(gpu_util_ratio_sum, 0)) < 1e-6)"
        )
        found += both.rows
    return found


def test_they_say_what_the_samples_say(store: Store) -> None:
    drawn = random.Random(1)
    events = [full_gpu(f"n{at % 3}", drawn.randrange(3_500), at, gpus=2) for at in range(90)]
    for at in range(0, 90, 30):
        said(store, *events[at : at + 30], gpu("idle", 30 * at, run=None, columns={"power_w": [None] * 6}))
        rollups.step(store)
    assert wrong(store) == []
    assert store.query("SELECT sum(samples), sum(energy_j) FROM usage_days WHERE node = 'idle'").rows == [(18, None)]
    assert rollups.step(store) == 0
    said(store, *events)  # all of it again
    assert rollups.step(store) > 40 and wrong(store) == []


def test_a_corrected_attribution_leaves_nothing_behind(store: Store) -> None:
    said(store, gpu(run="wrong", times=5), gpu("other", times=5))
    rollups.step(store)
    said(store, gpu(run="right", times=5))
    rollups.step(store)
    for view in VIEWS:
        assert store.query(f"SELECT run_id, sum(samples) FROM {view} GROUP BY 1 ORDER BY 1").rows == [("r1", 10), ("right", 10)]
    said(store, gpu(run="wrong", times=5))  # and back
    rollups.step(store)
    assert wrong(store) == [] and store.query("SELECT DISTINCT run_id FROM usage_hours ORDER BY 1").rows == [("r1",), ("wrong",)]


def test_what_is_touched_while_it_is_made_stays_noted(store: Store) -> None:
    said(store, gpu())
    rollups.step(store)
    store.write([gpu("late")])
    assert rollups.step(store) == 0  # not told of it
    rollups.touch(store, 60, minutes_of([gpu("late")]))
    assert store.query("SELECT window_s FROM dirty_windows").rows == [(60,)]
    assert rollups.step(store, (rollups.MINUTE,)) == 1
    assert store.query("SELECT window_s FROM dirty_windows").rows == [(3600,)]  # a crash here is mended by the next step
    rollups.step(store)
    assert wrong(store) == []


def test_two_at_once_do_no_harm(store: Store) -> None:
    with ThreadPoolExecutor(3) as pool:
        for turn in range(6):
            said(store, *(gpu(f"n{at}", 60 * at, run=f"r{turn % 2}") for at in range(3)))
            list(pool.map(lambda _: rollups.step(store), range(3)))
    for _ in range(3):
        rollups.step(store)
    assert rollups.step(store) == 0 and wrong(store) == []


def test_a_span_is_made_again_and_what_is_gone_is_not_touched(store: Store) -> None:
    store.write([full_gpu("n1", at * 300, at) for at in range(5)])  # nobody noted these
    now = datetime.now(UTC)
    assert rollups.recompute(store, HOUR_AGO, HOUR_AGO + timedelta(minutes=30), now) >= 32
    assert wrong(store) == []
    for begin, end in ((now - timedelta(days=14), now), (now, now - timedelta(hours=1)), (datetime(2026, 1, 1), now)):
        with pytest.raises(BadUsage):
            rollups.recompute(store, begin, end, now)


def test_a_dirty_minute_reads_little(store: Store) -> None:
    """The key of the samples begins with five minutes: a condition on ts alone would read everything."""
    store.write([full_gpu("n1", at * 60, at, times=50) for at in range(40)])
    start = int(HOUR_AGO.timestamp())
    text = rollups._insert(rollups.MINUTE)
    plan = store.query(
        "EXPLAIN indexes = 1 SELECT " + text.split(") SELECT ", 1)[1],
        {"starts": [start], "fives": [start // 300 * 300], "version": 1, "window": 60},
    )
    assert any("toStartOfFiveMinutes(ts) in 1-element set" in line for (line,) in plan.rows)
