"""Open files: the folders in which a process has files open for writing."""

from __future__ import annotations

import os
from collections.abc import Container, Iterator
from itertools import islice

from yolometer_agent.attribute.processes import Process, Processes

_MOST_DESCRIPTORS = 512
"""A log is opened early, so its number is low; a process with more open files is looked at so far."""
_MOST_LEVELS = 4
"""A log of another training may lie far below a folder that is a place only because one log lies in it."""


def opened(table: Processes, process: Process, marks: Container[str]) -> Iterator[str]:
    """Those of `marks`, files and folders, that the process has open for writing, itself or a file not far below it.

    Never raises OSError.
    """
    try:
        with os.scandir(f"{table.proc}/{process.pid}/fd") as listing:
            descriptors = [entry.name for entry in islice(listing, _MOST_DESCRIPTORS)]
    except PermissionError:
        table.counts["proc", "fd_denied"] += 1
        return
    except OSError:
        return
    for descriptor in descriptors:
        name = table.link(f"{process.pid}/fd/{descriptor}")
        if not name or not name.startswith("/") or name.startswith("/dev/"):
            continue
        mark = _within(name, marks)
        if mark is not None and _writes(table, process.pid, descriptor):
            yield mark


def _within(name: str, marks: Container[str]) -> str | None:
    """The path, or the nearest of the folders it is in, that is one of these marks."""
    for _ in range(_MOST_LEVELS):
        if name in marks:
            return name
        name = name.rpartition("/")[0]
    return None


def _writes(table: Processes, pid: int, descriptor: str) -> bool:
    for line in (table.read(f"{pid}/fdinfo/{descriptor}", 512) or b"").splitlines():
        if line.startswith(b"flags:"):
            words = line.split()
            return len(words) == 2 and words[1].isdigit() and int(words[1], 8) & os.O_ACCMODE != os.O_RDONLY
    return False


__all__ = ["opened"]
