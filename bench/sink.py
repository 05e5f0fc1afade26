"""The sink service against a bare clickhouse-connect `insert_arrow` of the same rows, into a real ClickHouse server.

    .venv/bin/python bench/sink.py [--batches 20] [--rounds 3]

The messages lie in a real Kafka (those of GPUs each a batch of its own, as agents send them: 40 rows). Wall seconds count, as a
server has its own CPU, from the first batch that is in the table to the last; also the CPU seconds of the client for its rows. In
turns, into the same table, emptied before:

    raw    insert_arrow of rows that are already Arrow, in batches of the size that the sink makes
    sink   `yolometer sink`: reads, checks, makes columns, inserts, notes each message, commits

Samples of GPUs are measured twice: with both ways sharing both cores with the server, and with the server on one core and the
client on the other, as in a fleet, where they are different machines: raw leaves its own core idle while the server uses all it
gets, so it takes from the sink what it does not need itself. The demand is 60 % of raw. Runs and epochs are measured once,
without a demand.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import sys
import time
import urllib.request
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import pyarrow as pa
from _child import spent, verdict
from _fleet import MOST_S, Fleet, Running, free_port
from _messages import SAMPLES, Message, gpu_event, gpu_message

from yolometer_core import wire
from yolometer_core.events import Epoch, Run
from yolometer_sinks.open_store import open_store
from yolometer_sinks.stores._arrow import tables
from yolometer_sinks.stores._base import Store

DEMANDED_RATIO = 0.6
BATCH_ROWS = 50_000
NODES = 1000
GPU_BATCH = -(-BATCH_ROWS // (SAMPLES + 1))
"""Messages in one batch of the sink: each has a row of its own beside its samples."""
RUN_BATCH_ROWS = 20_000


class Speed(NamedTuple):
    """Rows per wall second, and CPU seconds per row of the client and of the server."""

    rows_s: float
    client_s: float
    server_s: float


def by_raw(url: str, folder: str) -> dict[str, float]:
    """Insert the Arrow files of a folder, named `<batch>-<table>`; the first batch is not timed. Returns what it took."""
    from yolometer_sinks.stores._client import ClientStore, insert_arrow

    parts: list[tuple[bool, str, Any]] = []
    for file in sorted(Path(folder).iterdir()):
        number, _, table = file.stem.partition("-")
        with pa.ipc.open_stream(str(file)) as reader:
            parts.append((number == "000", table, reader.read_all()))
    store = open_store(url)
    assert isinstance(store, ClientStore)
    client = store._entered()  # the same client with the same settings
    for is_first, table, rows in parts:
        if is_first:
            insert_arrow(client, table, rows)
    count, begun_s, cpu_s = 0, time.perf_counter(), time.process_time()
    for is_first, table, rows in parts:
        if not is_first:
            insert_arrow(client, table, rows)
            count += rows.num_rows
    found = {"rows": count, "wall_s": time.perf_counter() - begun_s, "cpu_s": time.process_time() - cpu_s}
    store.close()
    return found


def write_batches(folder: Path, batches: Sequence[Sequence[Any]]) -> None:
    """Write batches of events as the Arrow files that `by_raw` takes."""
    folder.mkdir()
    for number, events in enumerate(batches):
        for table, rows in tables(events).items():
            file = str(folder / f"{number:03d}-{table}.arrow")
            with pa.ipc.new_stream(file, rows.schema) as out:
                out.write_table(rows)


class Bench:
    """One set of rows, as messages in a topic and as Arrow files, and the ways of both into the tables."""

    def __init__(self, fleet: Fleet, server: Any, prefix: str, names: Sequence[str], rows: int, batch_rows: int) -> None:
        self._fleet, self._prefix, self._names, self._rows, self._batch_rows = fleet, prefix, names, rows, batch_rows
        self._url = server.url(f"bench_{prefix.rstrip('.')}")
        self._server = psutil.Process(server.process.pid)
        self.store: Store = open_store(self._url)
        self.store.migrate()
        self.inserts = 0.0
        self._core: int | None = None

    def apart(self) -> None:
        """From now on the server has one core for itself, and the client of both ways has another."""
        server_core, self._core = sorted(os.sched_getaffinity(0))[:2]
        for thread in self._server.threads():
            os.sched_setaffinity(thread.id, {server_core})

    def raw(self, folder: Path) -> Speed:
        self._empty()
        before_s = _cpu_s(self._server)
        where = [] if self._core is None else ["taskset", "-c", str(self._core)]
        said = spent([*where, sys.executable, __file__, "--raw", self._url, str(folder)]).said
        server_s = (_cpu_s(self._server) - before_s) / self._count()
        return Speed(said["rows"] / said["wall_s"], said["cpu_s"] / said["rows"], server_s)

    def sink(self) -> Speed:
        self._empty()
        port, before_s = free_port(), _cpu_s(self._server)
        sink = self._fleet.service("sink", self._prefix, store=self._url, metrics_port=port, batch_rows=self._batch_rows)
        if self._core is not None:
            sink.process.cpu_affinity([self._core])
        first = self._until(1, sink)
        begun_s, cpu_s = time.perf_counter(), sink.cpu_s
        self._until(self._rows, sink)
        wall_s, used_s = time.perf_counter() - begun_s, sink.cpu_s - cpu_s
        server_s = (_cpu_s(self._server) - before_s) / self._rows
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
            text = answer.read().decode()
        said = dict(re.findall(r"^yolometer_sink_batch_rows_(sum|count) ([\d.e+]+)$", text, re.MULTILINE))
        self.inserts = float(said["sum"]) / float(said["count"])
        sink.stop()
        self._fleet.admin.delete_groups([f"{self._prefix}sink"])
        rows = self._rows - first
        return Speed(rows / wall_s, used_s / rows, server_s)

    def _until(self, rows: int, sink: Running) -> int:
        deadline = time.monotonic() + MOST_S
        while (found := self._count()) < rows:
            sink.check()
            if time.monotonic() > deadline:
                sys.exit(f"only {found} of {rows} rows came: {sink.said()}")
            time.sleep(0.1)
        return found

    def _count(self) -> int:
        rows = "SELECT sum(total_rows) FROM system.tables WHERE database = currentDatabase() AND name IN {names:Array(String)}"
        return int(self.store.query(rows, {"names": list(self._names)}).rows[0][0])

    def _empty(self) -> None:
        for (name,) in self.store.query(
            "SELECT name FROM system.tables WHERE database = currentDatabase() AND total_rows > 0 AND name != 'schema_migration'"
        ).rows:
            self.store.command(f"TRUNCATE TABLE `{name}`")


def _cpu_s(process: psutil.Process) -> float:
    used = process.cpu_times()
    return float(used.user + used.system)


def show(raw: list[Speed], sink: list[Speed]) -> float:
    """Print both ways; return the ratio of their rows per second."""
    for name, speeds in (("raw", raw), ("sink", sink)):
        rows_s, client_s, server_s = (statistics.median(column) for column in zip(*speeds, strict=True))
        print(f"  {name:<6}{rows_s:>10,.0f} rows/s   CPU us a row: client {1e6 * client_s:.2f}, server {1e6 * server_s:.2f}")
    return statistics.median(one.rows_s / other.rows_s for one, other in zip(sink, raw, strict=True))


def gpu(fleet: Fleet, server: Any, batches: int, rounds: int) -> None:
    """Measure samples of GPUs."""
    start = (datetime.now(UTC) - timedelta(hours=2)).replace(minute=0, second=0, microsecond=0)
    each = [(f"node{at % NODES:04d}", at // NODES + 1) for at in range(batches * GPU_BATCH)]
    folder = fleet.folder / "gpu"
    parts = [each[at : at + GPU_BATCH] for at in range(0, len(each), GPU_BATCH)]
    write_batches(folder, [[gpu_event(node, number, start) for node, number in part] for part in parts])
    fleet.produce("gpu.gpu", (gpu_message(node, number, start) for node, number in each))
    rows = len(each) * SAMPLES
    bench = Bench(fleet, server, "gpu.", ["gpu"], rows, BATCH_ROWS)
    for where in ("sharing both cores", "a core each"):
        if where == "a core each":
            bench.apart()
        raw, sink = [], []
        for _ in range(rounds):
            raw.append(bench.raw(folder))
            sink.append(bench.sink())
        print(f"samples of GPUs, {where}: {rows:,} rows of {len(each):,} messages, {bench.inserts:,.0f} rows at a time")
        print(f"  of raw, in wall seconds: {(ratio := show(raw, sink)):.2f}   {verdict(ratio, DEMANDED_RATIO)}")
    bench.store.close()


def runs(fleet: Fleet, server: Any, messages: int) -> None:
    """Measure rows of runs and epochs: a message holds one of each, as the stream says them."""
    start = datetime.now(UTC) - timedelta(hours=2)
    events = [_rows(number, start) for number in range(messages)]
    folder, together = fleet.folder / "runs", RUN_BATCH_ROWS // 2
    parts = [events[at : at + together] for at in range(0, messages, together)]
    write_batches(folder, [[event for pair in part for event in pair] for part in parts])
    fleet.produce("runs.run", (_message(pair) for pair in events), together=20)
    bench = Bench(fleet, server, "runs.", ["run", "epoch"], 2 * messages, RUN_BATCH_ROWS)
    raw, sink = [bench.raw(folder)], [bench.sink()]
    print(f"runs and epochs: {2 * messages:,} rows, two a message; the sink inserted {bench.inserts:,.0f} rows at a time")
    print(f"  of raw, in wall seconds: {show(raw, sink):.2f}")
    bench.store.close()


def _rows(number: int, start: datetime) -> tuple[Run, Epoch]:
    ts = start + timedelta(milliseconds=100 * number)
    common: dict[str, Any] = {"ts": ts, "node": f"node{number % 50}", "source": "train.log", "seq": number,
                              "run_id": f"run{number:06d}", "version": 1, "rate_mtok_s": 18.9}  # fmt: skip
    run = Run(**common, place=f"/runs/{number}", framework="ultralytics", task="detect", model="yolov8m.pt", imgsz=640, batch=16,
              epochs_planned=300, epochs_done=12, attempts=1, status="running", images_per_epoch=3200, images=38_400,
              tokens_mtok=15_728.6 + number, train_seconds=830.1, gpu_model="NVIDIA A100-SXM4-80GB", gpus=1,
              gpu_memory_bytes=12 << 30, owner={"team": "vision"}, sources=("train.log",), epoch_now=13)  # fmt: skip
    epoch = Epoch(**common, attempt=1, epoch=12, kept=True, complete=True, iterations_done=200, iterations_total=200,
                  images=3200, tokens_mtok=1310.7, train_seconds=69.2, losses=(1.2, 0.8), map50=0.5, map50_95=0.4)  # fmt: skip
    return run, epoch


def _message(pair: tuple[Run, Epoch]) -> Message:
    packed = [wire.pack(event) for event in pair]
    return pair[0].key.encode(), wire.message(packed, node=pair[0].node, at_ms=int(pair[0].ts.timestamp() * 1000))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--batches", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--raw", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.raw:
        print(json.dumps(by_raw(*given.raw)))
        return
    import _clickhouse_server  # found on the path that _fleet adds

    server = _clickhouse_server.start()
    try:
        with Fleet() as fleet:
            for prefix in ("gpu.", "runs."):
                fleet.topics(prefix)
            gpu(fleet, server, given.batches, given.rounds)
            runs(fleet, server, 5 * RUN_BATCH_ROWS // 2)
    finally:
        server.stop()


if __name__ == "__main__":
    main()
