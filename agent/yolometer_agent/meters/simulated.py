"""Simulated: a node of GPUs that train, from a formula: the same time gives the same samples. For tests and demonstrations."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import cache

from pydantic import BaseModel, ConfigDict, Field

from yolometer_agent.meters._base import Device, Reading

_ZERO = datetime(2025, 1, 1, tzinfo=UTC)
_TOTAL_BYTES = 80 * 2**30


class Simulated(BaseModel):
    """GPUs whose load goes up and down, each at its own pace. Their energy is the exact integral of their power."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    gpus: int = Field(default=8, ge=1, le=1024, description="how many GPUs")
    seed: int = Field(default=1, description="another seed is another node")
    run_id: str | None = Field(default=None, description="the run that all of them work for")
    model: str = Field(default="Simulated 80GB", description="what they are called")
    period_s: float = Field(default=1.0, ge=0.05, le=60, description="seconds between samples")

    def sample(self, now: datetime) -> Sequence[Reading]:
        """The load at this time."""
        at_s = (now - _ZERO).total_seconds()
        return [self._reading(gpu, at_s) for gpu in range(self.gpus)]

    def _reading(self, gpu: int, at_s: float) -> Reading:
        uuid, wave_s, phase, mean_w, swing_w = _nature(self.seed, gpu)
        turn = 2 * math.pi / wave_s
        load = math.sin(turn * at_s + phase)
        device = Device(uuid, self.model, self.run_id, None, None, "simulated" if self.run_id else None)
        return Reading(device, {
            "gpu_util_ratio": 0.8 + 0.2 * load,
            "memory_used_bytes": float(int(_TOTAL_BYTES * (0.6 + 0.1 * load))),
            "memory_total_bytes": float(_TOTAL_BYTES),
            "power_w": mean_w + swing_w * load,
            "energy_j": mean_w * at_s - swing_w / turn * math.cos(turn * at_s + phase),
            "sm_clock_mhz": 1755.0 if load > -0.9 else 1410.0,
            "memory_clock_mhz": 1593.0,
            "temperature_c": float(round(55 + 12 * load)),
            "clock_event_reasons": 0.0,
        })  # fmt: skip


@cache
def _nature(seed: int, gpu: int) -> tuple[str, float, float, float, float]:
    """Of one GPU: its UUID, the seconds of its wave, where that begins, mean power and its swing in W."""
    chance = random.Random(f"{seed}/{gpu}")  # noqa: S311  # a formula, no secret
    digits = f"{chance.getrandbits(128):032x}"
    uuid = f"GPU-{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"
    return uuid, chance.uniform(20, 90), chance.uniform(0, 6.28), chance.uniform(250, 400), chance.uniform(30, 120)


METER = Simulated
