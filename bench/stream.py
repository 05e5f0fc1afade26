"""The stream worker against Quix Streams and Bytewax, which do the same fold on the same messages, and against a bare loop.

    .venv/bin/python bench/stream.py [--messages 40000] [--facts 6000] [--nodes 1000]

The messages lie in a real Kafka, each a batch of its own as agents send them (8 GPUs, 5 seconds: 40 samples). Every program runs
alone and reads them all from 4 partitions; its CPU seconds count (user and system, all threads), less those of the same program
on an empty topic.

    worker    `yolometer stream`: coverage of every node and hour, its state in its changelog, a row a node and minute
    quix      the same fold (bench/peers/_fold.py) in Quix Streams, its state in RocksDB and a changelog topic
    bytewax   the same fold in Bytewax, its state in its recovery store
    runner    a Faust app with the settings of the worker and nothing to do: what the worker cannot cost less than
    loop      `getmany` of aiokafka in a loop, nothing done

Then the worker alone on what agents say of trainings, as they are read.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import msgpack
from _child import Spent, spent, verdict
from _fleet import PEERS, Fleet, Running, peers_python
from _messages import SAMPLES, fact_messages, gpu_messages

DEMANDED_SAMPLES = 150_000
GPU_TOPIC = "bench.gpu"
EMPTY_S = 6.0


@dataclass
class Cost:
    """CPU seconds for all messages, and the largest memory."""

    cpu_s: float
    peak_mb: float


def by_loop(bootstrap: str, topic: str, messages: int) -> None:
    """Read so many messages with a bare loop; no messages: for as long as an empty start takes."""
    from aiokafka import AIOKafkaConsumer

    async def read() -> None:
        consumer = AIOKafkaConsumer(
            topic, bootstrap_servers=bootstrap, group_id=f"{topic}-loop", auto_offset_reset="earliest", enable_auto_commit=False
        )
        await consumer.start()
        done, deadline = 0, time.monotonic() + (EMPTY_S / 2 if not messages else 60)
        while (not messages or done < messages) and time.monotonic() < deadline:
            done += sum(map(len, (await consumer.getmany(timeout_ms=200, max_records=500)).values()))
        await consumer.stop()
        if done < messages:
            sys.exit(f"only {done} of {messages} messages came")

    asyncio.run(read())


def by_runner(bootstrap: str, prefix: str) -> None:
    """The worker's own app with an agent that only acknowledges; until it is killed."""
    from yolometer_core.kafka import KafkaConfig
    from yolometer_stream.config import StreamConfig
    from yolometer_stream.faust_runner import make_app

    config = StreamConfig(kafka=KafkaConfig(bootstrap_servers=(bootstrap,), prefix=prefix))
    app = make_app(config)

    @app.agent(app.topic(f"{prefix}gpu"), concurrency=1)
    async def nothing(stream: object) -> None:
        while True:
            event = await stream.channel.queue.get()  # type: ignore[attr-defined]
            event.ack()

    sys.argv = ["runner", "worker", "-l", "warn", "--without-web"]
    app.main()


def committing(fleet: Fleet, start: Callable[[str], Running], topic: str, messages: int) -> Cost:
    """What a program costs that commits to the group `<prefix>stream` and does not end by itself; `start` is given its prefix."""
    prefix = topic.rpartition(".")[0] + "."
    empty = start("empty.")
    time.sleep(EMPTY_S)
    empty.check()
    idle_s = empty.cpu_s
    empty.stop()
    running = start(prefix)
    used_s = fleet.until_committed(f"{prefix}stream", topic, messages, running)
    cost = Cost(used_s - idle_s, running.peak_mb)
    running.stop()
    return cost


def ending(run: Callable[[bool], Spent]) -> Cost:
    """What a program costs that ends at the end of a topic; `run` is told whether that is the empty one."""
    idle = run(True)
    used = run(False)
    return Cost(used.cpu_s - idle.cpu_s, used.rss_mb)


def worker(fleet: Fleet, messages: int) -> Cost:
    return committing(fleet, lambda prefix: fleet.service("stream", prefix), GPU_TOPIC, messages)


def runner(fleet: Fleet, messages: int) -> Cost:
    def start(prefix: str) -> Running:
        return fleet.run(f"runner-{prefix}", [sys.executable, __file__, "--runner", fleet.broker.bootstrap, prefix])

    fleet.admin.delete_groups(["bench.stream", "empty.stream"])  # those of the worker, which is gone
    return committing(fleet, start, GPU_TOPIC, messages)


def loop(fleet: Fleet, messages: int) -> Cost:
    def run(empty: bool) -> Spent:
        topic, count = ("empty.gpu", 0) if empty else (GPU_TOPIC, messages)
        return spent([sys.executable, __file__, "--loop", fleet.broker.bootstrap, topic, str(count)])

    return ending(run)


def quix(fleet: Fleet, python: str, messages: int) -> Cost:
    def run(empty: bool) -> Spent:
        topic, count = ("empty.gpu", 0) if empty else (GPU_TOPIC, messages)
        state = fleet.folder / f"quix-{topic}"
        program = [python, str(PEERS / "quix_fold.py")]
        return spent([*program, fleet.broker.bootstrap, topic, "out.quix", str(state), str(count)])

    return ending(run)


