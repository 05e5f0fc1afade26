"""Messages to measure with, in the bytes that agents send: samples of a fleet of nodes, and facts of trainings."""

from __future__ import annotations

import random
import tempfile
import zlib
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

from _logs import make_console

from yolometer_core import wire
from yolometer_core.events import Fact
from yolometer_core.gpu import Gpu, packed

GPUS, TIMES = 8, 5
SAMPLES = GPUS * TIMES
EPOCH = 1_772_000_000
Message = tuple[bytes, bytes]
_VARIANTS = 50
_LARGEST = {"gpu_util_ratio": 1, "memory_used_bytes": 80 << 30, "power_w": 700, "sm_clock_mhz": 1980, "temperature_c": 90}


def gpu_columns(seed: int) -> dict[str, bytes]:
    """All metrics of a message, with numbers as GPUs give them: of these five each differs, the rest changes seldom."""
    drawn = random.Random(seed)
    values: dict[str, list[float | None]] = {
        name: [round(drawn.uniform(0.3, 1) * most, 2 if most <= 700 else 0) for _ in range(SAMPLES)]
        for name, most in _LARGEST.items()
    }
    steady = {"memory_total_bytes": float(80 << 30), "memory_clock_mhz": 2619.0, "clock_event_reasons": 4.0}
    values |= {name: [value] * SAMPLES for name, value in steady.items()}
    values["energy_j"] = [round(1e6 * seed + 512.3 * at, 1) for at in range(SAMPLES)]
    return packed(values)


def gpu_event(node: str, number: int, start: datetime) -> Gpu:
    """The message number `number` (from 1) of a node: five seconds of eight GPUs."""
    texts = {"gpu_model": "NVIDIA H100 80GB HBM3", "run_id": f"run-{node}", "user": "ann", "team": "vision"}
    return Gpu(
        ts=start + timedelta(seconds=TIMES * (number - 1)), node=node, source="nvml", seq=(EPOCH << 32) + number, period_s=1.0,
        offsets_ms=tuple(1000 * at for at in range(TIMES)), gpu_uuid=tuple(f"GPU-{node}-{at}" for at in range(GPUS)),
        attribution_source=("cgroup",) * GPUS, columns=_columns[(number + zlib.crc32(node.encode())) % _VARIANTS],
        **{name: (text,) * GPUS for name, text in texts.items()},
    )  # fmt: skip


def gpu_messages(nodes: int, each: int, start: datetime) -> Iterator[Message]:
    """`each` messages of every node, in the order of time."""
    for number in range(1, each + 1):
        for node in range(nodes):
            yield gpu_message(f"node{node:04d}", number, start)


def gpu_message(node: str, number: int, start: datetime) -> Message:
    event = gpu_event(node, number, start)
    at_ms = int((event.ts.timestamp() + TIMES) * 1000)
    return node.encode(), wire.message([wire.pack(event)], node=node, at_ms=at_ms, lane="gpu", seq=event.seq)


def training(messages: int) -> list[list[Fact]]:
    """What an agent says of one training, message by message: a console of the real shape, read twice a second as it grows.

    A message holds what was new in one second, as agents gather it; 10 iterations a second, 200 an epoch.
    """
    from yolometer.box import formats
    from yolometer_agent.reader import Reader

    found: list[list[Fact]] = []
    with tempfile.TemporaryDirectory(prefix="yolometer-bench-") as name:
        whole = make_console(Path(name) / "whole.log", 14 + 11 * messages, cr=True).read_bytes().split(b"\r")
        log = Path(name) / "train.log"
        reader = Reader(log, formats(), node="node", place="place", source="train.log")
        with log.open("ab", buffering=0) as file:
            file.write(whole[0])
            for at in range(1, len(whole), 5):
                file.write(b"".join(b"\r" + frame for frame in whole[at : at + 5]))
                facts = reader.poll()[0]
                if at // 5 % 2 == 0:
                    found.append(list(facts))
                else:
                    found[-1] += facts
        found[0] += reader.stands(True, digest=False)
        reader.close()
    return [facts for facts in found if facts][:messages]


def fact_messages(places: int, each: int, start: datetime) -> Iterator[Message]:
    """`each` messages of every training, a second apart, in the order of time."""
    template = training(each)
    for number, facts in enumerate(template, 1):
        for place in range(places):
            yield fact_message(facts, f"node{place:04d}", number, start)


def fact_message(facts: list[Fact], node: str, number: int, start: datetime) -> Message:
    """The facts of a message as those of the training on another node."""
    place, ts = f"{node}:/data/runs/train", start + timedelta(seconds=number)
    changed = {"node": node, "place": place, "ts": ts}
    events = [wire.pack(fact.model_copy(update=changed)) for fact in facts]
    at_ms = int(ts.timestamp() * 1000)
    return place.encode(), wire.message(events, node=node, at_ms=at_ms, lane="fact", seq=(EPOCH << 32) + number)


_columns = [gpu_columns(seed) for seed in range(_VARIANTS)]
