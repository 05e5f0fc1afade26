"""What a meter tells beside its samples: which GPUs there are, and what befell them. What is new, and all GPUs each hour."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Protocol, runtime_checkable

from yolometer_core.devices import GpuDevice, GpuFault
from yolometer_core.events import Event
from yolometer_core.times import ms_of

AGAIN = timedelta(hours=1)
Made = Callable[..., Event]
"""An event that is made when its `seq` is known."""


@runtime_checkable
class Tells(Protocol):
    """A meter with an inventory and news; see `_nvml_words` for what they hold."""

    def devices(self) -> Sequence[Any]: ...

    def faults(self) -> Sequence[Any]: ...


class Teller:
    """Remembers what was said of each GPU."""

    def __init__(self, meter: object, node: str, source: str) -> None:
        self._meter = meter if isinstance(meter, Tells) else None
        self._node, self._source = node, source
        self._said: dict[str, Any] = {}
        self._again: datetime | None = None

    def news(self, now: datetime) -> Iterator[Made]:
        """The events that are due: faults since the last call, then devices that are new, changed or not said for an hour."""
        if self._meter is None:
            return
        for fault in self._meter.faults():
            said = {"gpu_uuid": fault.gpu_uuid, "what": fault.what, "xid": fault.xid, "detail": fault.detail}
            yield partial(GpuFault, **self._about(now), **said)
        if self._again is None or now >= self._again or now < self._again - 2 * AGAIN:
            self._again, self._said = now + AGAIN, {}
        for device in self._meter.devices():
            if self._said.get(device.uuid) == device:
                continue
            self._said[device.uuid] = device
            more = {name: value for name, value in device._asdict().items() if name not in ("uuid", "model")}
            known = {"version": ms_of(now), "gpu_uuid": device.uuid, "gpu_model": device.model, **more}
            yield partial(GpuDevice, **self._about(now), **known)

    def _about(self, now: datetime) -> dict[str, Any]:
        return {"ts": now, "node": self._node, "source": self._source}


__all__ = ["Made", "Teller", "Tells"]
