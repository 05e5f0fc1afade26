"""What the agent costs while it ships 10,000 records a second of 50 growing logs, and while Kafka is away.

    .venv/bin/python bench/agent.py [--seconds 20] [--logs 50] [--rate 10000]

Another process writes consoles of the real shape, redraws with CR, a piece into every log each 0.1 s. Each way runs alone, on
logs of its own, in a process of its own; its CPU seconds (user and system, all threads) count after a start of 4 s, its largest
memory from its beginning:

    tail      the agent's tail alone, as often as the agent looks: no spool, no Kafka, no numbers
    shipping  `yolometer agent`, to a real Kafka
    silent    the same; Kafka is stopped in the middle (SIGSTOP): connections stay open and nobody answers
    away      the same; Kafka is killed: nobody listens

Demanded: below 15 % of a core and 64 MiB while shipping; without Kafka at most 1.1 times the CPU.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from _child import verdict
from _fleet import Fleet, Running
from _logs import ITERATIONS, make_console

from yolometer_core import wire
from yolometer_core.events import Progress

DEMANDED_PERCENT, DEMANDED_MIB, DEMANDED_WITHOUT = 15.0, 64.0, 1.1
WARM_S = 4.0
TICK_S = 0.1


class Cost(NamedTuple):
    """Percent of a core while it runs, MiB at most, records that were written meanwhile, in all."""

    percent: float
    peak_mib: float
    records: int


def by_writer(folder: str, logs: int, rate: float, seconds: float) -> None:
    """Write `rate` records a second into all logs together, for so long."""
    home = Path(folder)
    pieces = make_console(home / "whole", 20 + int(rate * seconds / logs), cr=True).read_bytes().split(b"\r")
    (home / "whole").unlink()
    files = []
    for number in range(logs):
        (home / "runs" / f"train{number:02d}").mkdir(parents=True)
        files.append((home / "runs" / f"train{number:02d}" / "train.log").open("ab", buffering=0))
        # logs that begin alike would be copies of one training
        files[-1].write(pieces[0].replace(b"/data/runs/detect/bench", b"/data/runs/detect/bench%d" % number))
    at, begun_s = 1, time.monotonic()
    while (now_s := time.monotonic() - begun_s) < seconds and at < len(pieces):
        due = min(1 + int(rate * now_s / logs), len(pieces))
        piece = b"".join(b"\r" + frame for frame in pieces[at:due])
        for file in files:
            file.write(piece)
        at = due
        time.sleep(TICK_S)
    print(at * logs, flush=True)


def by_tail(folder: str, seconds: float) -> None:
    """Follow the logs with the agent's tail as the service does, and throw away what it says."""
    from yolometer.box import formats
    from yolometer_agent.agent import Agent
    from yolometer_agent.config import AgentConfig
    from yolometer_agent.rhythm import SCAN_S

    agent = Agent([folder], formats(), node="bench")
    begun_s, scanned_s, poll_s = time.monotonic(), 0.0, AgentConfig().poll_s
    while (now_s := time.monotonic()) - begun_s < seconds:
        if now_s - scanned_s >= SCAN_S:
            agent.scan()
            scanned_s = now_s
        while agent.poll()[1]:
            pass
        time.sleep(poll_s)
    agent.close()


class Bench:
    """The runs of all ways: how long, how many logs, how many records a second."""

    def __init__(self, fleet: Fleet, logs: int, rate: float, seconds: float) -> None:
        self._fleet, self._logs, self._rate, self._seconds = fleet, logs, rate, seconds

    def tail(self) -> Cost:
        def start(folder: Path) -> Running:
            return self._fleet.run("tail", [sys.executable, __file__, "--tail", str(folder), str(self._seconds + 30)])

        return self._measured("tail", start)

    def agent(self, name: str, stop_kafka: Callable[[], None] | None = None) -> Cost:
        def start(folder: Path) -> Running:
            state = str(folder.parent / "state")
            return self._fleet.service(
                "agent", "bench.", name=name, node=f"node-{name}", watch=[str(folder)], processes=False, state_dir=state
            )

        return self._measured(name, start, stop_kafka)

    def _measured(self, name: str, start: Callable[[Path], Running], stop_kafka: Callable[[], None] | None = None) -> Cost:
        home = self._fleet.folder / f"logs-{name}"
        (home / "runs").mkdir(parents=True)
        writing = [str(home), str(self._logs), str(self._rate), str(self._seconds + WARM_S + 3)]
        writer = self._fleet.run(f"writer-{name}", [sys.executable, __file__, "--write", *writing])
        running = start(home / "runs")
        time.sleep(WARM_S)
        if stop_kafka:
            stop_kafka()
        begun_s, cpu_s = time.monotonic(), running.cpu_s
        time.sleep(self._seconds)
        running.check()
        percent = 100 * (running.cpu_s - cpu_s) / (time.monotonic() - begun_s)
        peak_mib = running.peak_mb
        writer.process.wait(30)
        time.sleep(1.0)  # the agent looks twice a second
        running.stop(15.0)
        return Cost(percent, peak_mib, int(writer.said()))

    def shipped(self) -> tuple[int, int]:
        """How many messages and how many whole epochs are in Kafka."""
        messages, epochs = 0, set()
        for raw in self._fleet.records("bench.fact"):
            messages += 1
            for event in wire.read(raw).events:
                if isinstance(event, Progress) and event.is_row:
                    epochs.add((event.place, event.epoch))
        return messages, len(epochs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--logs", type=int, default=50)
    parser.add_argument("--rate", type=float, default=10_000.0)
    parser.add_argument("--write", nargs=4, help=argparse.SUPPRESS)
    parser.add_argument("--tail", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.write:
        by_writer(given.write[0], int(given.write[1]), float(given.write[2]), float(given.write[3]))
        return
    if given.tail:
        by_tail(given.tail[0], float(given.tail[1]))
        return
    with Fleet() as fleet:
        fleet.topics("bench.")
        bench = Bench(fleet, given.logs, given.rate, given.seconds)
        costs = {"tail": bench.tail(), "shipping": bench.agent("shipping")}
        messages, epochs = bench.shipped()
        costs["silent"] = bench.agent("silent", fleet.broker.pause)
        fleet.broker.resume()
        costs["away"] = bench.agent("away", fleet.broker.kill)
    print(f"{given.rate:,.0f} records/s of {given.logs} logs for {given.seconds:g} s")
    for name, cost in costs.items():
        ratio = cost.percent / costs["tail"].percent
        print(f"  {name:<9}{cost.percent:>6.1f} % of a core   {cost.peak_mib:>4.0f} MiB   {ratio:.2f} of the tail alone")
    shipping = costs["shipping"]
    wanted = given.logs * ((shipping.records // given.logs - 14) // (ITERATIONS + 3))
    print(f"  shipped {messages:,} messages, {epochs:,} of the {wanted:,} whole epochs in {shipping.records:,} records")
    print(f"  CPU while shipping: {shipping.percent:.1f} %   {verdict(shipping.percent, DEMANDED_PERCENT, at_most=True)}")
    print(f"  memory while shipping: {shipping.peak_mib:.0f} MiB   {verdict(shipping.peak_mib, DEMANDED_MIB, at_most=True)}")
    for name in ("silent", "away"):
        ratio = costs[name].percent / shipping.percent
        print(f"  CPU, Kafka {name}: {ratio:.2f} of shipping   {verdict(ratio, DEMANDED_WITHOUT, at_most=True)}")


if __name__ == "__main__":
    main()
