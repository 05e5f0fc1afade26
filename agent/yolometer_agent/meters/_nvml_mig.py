"""The MIG devices of a GPU: which there are, how large each one is, and what is read of it.

A MIG device is a device of its own, with a UUID of its own. What NVML tells of it is its memory and its processes. Clocks,
temperature, reasons and times of throttling are those of the GPU it is a part of, and are repeated, for they hold for each
part. Power, energy, limits, PCIe, NVLink and ECC belong to the GPU alone: they are None here and stand in the GPU's own
reading, which never goes away; whoever wants a part of the energy takes `sm_share_ratio` of the GPU's. Utilisation is None
on both, NVML has none in MIG mode. What is not given out to MIG devices remains with the GPU: 1 less all shares.
"""

from __future__ import annotations

import ctypes
from collections import Counter
from typing import Any

from yolometer_agent.meters._base import Device, Reading
from yolometer_agent.meters._nvml_driver import Driver
from yolometer_agent.meters._nvml_group import Group
from yolometer_agent.meters._nvml_values import Values, bytes_or_none
from yolometer_agent.meters._nvml_wants import MEMORY, NAMES, OF_THE_SLICE
from yolometer_agent.meters._nvml_words import GpuFacts, GpuProcess

_PROFILES = range(10)


class Slice:
    """One MIG device; made anew when the layout changes."""

    def __init__(self, driver: Driver, handle: Any, facts: GpuFacts, refused: Counter[str]) -> None:
        self.facts = facts
        self.processes: tuple[GpuProcess, ...] | None = None
        self.handle = handle
        self.doubtful = False
        self._group = Group((MEMORY,), driver, handle, Values(refused))
        self._device = Device(uuid=facts.uuid, model=facts.model)

    def reading(self, of_gpu: dict[str, float | None], now_s: float) -> Reading:
        """Its sample, with what it shares with the GPU."""
        values: dict[str, float | None] = dict.fromkeys(NAMES)
        values.update((name, of_gpu[name]) for name in OF_THE_SLICE)
        self._group.read(values, now_s)
        # as of one that was taken apart meanwhile
        self.doubtful = values["memory_total_bytes"] is None and self._group.can(MEMORY)
        values["processes"] = None if self.processes is None else float(len(self.processes))
        values["lost"] = 0.0
        return Reading(self._device, values)

    def lost(self) -> Reading:
        """Its sample while its GPU is lost."""
        return Reading(self._device, {**dict.fromkeys(NAMES), "lost": 1.0})


def in_mig_mode(driver: Driver, handle: Any) -> bool:
    """Whether a GPU is in MIG mode. Never when it does not know such a mode."""
    return bool(driver.ask("nvmlDeviceGetMigMode", handle)[0])


def slices_of(driver: Driver, handle: Any, gpu: GpuFacts, before: dict[str, Slice], refused: Counter[str]) -> dict[str, Slice]:
    """The MIG devices of a GPU by their UUIDs; those that were there `before` and still are stay the same objects."""
    found: dict[str, Slice] = {}
    whole: int | None = None
    places = driver.ask_or_none("nvmlDeviceGetMaxMigDeviceCount", handle) or 0
    for place in range(places):
        part = driver.ask_or_none("nvmlDeviceGetMigDeviceHandleByIndex", handle, place)
        uuid = None if part is None else driver.ask_or_none("nvmlDeviceGetUUID", part)
        if uuid is None:
            continue
        if uuid in before and same_handle(before[uuid].handle, part):
            found[uuid] = before[uuid]
            continue
        whole = _multiprocessors(driver, handle) if whole is None else whole
        facts = gpu._replace(
            uuid=uuid,
            model=driver.ask_or_none("nvmlDeviceGetName", part) or gpu.model,
            parent_uuid=gpu.uuid,
            sm_share_ratio=_share(driver.ask_or_none("nvmlDeviceGetAttributes", part), whole, places),
            memory_total_bytes=memory_total(driver, part),
            energy_source=None,
        )
        found[uuid] = Slice(driver, part, facts, refused)
    return found


def address(handle: Any) -> int:
    """What tells one handle of NVML from another."""
    return ctypes.addressof(handle.contents)


def same_handle(one: Any, other: Any) -> bool:
    """Whether two handles stand for the same device."""
    return address(one) == address(other)


def memory_total(driver: Driver, handle: Any) -> int | None:
    """How much memory a GPU or MIG device has; None for a card without memory of its own."""
    memory = driver.ask_or_none("nvmlDeviceGetMemoryInfo", handle)
    return bytes_or_none(memory.total) or None if memory else None


def _multiprocessors(driver: Driver, handle: Any) -> int:
    """How many multiprocessors the largest MIG device of a GPU has; 0 when it does not tell."""
    sizes = [driver.ask_or_none("nvmlDeviceGetGpuInstanceProfileInfo", handle, profile) for profile in _PROFILES]
    return max((size.multiprocessorCount for size in sizes if size), default=0)


def _share(attributes: Any, whole: int, places: int) -> float | None:
    """The part of the GPU by multiprocessors, or by slices where their number is not known."""
    if attributes is None:
        return None
    mine, of = (attributes.multiprocessorCount, whole) if whole else (attributes.gpuInstanceSliceCount, places)
    return mine / of if of and 0 < mine <= of else None


__all__ = ["Slice", "address", "in_mig_mode", "memory_total", "same_handle", "slices_of"]
