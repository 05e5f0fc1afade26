"""NVML: the GPUs of this node as NVIDIA's own library knows them. No CUDA context, so it takes no memory of any GPU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr

from yolometer_agent.meters._base import Reading
from yolometer_agent.meters._nvml_reader import Habits, Reader
from yolometer_agent.meters._nvml_words import Fault, GpuFacts, GpuProcess


class Nvml(BaseModel):
    """Reads all GPUs and MIG devices through nvidia-ml-py; the library is loaded with the first sample.

    A sample gives of each GPU what the card can say; what it cannot is None for good, what fails is None now, and a number
    that no card can mean is None and counted in `refused`. `memory_used_bytes` without a `memory_total_bytes` is the sum of
    what the processes hold (cards that use the host's memory). Counters (energy, times of throttling, replays, errors) go
    on from when the driver was loaded, and can begin again. A lost GPU gives `lost` 1 and nothing else, under its own UUID.
    What is read now and then (power limit, PCIe, ECC, NVLink, processes) is repeated until it is read again, and not after
    that failed. MIG: see `_nvml_mig`. Energy: see `_nvml_energy`.

    The object holds what it opened, so a sample is taken by one thread; `close` lets go of it.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    period_s: float = Field(default=1.0, ge=0.1, le=60, description="seconds between samples")
    processes_s: float = Field(default=12.0, ge=0.1, le=3600, description="seconds between lists of the processes of a GPU")
    slow_s: float = Field(default=30.0, ge=0.1, le=3600, description="seconds between reads of what changes rarely")
    hung_s: float = Field(default=3.0, ge=0.05, le=60, description="seconds after which a call into the driver counts as hung")
    reopen_s: float = Field(default=60.0, ge=0.1, le=3600, description="seconds between tries to find a lost GPU again")
    library: Path | None = Field(default=None, description="the file libnvidia-ml.so.1, where the loader does not find it")

    _reader: Reader | None = PrivateAttr(default=None)

    def sample(self, now: datetime) -> Sequence[Reading]:
        """Read all GPUs. Unavailable, within about `hung_s`, when nothing can be read; never old values.

        The time is the caller's; what needs one here (energy from power) goes by a steady clock.
        """
        return self._opened().sample()

    def devices(self) -> list[GpuFacts]:
        """The inventory: all GPUs and MIG devices seen so far. Cheap."""
        return self._reader.devices() if self._reader else []

    def faults(self) -> list[Fault]:
        """What went wrong, or right again, since the last call. Cheap."""
        return self._reader.faults() if self._reader else []

    def processes(self) -> dict[str, tuple[GpuProcess, ...]]:
        """By UUID, the processes as they were last listed; a GPU where they are not known is missing. Cheap."""
        return self._reader.processes() if self._reader else {}

    @property
    def call_seconds(self) -> Mapping[str, tuple[int, float, float]]:
        """By function of NVML: how often it was called, the seconds of all calls, and of the longest; `sample`: all of one."""
        return self._reader.call_seconds if self._reader else {}

    @property
    def refused(self) -> Mapping[str, int]:
        """By value: how many numbers were refused because no card can mean them."""
        return self._reader.refused if self._reader else {}

    def close(self) -> None:
        """Let go of NVML. A later sample opens it again."""
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.close()

    def _opened(self) -> Reader:
        if self._reader is None:
            self._reader = Reader(Habits(self.period_s, self.processes_s, self.slow_s, self.hung_s, self.reopen_s, self.library))
        return self._reader


METER = Nvml
