"""Samples of GPUs and messages for the tests of the sink: recent, as the store forgets old ones."""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from yolometer_core import wire
from yolometer_core.events import Epoch, Event
from yolometer_core.gpu import METRICS, Gpu, packed

HOUR_AGO = (datetime.now(UTC) - timedelta(hours=1)).replace(second=0, microsecond=0)
SMALL = ("gpu_util_ratio", "memory_util_ratio", "lost")
AT_MS = int(HOUR_AGO.timestamp() * 1000)


def gpu(
    node: str = "n1", after_s: float = 0, gpus: int = 2, times: int = 3, run: str | None = "r1", seq: int = 1, **said: Any
) -> Gpu:
    """A message of one node. `columns` replaces or adds metrics as lists."""
    count = gpus * times
    given: dict[str, Sequence[float | None]] = {"power_w": [100.0] * count, "gpu_util_ratio": [0.5] * count}
    given |= said.pop("columns", {})
    fields: dict[str, Any] = {
        "ts": HOUR_AGO + timedelta(seconds=after_s), "node": node, "source": "nvml", "seq": seq, "period_s": 1.0,
        "offsets_ms": tuple(1000 * at for at in range(times)), "gpu_uuid": tuple(f"GPU-{node}-{at}" for at in range(gpus)),
        "gpu_model": ("A100",) * gpus, "run_id": (run,) * gpus, "user": ("ann",) * gpus, "team": ("vision",) * gpus,
        "attribution_source": ("cgroup",) * gpus, "columns": packed(given),
    }  # fmt: skip
    return Gpu(**(fields | said))


def full_gpu(node: str, after_s: float, seq: int, gpus: int = 8, times: int = 5) -> Gpu:
    """A message as a fleet sends it: all metrics, numbers that vary."""
    drawn = random.Random(seq)
    columns = {
        name: [drawn.random() if name in SMALL else float(drawn.randrange(64)) for _ in range(gpus * times)]
        for name in METRICS
    }
    return gpu(node, after_s, gpus, times, run=f"run-{node}", seq=seq, columns=columns)


def epoch(run: str, number: int, **said: Any) -> Epoch:
    fields: dict[str, Any] = {
        "ts": HOUR_AGO, "node": "n1", "source": "log", "seq": number, "run_id": run, "version": 1, "attempt": 1, "epoch": number,
        "kept": True, "complete": True, "tokens_mtok": 1.5, "losses": (1.0, 2.0),
    }  # fmt: skip
    return Epoch(**(fields | said))


def message(*events: Event, lane: str | None = None, seq: int | None = None, node: str = "n1") -> bytes:
    return wire.message([wire.pack(event) for event in events], node=node, at_ms=AT_MS, lane=lane, seq=seq)
