"""What the NVML meter says beside its readings: what a GPU is, what went wrong, who computes on it."""

from __future__ import annotations

from typing import NamedTuple


class GpuFacts(NamedTuple):
    """One GPU, or one MIG device, in the inventory; None is unknown.

    `parent_uuid` and `sm_share_ratio` stand at MIG devices only: the GPU it is a part of, and its part of the multiprocessors
    that this GPU can give to MIG devices. `energy_source` is how its energy is known: `counter` (of the driver), `power`
    (integrated) or None (not at all, or not decided yet).
    """

    uuid: str
    model: str | None
    parent_uuid: str | None
    sm_share_ratio: float | None
    memory_total_bytes: int | None
    driver_version: str | None
    pci_bus_id: str | None
    gpu_index: int | None
    energy_source: str | None


class GpuProcess(NamedTuple):
    """A process that computes on a GPU; the pid is the host's. Its memory is None where the driver does not tell."""

    pid: int
    memory_bytes: int | None


class Fault(NamedTuple):
    """Something that went wrong, or is right again.

    `what` is lost or back (one GPU), xid (an error the driver reported for a GPU), blind or seeing (the whole meter, then
    `gpu_uuid` is None). `gpu_uuid` is also None for a GPU that was lost before anybody could ask who it is.
    """

    what: str
    gpu_uuid: str | None
    xid: int | None
    detail: str


_XIDS = {
    13: "an instruction of the program failed",
    31: "the program used memory that is not its own",
    43: "the program was stopped by the GPU",
    45: "the program was ended before it was done",
    48: "memory error that cannot be corrected",
    61: "fault of the GPU's own controller",
    62: "fault of the GPU's own controller",
    63: "a bad row of memory was replaced",
    64: "a bad row of memory could not be replaced",
    74: "NVLink error",
    79: "the GPU has fallen off the bus",
    92: "many memory errors that were corrected",
    94: "memory error that ended the program",
    95: "memory error that can have reached other programs",
    119: "the GPU's own processor does not answer",
    120: "the GPU's own processor failed",
}


def xid_words(xid: int) -> str:
    """What an XID number means, in a few words, as NVIDIA's list of them has it; empty for one that is not common."""
    return _XIDS.get(xid, "")


__all__ = ["Fault", "GpuFacts", "GpuProcess", "xid_words"]
