"""Rows per second of the write path (events to a store) against a bare clickhouse-connect `insert_arrow` of the same rows.

    .venv/bin/python bench/insert.py [--rows 100000] [--batch 10000] [--rounds 5] [--url chdb://memory]

Three ways into the same tables, in turns within one run, on the same engine. CPU seconds of the process count, with the
threads of an embedded engine; the ratio is the median over the rounds:

    raw       insert_arrow of rows that are already Arrow: the limit of the client
    arrow     our store path from the same Arrow tables
    events    our store path from events: `Store.write`

The demand is 60 % of raw for the whole path (events). A server has its own CPU seconds: with one, wall seconds count.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from yolometer_core.events import Epoch, Event, Progress, Rate
from yolometer_sinks.open_store import open_store
from yolometer_sinks.stores._arrow import table
from yolometer_sinks.stores._client import ClientStore, insert_arrow

DEMANDED_RATIO = 0.6
START = datetime(2026, 3, 1, tzinfo=UTC)


def made(kind: type[Event], rows: int) -> list[Event]:
    """Rows that look like a fleet's: 200 runs on 50 nodes, one event a second each."""

    def common(i: int) -> dict[str, Any]:
        return {
            "ts": START + timedelta(seconds=i // 200, milliseconds=i % 997),
            "node": f"node{i % 50}",
            "source": f"log{i % 200}",
            "seq": i,
        }

    if kind is Progress:
        return [
            Progress(**common(i), place=f"/runs/{i % 200}", epoch=i % 300, epochs_total=300, iterations_done=i % 7393,
                     iterations_total=7393, height_px=640, width_px=640, losses=(1.2 + i % 7, 0.8, 1.1),
                     gpu_memory_bytes=12 << 30, train_s=i / 7)
            for i in range(rows)
        ]  # fmt: skip
    if kind is Epoch:
        return [
            Epoch(**common(i), run_id=f"run{i % 200}", version=i, attempt=1, epoch=i, kept=True, complete=True,
                  iterations_done=7393, iterations_total=7393, images=118287, tokens_mtok=48450.4 + i, train_seconds=830.1,
                  rate_mtok_s=58.4, losses=(1.2, 0.8, 1.1), map50=0.5, map50_95=0.4)
            for i in range(rows)
        ]  # fmt: skip
    return [
        Rate(
            **common(i),
            run_id=f"run{i % 200}",
            window_s=60,
            rate_mtok_s=58.4 + i % 9,
            coverage_ratio=1.0,
            active_rate_mtok_s=58.4,
        )
        for i in range(rows)
    ]


def timed(call: Callable[[], None], clock: Callable[[], float]) -> float:
    gc.collect()
    begun = clock()
    call()
    return clock() - begun


def measure(store: ClientStore, kind: type[Event], rows: int, batch: int, rounds: int, clock: Callable[[], float]) -> float:
    """Print one line for one event class; return events / raw."""
    events = made(kind, rows)
    batches = [events[i : i + batch] for i in range(0, rows, batch)]
    arrows = [table(kind, part) for part in batches]
    client = store._entered()  # the same client, so that only the path differs

    def raw(parts: Sequence[Any]) -> None:
        for part in parts:
            insert_arrow(client, kind.table, part)

    def from_arrow(parts: Sequence[Any]) -> None:
        for part in parts:
            store.write_arrow(kind.table, part)

    def from_events(parts: Sequence[Any]) -> None:
        for part in parts:
            store.write(part)

    ways = {"raw": (raw, arrows), "arrow": (from_arrow, arrows), "events": (from_events, batches)}
    spent: dict[str, list[float]] = {way: [] for way in ways}
    for _ in range(rounds):
        for way, (call, parts) in ways.items():
            store.command(f"TRUNCATE TABLE {kind.table}")
            spent[way].append(timed(partial(call, parts), clock))
    found = store.query(f"SELECT count() FROM {kind.table} FINAL").rows[0][0]  # noqa: S608  # our own table
    if found != rows:
        sys.exit(f"{kind.table}: {found} rows are in the store, {rows} were written.")
    speed = {way: rows / statistics.median(seconds) for way, seconds in spent.items()}
    ratio = {way: statistics.median(raw / own for raw, own in zip(spent["raw"], spent[way], strict=True)) for way in ways}
    print(
        f"{kind.table:<9} {len(kind.model_fields):>3} columns   raw {speed['raw']:>8,.0f} rows/s"
        f"   arrow {speed['arrow']:>8,.0f} ({ratio['arrow']:.2f} of raw)"
        f"   events {speed['events']:>8,.0f} ({ratio['events']:.2f} of raw)"
    )
    return ratio["events"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--batch", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--url", default="chdb://memory")
    given = parser.parse_args()
    store = open_store(given.url)
    assert isinstance(store, ClientStore)
    store.migrate()
    embedded = store.name.startswith("chdb:")
    seconds, clock = ("CPU second", time.process_time) if embedded else ("second", time.perf_counter)
    print(f"{given.rows:,} rows in batches of {given.batch:,} into {store.name}")
    print(f"rows per {seconds}, medians of {given.rounds} rounds")
    kinds: list[type[Event]] = [Progress, Epoch, Rate]
    worst = min(measure(store, kind, given.rows, given.batch, given.rounds, clock) for kind in kinds)
    store.close()
    met = "met" if worst >= DEMANDED_RATIO else "NOT met"
    print(f"events to store: at worst {worst:.2f} of raw insert_arrow; demanded {DEMANDED_RATIO}: {met}")


if __name__ == "__main__":
    main()
