"""One GPU and its MIG devices: what is read of them with each sample, and what now and then."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, NamedTuple

from yolometer_agent.meters._base import Device, Reading
from yolometer_agent.meters._nvml_driver import Driver, Lost, Never, NotNow
from yolometer_agent.meters._nvml_energy import Energy
from yolometer_agent.meters._nvml_group import Group
from yolometer_agent.meters._nvml_mig import Slice, in_mig_mode, slices_of
from yolometer_agent.meters._nvml_values import Values, bytes_or_none
from yolometer_agent.meters._nvml_wants import ENERGY, MEMORY, NAMES, NOW_AND_THEN, POWER, each_tick
from yolometer_agent.meters._nvml_words import GpuFacts, GpuProcess

_LINK_COUNT, _MOST_LINKS = 91, 64
_PROCESSES = (
    ("nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetComputeRunningProcesses_v2"),
    ("nvmlDeviceGetMPSComputeRunningProcesses_v3", "nvmlDeviceGetMPSComputeRunningProcesses_v2"),
)
"""Processes that compute by themselves, and through MPS; the newer call of each first."""


class Pace(NamedTuple):
    """How often the dearer things are read, in seconds."""

    processes_s: float
    slow_s: float


class Card:
    """A GPU by one handle. It lives as long as the driver is loaded; the energy outlives it, so its method never changes."""

    def __init__(self, driver: Driver, handle: Any, facts: GpuFacts, energy: Energy, pace: Pace, refused: Counter[str]) -> None:
        self.handle = handle
        self.lost: str | None = None
        self.mute = False
        self.processes: tuple[GpuProcess, ...] | None = None
        self.slices: dict[str, Slice] = {}
        self._driver, self._facts, self._energy, self._pace, self._refused = driver, facts, energy, pace, refused
        self._asks = [list(names) for names in _PROCESSES]
        self._knows_mig, self._mig = True, False
        self._device = Device(uuid=facts.uuid, model=facts.model)
        self._quick: Group | None = None
        self._forget()

    def read(self, now_s: float) -> list[Reading]:
        """A reading of the GPU and of each of its MIG devices. A lost GPU says `lost` and nothing else. Gone passes through.

        `lost` then holds why. `mute` is set when each question fails, though the GPU is not said to be lost.
        """
        try:
            quick = self._begin() if self._quick is None else self._quick
            values = self._values(quick, now_s)
            readings = [part.reading(values, now_s) for part in self.slices.values()]
        except Lost as error:
            self.lost = str(error)
            self._energy.integrated(None, now_s)
            self._quick = None  # when it is back it was reset, and is asked as a card that nobody has asked yet
            self._forget()
            nothing = {**dict.fromkeys(NAMES), "lost": 1.0}
            return [Reading(self._said(), nothing), *(part.lost() for part in self.slices.values())]
        self.lost = None
        if any(part.doubtful for part in self.slices.values()):
            self._mig_at = now_s
        return [Reading(self._said(), values), *readings]

    def _begin(self) -> Group:
        """Ask for everything, as of a card that nobody has asked yet."""
        links = _links(self._driver, self.handle)
        wants = [want for want in each_tick(self._facts.driver_version) if want is not ENERGY or self._energy.source != "power"]
        self._known = Values(self._refused)
        self._slow = Group(NOW_AND_THEN, self._driver, self.handle, self._known, links)
        self._quick = Group(wants, self._driver, self.handle, self._known)
        self._forget()
        return self._quick

    def _forget(self) -> None:
        """Repeat nothing of what was read before."""
        self._slow_values: dict[str, float | None] = {}
        self._slow_at = self._processes_at = self._mig_at = float("-inf")
        self.processes = None
        for part in self.slices.values():
            part.processes = None

    def _said(self) -> Device:
        if self._device.energy_source != self._energy.source:
            self._device = self._device._replace(energy_source=self._energy.source)
        return self._device

    def _values(self, quick: Group, now_s: float) -> dict[str, float | None]:
        values: dict[str, float | None] = dict.fromkeys(NAMES)
        quick.read(values, now_s)
        self.mute = all(value is None for value in values.values()) and quick.alive()
        values["lost"] = 0.0
        if self.mute:
            self._forget()
            self._energy.integrated(None, now_s)
            return values
        if now_s >= self._slow_at:
            self._slow_at = now_s + self._pace.slow_s
            self._slow_values = {}
            self._slow.read(self._slow_values, now_s)
        if now_s >= self._mig_at:
            self._mig_at = now_s + self._pace.slow_s
            self._look_at_mig()
        if now_s >= self._processes_at:
            self._processes_at = now_s + self._pace.processes_s
            self._read_processes()
        values.update(self._slow_values)
        values["processes"] = None if self.processes is None else float(len(self.processes))
        self._memory(quick, values)
        self._read_energy(quick, values, now_s)
        return values

    def _memory(self, quick: Group, values: dict[str, float | None]) -> None:
        used, total = values["memory_used_bytes"], values["memory_total_bytes"]
        if used is not None and total is not None and used > total:
            self._known.refuse("memory_used_bytes")
            values["memory_used_bytes"] = None
        elif total is None and self.processes and not quick.can(MEMORY):
            # a part without memory of its own (it uses the host's): what the processes hold, if all of them are known
            parts = [process.memory_bytes for process in self.processes]
            values["memory_used_bytes"] = None if None in parts else float(sum(part or 0 for part in parts))

    def _read_energy(self, quick: Group, values: dict[str, float | None], now_s: float) -> None:
        energy = self._energy
        if energy.source is None:
            if values["energy_j"] is not None:
                energy.source = "counter"
            elif not quick.can(ENERGY) and quick.can(POWER):
                energy.source = "power"
        if energy.source == "power":
            values["energy_j"] = energy.integrated(values["power_w"], now_s)

    def _look_at_mig(self) -> None:
        """Find the MIG devices; a change of the mode changes what the card can answer, so it is asked anew next time."""
        if not self._knows_mig:
            return
        try:
            mig = in_mig_mode(self._driver, self.handle)
        except Never:
            self._knows_mig = False
            return
        except NotNow:
            return
        self.slices = slices_of(self._driver, self.handle, self._facts, self.slices, self._refused) if mig else {}
        if mig != self._mig:
            self._mig = mig
            self._quick = None

    def _read_processes(self) -> None:
        """Who computes here. In MIG mode these are the processes of the MIG devices, and the GPU itself has none."""
        for part in self.slices.values():
            part.processes = self._listed(part.handle)
        self.processes = () if self._mig else self._listed(self.handle)

    def _listed(self, handle: Any) -> tuple[GpuProcess, ...] | None:
        found: dict[int, GpuProcess] = {}
        known = False
        for names in self._asks:
            while names:
                try:
                    listed = self._driver.ask(names[0], handle)
                except Never:
                    names.pop(0)
                    continue
                except NotNow:
                    return None
                known = True
                found.update((process.pid, GpuProcess(process.pid, bytes_or_none(process.usedGpuMemory))) for process in listed)
                break
        return tuple(found.values()) if known else None


def _links(driver: Driver, handle: Any) -> int:
    """How many NVLinks a card has."""
    try:
        ((code, count),) = driver.bound_fields(handle, [(_LINK_COUNT, 0)])()
    except (Never, NotNow):
        return 0
    return 0 if code else min(int(count), _MOST_LINKS)


def processes_of(cards: Mapping[str, Card]) -> dict[str, tuple[GpuProcess, ...]]:
    """The processes of all GPUs and MIG devices whose processes are known."""
    everyone = [(uuid, card.processes) for uuid, card in cards.items()]
    everyone += [(uuid, part.processes) for card in cards.values() for uuid, part in card.slices.items()]
    return {uuid: processes for uuid, processes in everyone if processes is not None}


__all__ = ["Card", "Pace", "processes_of"]
