"""The events about the GPUs of a node themselves: which there are, and what befell them."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from yolometer_core.events import Event

FaultKind = Literal["lost", "back", "xid", "blind", "seeing"]


class GpuDevice(Event):
    """A GPU of a node, or a slice of one (MIG), as it is now; said at start, when it changes, and now and then.

    `sm_share_ratio` is the part of its parent's multiprocessors that a slice has. `energy_source` says how its energy is known
    in this life of the agent: by the `counter` of the card, or by integrating its `power`.
    """

    table: ClassVar[str] = "gpu_device"
    topic: ClassVar[str | None] = "gpu"
    identity: ClassVar[tuple[str, ...]] = ("node", "gpu_uuid")

    gpu_uuid: str
    gpu_model: str | None = None
    parent_uuid: str | None = None
    sm_share_ratio: float | None = Field(default=None, gt=0, le=1)
    memory_total_bytes: int | None = Field(default=None, gt=-1)
    driver_version: str | None = None
    pci_bus_id: str | None = None
    gpu_index: int | None = Field(default=None, gt=-1)
    energy_source: str | None = None
    version: int = Field(ge=0)


class GpuFault(Event):
    """What befell a GPU, or with `gpu_uuid` null all of them: the driver lost it or has it back, an XID of the driver, or the
    meter is blind (it cannot read anything) or sees again.
    """

    table: ClassVar[str] = "gpu_fault"
    topic: ClassVar[str | None] = "gpu"
    identity: ClassVar[tuple[str, ...]] = ("node", "gpu_uuid", "what", "ts")

    gpu_uuid: str | None = None
    what: FaultKind
    xid: int | None = Field(default=None, gt=-1)
    detail: str | None = None
