"""Writes the frozen example messages of the wire version of today. Run it once for a new version; never change old files."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

from yolometer_core import wire
from yolometer_core.delivery import Coverage, DeadLetter, Loss
from yolometer_core.devices import GpuDevice, GpuFault
from yolometer_core.events import Epoch, Evaluation, Event, Incident, Progress, Rate, ResultRow, Run, Setting, SourceState
from yolometer_core.gpu import Gpu, packed

FOLDER = Path(__file__).parent
TS = datetime(2026, 11, 30, 12, 0, 0, 123456, tzinfo=UTC)
FACT = {"ts": TS, "node": "node-1", "source": "train.log", "place": "node-1:/runs/a", "session": 0}
ROW = {"ts": TS, "node": "node-1", "source": "run", "seq": 99, "version": 99, "run_id": "0123456789abcdef"}


def examples(version: str = f"v{wire.MAJOR}_{wire.MINOR}") -> dict[str, list[Event]]:
    """One message for each topic, with every type of event that travels there in a version."""
    return first() if version == "v1_0" else {**first(), **since_1_1()}


def since_1_1() -> dict[str, list[Event]]:
    """What came with 1.1: the job of a place, more of each GPU, and the GPUs themselves."""
    old = first()
    share = ("run-a", "u", None, "workdir", "node-1:/runs/a")
    held = {"holder": ("node-1:/runs/a", None), "energy_source": ("counter", "power")}
    shared = {"shared": {"GPU-b": ((*share, 600_000), (None, "v", "t", "environment", "job:slurm:c:7", 400_000))}}
    seen = {"ts": TS, "node": "node-1", "source": "nvml"}
    return {
        "fact": [*old["fact"], Setting(**FACT, seq=56, role="console", job="job:slurm:c:7")],
        "gpu": [
            old["gpu"][0].model_copy(update={**held, **shared}),
            GpuDevice(**seen, seq=8, gpu_uuid="MIG-a", gpu_model="H200", parent_uuid="GPU-a", sm_share_ratio=0.25,
                      memory_total_bytes=1 << 34, driver_version="580.1", gpu_index=0, energy_source="counter", version=9),
            GpuFault(**seen, seq=9, gpu_uuid="GPU-b", what="xid", xid=79, detail="the GPU has fallen off the bus"),
        ],
    }  # fmt: skip


def first() -> dict[str, list[Event]]:
    """Version 1.0."""
    return {
        "fact": [
            Setting(**FACT, seq=8, role="console", framework="ultralytics", model="yolov8n", height_px=640, started=True),
            Progress(**FACT, seq=16, epoch=1, iterations_done=3, iterations_total=10, losses=(1.5, None, math.nan), train_s=0.25),
            Evaluation(**FACT, seq=24, epoch=1, map50=0.5, map50_95=math.nan, exact=True),
            ResultRow(**FACT, seq=32, epoch=1, time_s=12.5, losses=(1.0, 2.0), top1=0.75),
            Incident(**FACT, seq=40, epoch=1, what="oom_retry", batch=8, text="CUDA out of memory, retry with batch 8 \u2192"),
            SourceState(**FACT, seq=48, role="console", format="ultralytics_console", path="/runs/a/train.log", size_bytes=6),
            Loss(ts=TS, node="node-1", source="gpu", seq=4, last_seq=9, messages=6, size_bytes=600, reason="full"),
        ],
        "gpu": [
            Gpu(
                ts=TS, node="node-1", source="nvml", seq=(1764504000 << 32) | 7, period_s=1.0, offsets_ms=(0, 1000, 2000),
                gpu_uuid=("GPU-a", "GPU-b"), gpu_model=("H200", None), run_id=("0123456789abcdef", None), user=("u", None),
                team=(None, "t"), attribution_source=("slurm", None),
                columns=packed({"power_w": [100.0, 110.5, None, 0.0, 1.0, 2.0], "energy_j": [1e9, 1e9 + 0.125, 2e9, None, 0, 1]}),
            )
        ],
        "run": [
            Run(**ROW, place="node-1:/runs/a", imgsz=640, tokens_mtok=12.5, cost=Decimal("0.000123"), currency="USD",
                owner={"team": "vision"}, sources=("train.log",), started_ts=TS),
            Epoch(**ROW, attempt=1, epoch=1, kept=True, complete=True, tokens_mtok=6.25, losses=(1.0, math.inf)),
        ],
        "rate": [
            Rate(ts=TS, node="node-1", source="run", seq=5, run_id=None, window_s=60, rate_mtok_s=58.368, coverage_ratio=1.0,
                 active_rate_mtok_s=None),
            Coverage(ts=TS, node="node-1", source="nvml", seq=7, version=7, samples=10, samples_expected=12, messages=2),
        ],
        "dead": [
            DeadLetter(ts=TS, node="node-1", source="sink", seq=3, from_topic="yolometer.fact", from_partition=1, from_offset=3,
                       index=2, reason="field", detail="epoch is wrong", raw_key=b"k", raw=b"\xff{", digest="d" * 32),
        ],
    }  # fmt: skip


def main() -> None:
    version = f"v{wire.MAJOR}_{wire.MINOR}"
    (FOLDER / version).mkdir()
    for topic, events in examples(version).items():
        (FOLDER / version / f"{topic}.msgpack").write_bytes(written(topic, events))


def written(topic: str, events: list[Event]) -> bytes:
    """The message of some examples as this version writes it."""
    return wire.message(list(map(wire.pack, events)), node="node-1", at_ms=1764504000123, lane=topic, seq=(1764504000 << 32) | 7)


if __name__ == "__main__":
    main()