def bytewax(fleet: Fleet, python: str) -> Cost:
    def run(empty: bool) -> Spent:
        topic = "empty.gpu" if empty else GPU_TOPIC
        state = fleet.folder / f"bytewax-{topic}"
        state.mkdir()
        spent([python, "-m", "bytewax.recovery", str(state), "1"])
        told = [f"BENCH_BROKER={fleet.broker.bootstrap}", f"BENCH_TOPIC={topic}", "BENCH_OUT=out.bytewax", f"PYTHONPATH={PEERS}"]
        command = [python, "-m", "bytewax.run", "bytewax_fold", "-r", str(state), "-s", "10", "-b", "0"]
        return spent(["env", *told, *command])

    return ending(run)


def rows_of_worker(fleet: Fleet) -> tuple[int, int]:
    """How many rows the worker said, and the sum of the samples in the newest row of each node and hour."""
    from yolometer_core import wire
    from yolometer_core.delivery import Coverage

    newest: dict[tuple[str, object], int] = {}
    count = 0
    for raw in fleet.records("bench.rate"):
        for event in wire.read(raw).events:
            if isinstance(event, Coverage):
                count += 1
                newest[event.node, event.ts] = max(newest.get((event.node, event.ts), 0), event.samples)
    return count, sum(newest.values())


def rows_of_peer(fleet: Fleet, topic: str) -> tuple[int, int]:
    newest: dict[tuple[str, str], int] = {}
    count = 0
    for raw in fleet.records(topic):
        row = msgpack.unpackb(raw)
        count += 1
        newest[row["node"], row["hour"]] = max(newest.get((row["node"], row["hour"]), 0), row["samples"])
    return count, sum(newest.values())


def gpu(fleet: Fleet, nodes: int, messages: int) -> None:
    """Print the table of all programs on samples of GPUs."""
    each = messages // nodes
    messages = each * nodes
    start = datetime.now(UTC).replace(minute=58, second=0, microsecond=0) - timedelta(hours=2)
    size = fleet.produce(GPU_TOPIC, gpu_messages(nodes, each, start))
    print(f"{messages:,} messages of {SAMPLES} samples of {nodes:,} nodes, {size / messages / 1e3:.1f} kB each, 4 partitions")
    costs, rows = {"worker": worker(fleet, messages)}, {"worker": rows_of_worker(fleet)}
    if python := peers_python():
        fleet.topic("out.quix")
        fleet.topic("out.bytewax")
        costs["quix"] = quix(fleet, python, messages)
        costs["bytewax"] = bytewax(fleet, python)
        rows |= {name: rows_of_peer(fleet, f"out.{name}") for name in ("quix", "bytewax")}
    costs["runner"], costs["loop"] = runner(fleet, messages), loop(fleet, messages)
    print(f"  {'':<8}{'messages':>12}{'samples':>12}{'CPU us':>10}{'times the':>12}")
    print(f"  {'':<8}{'/ CPU s':>12}{'/ CPU s':>12}{'/ message':>10}{'worker':>12}{'MB':>6}{'rows':>8}")
    for name, cost in costs.items():
        per_s, times = messages / cost.cpu_s, costs["worker"].cpu_s / cost.cpu_s
        said = f"{rows[name][0]:>8,}" if name in rows else ""
        speed = f"{per_s:>12,.0f}{per_s * SAMPLES:>12,.0f}{1e6 / per_s:>10.0f}"
        print(f"  {name:<8}{speed}{times:>12.2f}{cost.peak_mb:>6.0f}{said}")
    if len(set(rows.values())) > 1:
        print(f"  they do not say the same: {rows}")
    done = messages * SAMPLES / costs["worker"].cpu_s
    print(f"  worker, samples / CPU s: {done:,.0f}   {verdict(done, DEMANDED_SAMPLES)}")
    over = 1e6 * (costs["runner"].cpu_s - costs["loop"].cpu_s) / messages
    print(f"  the runner alone costs {over:.0f} us a message more than the loop")


def facts(fleet: Fleet, places: int, messages: int) -> None:
    """Print what the worker does with facts."""
    each = messages // places
    messages = each * places
    size = fleet.produce("facts.fact", fact_messages(places, each, datetime.now(UTC)))
    cost = committing(fleet, lambda prefix: fleet.service("stream", prefix, name=f"facts-{prefix}"), "facts.fact", messages)
    per_s = messages / cost.cpu_s
    print(f"{messages:,} messages of {places} trainings, a second each, {size / messages / 1e3:.1f} kB each:")
    print(f"  worker   {per_s:>10,.0f} messages / CPU s   {1e6 / per_s:,.0f} us a message   {cost.peak_mb:.0f} MB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--messages", type=int, default=40_000)
    parser.add_argument("--facts", type=int, default=6_000)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--runner", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--loop", nargs=3, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.runner:
        by_runner(*given.runner)
    elif given.loop:
        by_loop(given.loop[0], given.loop[1], int(given.loop[2]))
    else:
        with Fleet() as fleet:
            for prefix in ("bench.", "empty.", "facts."):
                fleet.topics(prefix)
            gpu(fleet, given.nodes, given.messages)
            facts(fleet, 200, given.facts)


if __name__ == "__main__":
    main()
