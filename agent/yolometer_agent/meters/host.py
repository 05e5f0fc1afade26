"""Host: CPU, memory, network and the disk of the training data, by psutil. No GPU is in it, so it is no Meter."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from yolometer_core.errors import Unavailable


class HostReading(NamedTuple):
    """What the host did since the reading before; None is unknown, as all rates are in the first reading.

    `cpu_ratio` is the part of all CPUs that worked, `iowait_ratio` the part that had nothing to do but wait for a disk;
    with what was idle they are 1. `memory_used_bytes` is what cannot be had any more, so a cache of files does not count.
    `disk` is the block device below the training data, None where there is none (a network file system, an overlay);
    `disk_busy_ratio` the part of the time it had something to do. The network is all interfaces of hardware together, or
    all but the loopback where there is no hardware, as in a container.
    """

    cpu_ratio: float | None
    iowait_ratio: float | None
    memory_used_bytes: int | None
    memory_total_bytes: int | None
    disk: str | None
    disk_read_bytes_per_s: float | None
    disk_write_bytes_per_s: float | None
    disk_busy_ratio: float | None
    network_received_bytes_per_s: float | None
    network_sent_bytes_per_s: float | None


class Counters(NamedTuple):
    """What the kernel has counted up to a moment of a steady clock; None is unknown. CPU in seconds of all CPUs together."""

    at_s: float
    cpu_s: float | None = None
    idle_s: float | None = None
    iowait_s: float | None = None
    memory_used_bytes: int | None = None
    memory_total_bytes: int | None = None
    disk: str | None = None
    read_bytes: int | None = None
    written_bytes: int | None = None
    busy_s: float | None = None
    received_bytes: int | None = None
    sent_bytes: int | None = None


def reading(before: Counters | None, now: Counters) -> HostReading:
    """The rates between two moments. A counter that went back, or another disk, is unknown once."""
    passed_s = now.at_s - before.at_s if before is not None else 0.0
    same_disk = before is not None and before.disk == now.disk

    def grown(name: str) -> float | None:
        first, last = getattr(before, name, None), getattr(now, name)
        return None if first is None or last is None or last < first else last - first

    def rate(name: str, known: bool = True) -> float | None:
        more = grown(name)
        return None if more is None or passed_s <= 0 or not known else more / passed_s

    cpu_s, idle_s, iowait_s = grown("cpu_s"), grown("idle_s"), grown("iowait_s")
    cpu = None if not cpu_s or idle_s is None or iowait_s is None else 1 - (idle_s + iowait_s) / cpu_s
    iowait = None if not cpu_s or iowait_s is None else iowait_s / cpu_s
    return HostReading(
        cpu_ratio=_ratio(cpu),
        iowait_ratio=_ratio(iowait),
        memory_used_bytes=now.memory_used_bytes,
        memory_total_bytes=now.memory_total_bytes,
        disk=now.disk,
        disk_read_bytes_per_s=rate("read_bytes", same_disk),
        disk_write_bytes_per_s=rate("written_bytes", same_disk),
        disk_busy_ratio=_ratio(rate("busy_s", same_disk)),
        network_received_bytes_per_s=rate("received_bytes"),
        network_sent_bytes_per_s=rate("sent_bytes"),
    )


class Host:
    """Reads the host again and again. `folder` is where the training data lies; `system` is /sys.

    psutil reads below its own `PROCFS_PATH`. Unavailable when psutil is not installed; what the kernel does not tell is None.
    """

    def __init__(
        self, folder: Path | None = None, *, clock: Callable[[], float] = time.monotonic, system: Path = Path("/sys")
    ) -> None:
        self._folder, self._clock, self._system = folder, clock, system
        self._before: Counters | None = None

    def read(self) -> HostReading:
        """What the host did since the last call."""
        try:
            import psutil
        except ImportError:
            raise Unavailable("The package psutil is missing; install it, for example with pip.") from None
        now = self._counters(psutil)
        before, self._before = self._before, now
        return reading(before, now)

    def _counters(self, psutil: Any) -> Counters:
        disk = disk_of(self._folder, self._system) if self._folder is not None else None
        cpu, memory = _or_none(psutil.cpu_times), _or_none(psutil.virtual_memory)
        disks = _or_none(lambda: psutil.disk_io_counters(perdisk=True, nowrap=False)) or {}
        nics = _or_none(lambda: psutil.net_io_counters(pernic=True, nowrap=False)) or {}
        io = disks.get(disk)
        nics = [nics[name] for name in _hardware(list(nics), self._system)]
        return Counters(
            at_s=self._clock(),
            # the time of guests is in that of their users already
            cpu_s=sum(value for name, value in cpu._asdict().items() if not name.startswith("guest")) if cpu else None,
            idle_s=cpu.idle if cpu else None,
            iowait_s=getattr(cpu, "iowait", None),
            memory_used_bytes=memory.total - memory.available if memory else None,
            memory_total_bytes=memory.total if memory else None,
            disk=disk,
            read_bytes=io.read_bytes if io else None,
            written_bytes=io.write_bytes if io else None,
            busy_s=io.busy_time / 1000 if io and hasattr(io, "busy_time") else None,
            received_bytes=sum(nic.bytes_recv for nic in nics) if nics else None,
            sent_bytes=sum(nic.bytes_sent for nic in nics) if nics else None,
        )


def disk_of(folder: Path, system: Path = Path("/sys")) -> str | None:
    """The name of the block device a folder lies on, as the kernel counts it (`nvme0n1p2`, `dm-0`); None without one."""
    try:
        device = folder.stat().st_dev
        return (system / "dev" / "block" / f"{os.major(device)}:{os.minor(device)}").resolve(strict=True).name
    except OSError:
        return None


def _hardware(names: list[str], system: Path) -> list[str]:
    """The interfaces to count: bridges and the ends of containers would count the same bytes again."""
    real = [name for name in names if (system / "class" / "net" / name / "device").exists()]
    return real or [name for name in names if name != "lo"]


def _or_none(ask: Callable[[], Any]) -> Any:
    """What psutil says, or None where this kernel (or a container) does not tell."""
    try:
        return ask()
    except (OSError, NotImplementedError, RuntimeError, ValueError):
        return None


def _ratio(value: float | None) -> float | None:
    """Ratios are made of counters that are not read at one moment, so they can be a little outside."""
    return None if value is None else min(max(value, 0.0), 1.0)


__all__ = ["Counters", "Host", "HostReading", "disk_of", "reading"]
