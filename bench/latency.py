"""How long it takes from a line in a log until its value can be read by SQL, beside the messages of 1,000 nodes.

    .venv/bin/python bench/latency.py [--lines 70] [--gpu 200] [--facts 300]

A generator writes to a real Kafka what 1,000 agents would: `--gpu` messages a second of 40 samples each, and `--facts` messages
a second, of as many trainings. One real agent follows one log; a stream worker, a sink and a ClickHouse server with their
default settings do the rest, all on this machine. A piece of the log is written each 1.0 to 1.6 s; its time counts until the row
of the run shows it (log -> agent -> fact -> stream -> run -> sink -> table), looked at ten times a second.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import statistics
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psutil
from _child import verdict
from _fleet import MOST_S, Fleet, Running, partition_of
from _logs import ITERATIONS, make_console
from _messages import SAMPLES, TIMES, Message, fact_message, gpu_message, training

from yolometer_sinks.open_store import open_store
from yolometer_sinks.stores._base import Store

DEMANDED_P99_S = 5.0
NODES, PARTITIONS = 1000, 4
TICK_S, LOOK_S = 0.02, 0.1
PIECE = 20
START_S, MAKE_S, WARM_S = 8.0, 40.0, 8.0
Piece = tuple[bytes, int, int]
"""What is written at a time, and the epoch and the iteration that it ends with."""


def by_generator(bootstrap: str, gpu_per_s: float, facts_per_s: float, seconds: float) -> None:
    """Write the messages of a fleet at an even pace, each a batch of its own as agents send them.

    They are made before, within `MAKE_S`: making them is the work of a thousand nodes and not of this machine.
    """
    from aiokafka import AIOKafkaProducer

    template = training(int(seconds) + 2)
    start = datetime.now(UTC) + timedelta(seconds=MAKE_S)
    places = max(int(facts_per_s), 1)

    def gpu(number: int) -> Message:
        turn, node = divmod(number, NODES)
        return gpu_message(f"node{node:04d}", turn + 1, start - timedelta(seconds=TIMES))

    def fact(number: int) -> Message:
        turn, place = divmod(number, places)
        return fact_message(template[turn % len(template)], f"node{place:04d}", turn + 1, start - timedelta(seconds=1))

    async def write() -> None:
        producer = AIOKafkaProducer(bootstrap_servers=bootstrap, acks=1, compression_type="zstd")
        await producer.start()
        kinds = {
            topic: ([make(number) for number in range(int(seconds * per_s) + 1)], per_s)
            for topic, (make, per_s) in {"bench.gpu": (gpu, gpu_per_s), "bench.fact": (fact, facts_per_s)}.items()
        }
        done, waiting = dict.fromkeys(kinds, 0), []
        await asyncio.sleep(max((start - datetime.now(UTC)).total_seconds(), 0))
        begun_s = time.monotonic()
        while (now_s := time.monotonic() - begun_s) < seconds:
            for topic, (made, per_s) in kinds.items():
                while done[topic] < now_s * per_s:
                    key, value = made[done[topic]]
                    batch = producer.create_batch()
                    batch.append(key=key, value=value, timestamp=None)
                    batch.close()
                    waiting.append(await producer.send_batch(batch, topic, partition=partition_of(key, PARTITIONS)))
                    done[topic] += 1
            await asyncio.sleep(TICK_S)
        for sent in waiting:
            await sent
        await producer.stop()
        print(" ".join(f"{count / seconds:.0f}" for count in done.values()), flush=True)

    asyncio.run(write())


def pieces(folder: Path, count: int) -> list[Piece]:
    """A console of the real shape in pieces; its head comes first."""
    epochs = -(-count * PIECE // ITERATIONS)
    whole = folder / "whole.log"
    frames = make_console(whole, 13 + epochs * (ITERATIONS + 3), cr=True).read_bytes().split(b"\r")
    whole.unlink()
    found, at = [(frames[0], 0, 0)], 1
    for epoch in range(1, epochs + 1):
        for iteration in range(PIECE, ITERATIONS + 1, PIECE):
            more = PIECE + (iteration == ITERATIONS)  # the last one with the bar of the validation, and its result
            found.append((b"".join(b"\r" + frame for frame in frames[at : at + more]), epoch, iteration))
            at += more
    return found[: count + 1]


def follow(store: Store, log: Path, parts: Sequence[Piece], watched: Sequence[Running]) -> tuple[list[float], float]:
    """Write the pieces and look for them; returns the seconds of each, and the largest distance between two looks."""
    asked = (
        "SELECT ifNull(epoch_now, 0), ifNull(iterations_done, 0), ifNull(epochs_done, 0) FROM runs WHERE node = 'latency'"
    )
    drawn, waiting, took = random.Random(1), [], []
    left, next_s, looked_s, longest_s = list(parts), time.monotonic(), time.monotonic(), 0.0
    with log.open("ab", buffering=0) as file:
        while left or waiting:
            now_s = time.monotonic()
            if left and now_s >= next_s:
                piece, epoch, iteration = left.pop(0)
                file.write(piece)
                if epoch:
                    waiting.append((epoch, iteration, time.monotonic()))
                next_s = now_s + drawn.uniform(1.0, 1.6)
            for running in watched:
                running.check()
            shown = (0, 0)
            for now, iterations, done in store.query(asked).rows:
                shown = max(shown, (now, iterations), (done, ITERATIONS))
            seen_s = time.monotonic()
            longest_s, looked_s = max(longest_s, seen_s - looked_s), seen_s
            took += [seen_s - written_s for *value, written_s in waiting if tuple(value) <= shown]
            waiting = [line for line in waiting if line[:2] > shown]
            if waiting and seen_s - waiting[0][2] > MOST_S:
                sys.exit(f"the line {waiting[0][:2]} is not in its row after {MOST_S:g} s, which shows {shown}")
            time.sleep(LOOK_S)
    return took, longest_s


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--lines", type=int, default=70)
    parser.add_argument("--gpu", type=float, default=200.0)
    parser.add_argument("--facts", type=float, default=300.0)
    parser.add_argument("--generate", nargs=4, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.generate:
        by_generator(given.generate[0], *map(float, given.generate[1:]))
        return
    import _clickhouse_server  # found on the path that _fleet adds

    server = _clickhouse_server.start()
    try:
        with Fleet() as fleet:
            measure(fleet, server, given.lines, given.gpu, given.facts)
    finally:
        server.stop()


def measure(fleet: Fleet, server: Any, lines: int, gpu_per_s: float, facts_per_s: float) -> None:
    """Start everything, follow one log, and print how long its lines took."""
    fleet.topics("bench.", PARTITIONS)
    url = server.url("bench")
    store = open_store(url)
    store.migrate()
    (fleet.folder / "runs").mkdir()
    said = [str(gpu_per_s), str(facts_per_s), str(WARM_S + 1.4 * lines + 10)]
    state = str(fleet.folder / "state")
    watching: dict[str, Any] = {"watch": [str(fleet.folder / "runs")], "processes": False, "state_dir": state}
    running = {
        "stream": fleet.service("stream", "bench.", store=url),
        "sink": fleet.service("sink", "bench.", store=url),
        "agent": fleet.service("agent", "bench.", node="latency", **watching),
    }
    time.sleep(START_S)
    generator = [sys.executable, __file__, "--generate", fleet.broker.bootstrap, *said]
    running["generator"] = fleet.run("generator", generator)
    processes = {name: each.process for name, each in running.items()}
    processes |= {"Kafka": psutil.Process(fleet.broker.process.pid), "ClickHouse": psutil.Process(server.process.pid)}
    time.sleep(MAKE_S + WARM_S)
    begun_s, before = time.monotonic(), {name: _cpu_s(process) for name, process in processes.items()}
    services = [running[name] for name in ("stream", "sink", "agent")]
    took, longest_s = follow(store, fleet.folder / "runs" / "train.log", pieces(fleet.folder, lines), services)
    wall_s = time.monotonic() - begun_s
    shares = {name: 100 * (_cpu_s(process) - before[name]) / wall_s for name, process in processes.items()}
    behind = {name: _behind(fleet, name) for name in ("stream", "sink")}
    rows = store.query("SELECT (SELECT count() FROM gpu), (SELECT count() FROM runs)").rows[0]
    store.close()
    took.sort()
    p50_s, p99_s = statistics.median(took), took[min(int(0.99 * len(took)), len(took) - 1)]
    rates = f"{gpu_per_s:g} messages of samples and {facts_per_s:g} of facts a second"
    print(f"{len(took)} lines beside {rates} ({gpu_per_s * SAMPLES:,.0f} rows/s)")
    p90_s = took[int(0.9 * len(took))]
    print(f"  from line to row: p50 {p50_s:.2f} s, p90 {p90_s:.2f} s, p99 {p99_s:.2f} s, each seen up to {longest_s:.2f} s late")
    print(f"  p99   {verdict(round(p99_s, 2), DEMANDED_P99_S, at_most=True)}")
    print("  percent of a core: " + ", ".join(f"{name} {share:.0f}" for name, share in shares.items()))
    print(f"  at the end {rows[0]:,} rows of samples and {rows[1]:,} runs are there; messages behind: {behind}")


def _behind(fleet: Fleet, service: str) -> int:
    """How many messages of facts and samples a service has not committed."""
    from _kafka import KafkaConsumer, TopicPartition

    names = ["bench.fact", "bench.gpu"]
    done = sum(fleet.committed(f"bench.{service}", name) for name in names)
    consumer = KafkaConsumer(bootstrap_servers=fleet.broker.bootstrap)
    try:
        ends = consumer.end_offsets([TopicPartition(name, number) for name in names for number in range(PARTITIONS)])
    finally:
        consumer.close()
    return int(sum(ends.values())) - done


def _cpu_s(process: psutil.Process) -> float:
    used = process.cpu_times()
    return float(used.user + used.system)


if __name__ == "__main__":
    main()
