"""Events of NVML: the XID errors that the driver reports, fetched without waiting for one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from yolometer_agent.meters._nvml_driver import Driver, Lost, Never, NotNow
from yolometer_agent.meters._nvml_mig import address
from yolometer_agent.meters._nvml_words import Fault, xid_words

_XID = 8
_MOST_A_TICK = 64
_NO_INSTANCE = 2**32 - 1


class Events:
    """A set of events of all GPUs that can report any. NVML keeps those that nobody has fetched yet."""

    def __init__(self, driver: Driver, handles: Mapping[str, Any]) -> None:
        self._uuids = {address(handle): uuid for uuid, handle in handles.items()}
        self._set = driver.ask_or_none("nvmlEventSetCreate")
        self._wait = None
        if self._set is None:
            return
        for handle in handles.values():
            try:
                driver.ask("nvmlDeviceRegisterEvents", handle, _XID, self._set)
            except (Never, NotNow, Lost):
                continue
            self._wait = driver.bound("nvmlEventSetWait_v2", self._set, 0)

    def new(self) -> list[Fault]:
        """The XID errors since the last call. Gone passes through."""
        found: list[Fault] = []
        while self._wait is not None and len(found) < _MOST_A_TICK:
            try:
                event = self._wait()
            except Never:
                self._wait = None
            except (NotNow, Lost):  # there is none: this is how the wait of no time ends
                break
            else:
                found.append(self._fault(event))
        return found

    def _fault(self, event: Any) -> Fault:
        xid = int(event.eventData)
        where = "" if event.gpuInstanceId == _NO_INSTANCE else f" in GPU instance {event.gpuInstanceId}"
        return Fault("xid", self._uuids.get(address(event.device)), xid, f"{xid_words(xid)}{where}".strip())


__all__ = ["Events"]
