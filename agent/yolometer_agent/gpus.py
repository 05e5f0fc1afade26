"""GPUs with their holders: a meter that lists the processes of its GPUs, and what attribution makes of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Protocol, runtime_checkable

from yolometer_agent.attribute._base import GpuProcess, Holder, Known
from yolometer_agent.attribute.attribute import Attributor
from yolometer_agent.meters._base import Device, Meter, Reading

EVERY_S = 12.0


class Process(Protocol):
    """A process on a GPU, as a meter lists it."""

    @property
    def pid(self) -> int: ...

    @property
    def memory_bytes(self) -> int | None: ...


@runtime_checkable
class Lists(Protocol):
    """A meter that knows which processes compute on its GPUs; a GPU where it does not know is left out."""

    def processes(self) -> Mapping[str, Sequence[Process]]: ...


class Held:
    """A meter whose readings say for whom each GPU works. Looks at the processes each `EVERY_S`; between, a GPU keeps its holder.

    For one thread, that of the meter. `known` gives the places that are tailed at the moment.
    """

    def __init__(
        self, meter: Meter, attributor: Attributor, known: Callable[[], tuple[Known, ...]], clock: Callable[[], float]
    ) -> None:
        self.meter = meter
        self._attributor, self._known, self._clock = attributor, known, clock
        self._holders: dict[str, list[Holder]] = {}
        self._next_s = clock()

    @property
    def period_s(self) -> float:
        return self.meter.period_s

    def sample(self, now: datetime) -> Sequence[Reading]:
        """As the meter has it, with holders."""
        readings = self.meter.sample(now)
        unseen = any(reading.device.uuid not in self._holders for reading in readings)
        if self._clock() >= self._next_s or unseen:
            self._next_s = self._clock() + EVERY_S
            self._look([reading.device.uuid for reading in readings])
        return [self._held(reading) for reading in readings]

    def _look(self, uuids: Sequence[str]) -> None:
        listed = self.meter.processes() if isinstance(self.meter, Lists) else {}
        gpus = {
            uuid: [GpuProcess(one.pid, one.memory_bytes) for one in listed[uuid]] if uuid in listed else None for uuid in uuids
        }
        self._holders = self._attributor.refresh(gpus, self._known())

    def _held(self, reading: Reading) -> Reading:
        holders = self._holders.get(reading.device.uuid)
        if not holders:
            return reading
        values = dict(reading.values)
        if values.get("processes") is not None:
            values["foreign_processes"] = float(sum(holder.processes for holder in holders[1:]))
        return Reading(held(reading.device, holders), values)


def held(device: Device, holders: Sequence[Holder]) -> Device:
    """The GPU as that of its holders: where there are several, with their shares, and with what they have in common."""

    def common(name: str) -> str | None:
        values = {getattr(holder, name) for holder in holders}
        return values.pop() if len(values) == 1 else None

    shares = tuple((one.run_id, one.user, one.team, one.attribution_source, one.holder, one.share_micro) for one in holders)
    return device._replace(
        run_id=common("run_id"), user=common("user"), team=common("team"), holder=common("holder"),
        attribution_source=holders[0].attribution_source, shares=shares if len(holders) > 1 else (),
    )  # fmt: skip


__all__ = ["EVERY_S", "Held", "Lists", "held"]
