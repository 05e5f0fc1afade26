"""The event of the meters: some seconds of samples of all GPUs of a node, in columns; each sample becomes a row.

One message holds many samples because a stream costs the same for a message of one sample and of forty.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any, ClassVar, Self

from pydantic import Field, model_validator

from yolometer_core.events import Event

METRICS: dict[str, str] = {
    "gpu_util_ratio": "f",
    "memory_used_bytes": "d",
    "memory_total_bytes": "d",
    "power_w": "f",
    "energy_j": "d",
    "sm_clock_mhz": "f",
    "memory_clock_mhz": "f",
    "temperature_c": "f",
    "clock_event_reasons": "d",
    "memory_util_ratio": "f",
    "power_limit_w": "f",
    "pcie_gen": "f",
    "pcie_width": "f",
    "pcie_replays": "d",
    "ecc_corrected": "d",
    "ecc_uncorrected": "d",
    "throttle_power_s": "d",
    "throttle_thermal_s": "d",
    "throttle_hw_thermal_s": "d",
    "throttle_brake_s": "d",
    "throttle_sync_s": "d",
    "nvlink_errors": "d",
    "processes": "f",
    "foreign_processes": "f",
    "lost": "f",
}
"""What is measured, and how it is packed: `f` 4-byte and `d` 8-byte floats, little-endian, NaN for unknown. Whole numbers up
to 2^53 are exact. A name never changes its packing; later versions add names. `energy_j`, `throttle_..._s` and the errors count
since the driver was loaded: take differences. `processes` compute on the GPU, `foreign_processes` of them not for its run; `lost`
is 1 while the driver has lost the GPU, and then all else is unknown."""
MOST_SAMPLES = 100_000
_SIZES = {"f": 4, "d": 8}
_ABOUT = ("gpu_model", "run_id", "user", "team", "attribution_source")
_LATER = ("holder", "energy_source")
WHOLE_MICRO = 1_000_000
Share = tuple[str | None, str | None, str | None, str | None, str | None, int]
"""One of several that share a GPU: run_id, user, team, attribution_source, holder, and its share in millionths."""


class Gpu(Event):
    """Samples of the GPUs of a node: `offsets_ms` after `ts` for each time, and one entry a GPU in the columns of strings.

    `columns` holds the metrics by name, packed, all times of the first GPU, then all of the second one. A metric that
    is left out is unknown for all. Each GPU is known by its UUID, never its index, and is already attributed: `run_id` where
    a launcher names the run, `holder` the key under which the stream knows it (a place, or a job as `job:...`). `shared` has
    those that share a GPU, by its UUID; their shares add up to a million. `energy_source` says how `energy_j` came about:
    `counter` of the card, or integrated `power`. The identity of a sample is (node, gpu_uuid, ts).
    """

    table: ClassVar[str] = "gpu"
    topic: ClassVar[str | None] = "gpu"

    period_s: float = Field(gt=0, le=3600, allow_inf_nan=False)
    offsets_ms: tuple[int, ...]
    gpu_uuid: tuple[str, ...]
    gpu_model: tuple[str | None, ...]
    run_id: tuple[str | None, ...]
    user: tuple[str | None, ...]
    team: tuple[str | None, ...]
    attribution_source: tuple[str | None, ...]
    columns: dict[str, bytes]
    holder: tuple[str | None, ...] = ()
    energy_source: tuple[str | None, ...] = ()
    shared: dict[str, tuple[Share, ...]] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _fits(self) -> Self:
        said = self.__dict__  # this runs for each message of a fleet, and asking a model for its fields takes longer
        uuids, offsets_ms = said["gpu_uuid"], said["offsets_ms"]
        gpus, samples = len(uuids), len(uuids) * len(offsets_ms)
        if not samples:
            raise ValueError("it holds no samples")
        if samples > MOST_SAMPLES:
            raise ValueError(f"it holds more than {MOST_SAMPLES} samples")
        if offsets_ms[0] < 0 or list(offsets_ms) != sorted(set(offsets_ms)):
            raise ValueError("its times do not grow")
        if len(set(uuids)) != gpus:
            raise ValueError("a GPU is in it twice")
        for name in _ABOUT:
            if len(said[name]) != gpus:
                raise ValueError(f"{name} has not one entry for each GPU")
        for name in _LATER:
            if said[name] and len(said[name]) != gpus:
                raise ValueError(f"{name} has not one entry for each GPU")
        for uuid, shares in said["shared"].items():
            if uuid not in uuids or sum(share[-1] for share in shares) != WHOLE_MICRO or any(share[-1] < 0 for share in shares):
                raise ValueError("shared has a GPU whose shares do not add up to a million")
        for name, packed in said["columns"].items():
            kind = METRICS.get(name)
            if kind is not None and len(packed) != samples * _SIZES[kind]:
                raise ValueError(f"{name} has not one value for each sample")
        return self

    @property
    def samples(self) -> int:
        """How many rows it becomes."""
        return len(self.gpu_uuid) * len(self.offsets_ms)

    def about(self, name: str) -> Sequence[str | None]:
        """What is said of each GPU: None for all where an older agent does not say it."""
        return getattr(self, name) or (None,) * len(self.gpu_uuid)

    def values(self, name: str) -> Sequence[float]:
        """A metric as floats, NaN where it is unknown, in the order of `columns`."""
        packed = self.columns.get(name)
        if packed is None:
            return array("d", [float("nan")]) * self.samples
        return array(METRICS[name], packed)

    def samples_of(self) -> Iterator[dict[str, Any]]:
        """The rows: fields by name, unknown is None. For tests and small numbers; the store builds whole columns instead."""
        metrics = {name: self.values(name) for name in METRICS}
        times = len(self.offsets_ms)
        holder, energy_source = self.about("holder"), self.about("energy_source")
        for gpu, uuid in enumerate(self.gpu_uuid):
            for at, offset_ms in enumerate(self.offsets_ms):
                measured = {name: _known(values[gpu * times + at]) for name, values in metrics.items()}
                ts = self.ts + timedelta(milliseconds=offset_ms)
                yield {"schema_version": self.schema_version, "ts": ts, "node": self.node, "source": self.source,
                       "seq": self.seq, "period_s": self.period_s, "gpu_uuid": uuid,
                       "gpu_model": self.gpu_model[gpu], "run_id": self.run_id[gpu], "user": self.user[gpu],
                       "team": self.team[gpu], "attribution_source": self.attribution_source[gpu], "holder": holder[gpu],
                       "energy_source": energy_source[gpu], **measured}  # fmt: skip


def packed(metrics: Mapping[str, Sequence[float | None]]) -> dict[str, bytes]:
    """Columns of numbers as the event holds them; None becomes NaN. A name that is not in METRICS is a KeyError."""
    return {
        name: array(METRICS[name], [float("nan") if value is None else value for value in values]).tobytes()
        for name, values in metrics.items()
    }


def _known(value: float) -> float | None:
    return value if value == value else None  # noqa: PLR0124  # NaN is the one number that differs from itself
