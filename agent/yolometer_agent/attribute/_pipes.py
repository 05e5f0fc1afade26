"""Pipes: who reads what a process prints, as `tee` does in `train | tee train.log`."""

from __future__ import annotations

from yolometer_agent.attribute.processes import Process, Processes

_MOST_STAGES = 4
_MOST_CHILDREN = 256


def readers(table: Processes, process: Process) -> list[int]:
    """The pids that read the output of a process through pipes, nearest first: the later stages of its pipeline.

    A pipeline is made by one shell, so its stages are children of the parents of the process.
    """
    pipes = {link for descriptor in (1, 2) if (link := _pipe(table, process.pid, descriptor))}
    found: list[int] = []
    if not pipes:
        return found
    siblings = [
        pid for parent in table.parents(process)[1:] for pid in _children(table, parent.pid) if pid != process.pid
    ]
    for _ in range(_MOST_STAGES):
        stage = [pid for pid in siblings if pid not in found and _pipe(table, pid, 0) in pipes]
        if not stage:
            break
        found += stage
        pipes = {link for pid in stage if (link := _pipe(table, pid, 1))}
    return found


def _pipe(table: Processes, pid: int, descriptor: int) -> str | None:
    link = table.link(f"{pid}/fd/{descriptor}")
    return link if link and link.startswith("pipe:") else None


def _children(table: Processes, pid: int) -> list[int]:
    raw = table.read(f"{pid}/task/{pid}/children", 1 << 14) or b""
    return [int(word) for word in raw.split()[:_MOST_CHILDREN] if word.isdigit()]


__all__ = ["readers"]
