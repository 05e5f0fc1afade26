"""The page of dcgm-exporter: text of Prometheus, of which the fields that mean something to us become numbers by GPU.

Names and units are those of DCGM's dcgm_fields.h; numbers are given on in the units of NVML, and one place (`_nvml_values`)
judges both.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

_MIB = 2.0**20
_WAYS: dict[str, tuple[tuple[str, float], ...]] = {
    # profiling tells the part of the time; where both are there, that of NVML is the one all others show
    "gpu_util_ratio": (("DEV_GPU_UTIL", 1), ("PROF_GR_ENGINE_ACTIVE", 100)),
    "memory_util_ratio": (("DEV_MEM_COPY_UTIL", 1), ("PROF_DRAM_ACTIVE", 100)),
    "memory_used_bytes": (("DEV_FB_USED", _MIB),),
    "memory_total_bytes": (("DEV_FB_TOTAL", _MIB),),
    "power_w": (("DEV_POWER_USAGE", 1000), ("DEV_POWER_USAGE_INSTANT", 1000)),
    "power_limit_w": (("DEV_ENFORCED_POWER_LIMIT", 1000), ("DEV_POWER_MGMT_LIMIT", 1000)),
    "energy_j": (("DEV_TOTAL_ENERGY_CONSUMPTION", 1),),
    "sm_clock_mhz": (("DEV_SM_CLOCK", 1),),
    "memory_clock_mhz": (("DEV_MEM_CLOCK", 1),),
    "temperature_c": (("DEV_GPU_TEMP", 1),),
    "clock_event_reasons": (("DEV_CLOCKS_EVENT_REASONS", 1), ("DEV_CLOCK_THROTTLE_REASONS", 1)),
    "throttle_power_s": (("DEV_POWER_VIOLATION", 1),),
    "throttle_thermal_s": (("DEV_THERMAL_VIOLATION", 1),),
    "throttle_sync_s": (("DEV_SYNC_BOOST_VIOLATION", 1),),
    "pcie_gen": (("DEV_PCIE_LINK_GEN", 1),),
    "pcie_width": (("DEV_PCIE_LINK_WIDTH", 1),),
    "pcie_replays": (("DEV_PCIE_REPLAY_COUNTER", 1),),
    "ecc_corrected": (("DEV_ECC_SBE_VOL_TOTAL", 1),),
    "ecc_uncorrected": (("DEV_ECC_DBE_VOL_TOTAL", 1),),
}
_MEMORY = ("DEV_FB_USED", "DEV_FB_FREE", "DEV_FB_RESERVED")
_LINKS = ("DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL", "DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL",
          "DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL", "DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL")  # fmt: skip
_SUMS = {"memory_total_bytes": (_MEMORY, _MIB), "nvlink_errors": (_LINKS, 1.0)}
"""What can also be had by adding up; the sum of memory needs all of its parts, that of errors only one."""
_OF_A_PART = frozenset({"gpu_util_ratio", "memory_util_ratio", "memory_used_bytes", "memory_total_bytes"})
"""What is of one MIG device when the line is."""
FOUND = (*_WAYS, "nvlink_errors")
"""The names of all values that can be had of a page."""
_XID = "DEV_XID_ERRORS"
_FIELDS = frozenset({_XID, *_MEMORY, *_LINKS, *(field for ways in _WAYS.values() for field, _ in ways)})
_PREFIX = "DCGM_FI_"


class Gpu(NamedTuple):
    """One GPU on the page; `numbers` by the names of METRICS, in the units of NVML, None where the page has a blank."""

    model: str | None
    gpu_index: int | None
    pci_bus_id: str | None
    driver_version: str | None
    xid: int | None
    numbers: Mapping[str, float | None]


class _Lines:
    """What the lines of one GPU say."""

    def __init__(self, labels: Mapping[str, str]) -> None:
        self.labels = labels
        self.fields: dict[str, float | None] = {}
        self.is_sliced = False


def page_of(text: str) -> tuple[dict[str, Gpu], int]:
    """The GPUs of a page by their UUIDs, in its order, and how many lines could not be understood."""
    from prometheus_client.parser import text_string_to_metric_families

    gpus: dict[str, _Lines] = {}
    bad = 0
    for line in text.splitlines():
        # the page has many times more lines than we know what to do with, and one bad one must not cost the others
        if not line.startswith(_PREFIX) or line[len(_PREFIX) :].split("{", 1)[0] not in _FIELDS:
            continue
        try:
            (family,) = text_string_to_metric_families(line)
            (sample,) = family.samples
        except ValueError:
            bad += 1
            continue
        uuid = sample.labels.get("UUID") or sample.labels.get("uuid")
        if not uuid:
            continue  # of a switch, a link or a CPU
        lines = gpus.setdefault(uuid, _Lines(sample.labels))
        field = sample.name.removeprefix(_PREFIX)
        if sample.labels.get("GPU_I_ID"):
            lines.is_sliced = True
        lines.fields.setdefault(field, _or_blank(sample.value))
    return {uuid: _gpu(lines) for uuid, lines in gpus.items()}, bad


def _gpu(lines: _Lines) -> Gpu:
    labels = lines.labels
    index = labels.get("gpu", "")
    xid = lines.fields.get(_XID)
    return Gpu(
        model=labels.get("modelName") or None,
        gpu_index=int(index) if index.isdecimal() else None,
        pci_bus_id=labels.get("pci_bus_id") or None,
        driver_version=labels.get(f"{_PREFIX}DRIVER_VERSION") or None,
        xid=None if xid is None else int(xid),
        numbers={name: number for name in FOUND for number in [_number(name, lines)]},
    )


def _number(name: str, lines: _Lines) -> float | None:
    if lines.is_sliced and name in _OF_A_PART:
        return None
    for field, per in _WAYS.get(name, ()):
        found = lines.fields.get(field)
        if found is not None:
            return found * per
    fields, per = _SUMS.get(name, ((), 1.0))
    parts = [lines.fields.get(field) for field in fields]
    known = [part for part in parts if part is not None]
    if not known or (fields is _MEMORY and len(known) < len(parts)):
        return None
    return sum(known) * per


def _or_blank(value: float) -> float | None:
    """The number, or None for what DCGM writes when it has none: blanks of 32 and 64 bits, and as a double."""
    if not math.isfinite(value) or value >= 0x7FFFFFFFFFFFFFF0:
        return None
    return None if 0x7FFFFFF0 <= value <= 0x7FFFFFFF or 2.0**47 <= value < 2.0**47 + 16 else value


__all__ = ["FOUND", "Gpu", "page_of"]
