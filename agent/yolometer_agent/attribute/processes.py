"""Processes: what /proc tells of the few that hold GPUs and of their parents; each is read once and forgotten when it ends."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from yolometer_agent.attribute._variables import allowed

_MOST_ENVIRON_BYTES = 1 << 22
_MOST_PARENTS = 32
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@dataclass(slots=True, eq=False)
class Process:
    """A process, by pid and start: a number that is used again is another process."""

    pid: int
    start_ticks: int
    parent: int
    state: str
    name: str
    uid: int | None = None
    depth: int = 1
    """In how many pid namespaces it is; more than one means a container."""
    environment: Mapping[str, str] | None = field(default=None, repr=False)
    readable: bool = False
    """Whether the environment could be read."""
    cgroup: str | None = None
    same_program: bool | None = None
    memory: dict[str, Any] = field(default_factory=dict)


class Processes:
    """The processes below `proc`. Call `begin` before each look and `end` after it. Never raises OSError."""

    def __init__(self, proc: Path = Path("/proc"), counts: Counter[tuple[str, str]] | None = None) -> None:
        self.proc = str(proc)
        self.counts: Counter[tuple[str, str]] = Counter() if counts is None else counts
        self._alive: dict[int, Process] = {}
        self._seen: dict[int, Process | None] = {}
        self._chains: dict[int, list[Process]] = {}
        self._up_s: float | None = None
        self.worked_out: dict[tuple[str, int], Any] = {}
        """What others found out of a process in this look, by a name of theirs and pid."""

    def begin(self) -> None:
        """A new look: what was read of a process before counts only if it is still the same one."""
        self._seen, self._chains, self.worked_out, self._up_s = {}, {}, {}, None

    def end(self) -> None:
        """Forget all processes that were not seen in this look."""
        self._alive = {pid: process for pid, process in self._seen.items() if process is not None}

    def get(self, pid: int) -> Process | None:
        """The process with this pid now, or None."""
        if pid in self._seen:
            return self._seen[pid]
        process = self._seen[pid] = self._read(pid)
        return process

    def parents(self, process: Process) -> list[Process]:
        """The process, its parent, and so on, without process 1."""
        chain = self._chains.get(process.pid)
        if chain is None:
            chain, pids = [process], {process.pid, 0, 1}
            while len(chain) < _MOST_PARENTS and chain[-1].parent not in pids:
                parent = self.get(chain[-1].parent)
                if parent is None:
                    break
                chain.append(parent)
                pids.add(parent.pid)
            self._chains[process.pid] = chain
        return chain

    def about(self, process: Process) -> Process:
        """The same process, with its user and its namespaces."""
        if process.uid is None:
            for line in (self.read(f"{process.pid}/status", 1 << 16) or b"").splitlines():
                if line.startswith(b"Uid:"):
                    process.uid = int(line.split()[1])
                elif line.startswith(b"NSpid:"):
                    process.depth = max(1, len(line.split()) - 1)
        return process

    def environment(self, process: Process) -> Mapping[str, str]:
        """Of its environment at its start: the variables that are allowed, and no other. Empty when it cannot be read."""
        if process.environment is None:
            raw = self.read(f"{process.pid}/environ", _MOST_ENVIRON_BYTES)
            process.readable = bool(raw)
            process.environment = allowed(raw or b"")
        return process.environment

    def inherited(self, process: Process) -> Mapping[str, str]:
        """Its environment; if that tells nothing, that of the nearest parent of the same user and container that tells something.

        Programs that write their title over their environment, and workers of pools, tell nothing themselves.
        """
        found = self.environment(process)
        if found:
            return found
        mine = self.about(process)
        for ancestor in self.parents(process)[1:]:
            other = self.about(ancestor)
            if (other.uid, other.depth) != (mine.uid, mine.depth):
                break
            found = self.environment(ancestor)
            if found:
                return found
        return {}

    def cgroup(self, process: Process) -> str:
        """The paths of its control groups, a line each."""
        if process.cgroup is None:
            process.cgroup = (self.read(f"{process.pid}/cgroup", 1 << 14) or b"").decode("utf-8", "replace")
        return process.cgroup

    def started_s(self, process: Process, now_s: float) -> float | None:
        """When it started, by the wall clock that says `now_s` now; None when it cannot be told."""
        if self._up_s is None:
            words = (self.read("uptime", 128) or b"").split()
            try:
                self._up_s = float(words[0])
            except (IndexError, ValueError):
                return None
        return now_s - self._up_s + process.start_ticks / _TICKS_PER_S

    def belongs_to_its_parent(self, process: Process) -> bool:
        """Whether it is a worker that its parent made of itself (a fork, or a child of Python's multiprocessing)."""
        if process.same_program is None:
            mine = self.read(f"{process.pid}/cmdline", 4096)
            parent = self.read(f"{process.parent}/cmdline", 4096) if process.parent > 1 else None
            process.same_program = bool(mine and parent and (mine == parent or _is_worker(mine)))
        return process.same_program

    def is_there(self, pid: int) -> bool:
        """Whether the process runs, even if nothing can be read of it."""
        return os.path.lexists(f"{self.proc}/{pid}")

    def link(self, name: str) -> str | None:
        """Where a link below `proc` leads, as its process names it."""
        try:
            return os.readlink(f"{self.proc}/{name}")  # noqa: PTH115  # a pipe's name is no path
        except OSError as error:
            self._refused(name, error)
            return None

    def identity(self, name: str) -> tuple[int, int] | None:
        """Device and number of the file that a path below `proc` leads to."""
        try:
            seen = os.stat(f"{self.proc}/{name}")  # noqa: PTH116  # hot
        except OSError as error:
            self._refused(name, error)
            return None
        return seen.st_dev, seen.st_ino

    def read(self, name: str, most_bytes: int) -> bytes | None:
        """The first bytes of a file below `proc`, or None."""
        try:
            descriptor = os.open(f"{self.proc}/{name}", os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            self._refused(name, error)
            return None
        try:
            got = piece = os.read(descriptor, min(most_bytes, 1 << 16))
            while piece and len(got) < most_bytes:
                piece = os.read(descriptor, most_bytes - len(got))
                got += piece
        except OSError as error:
            self._refused(name, error)
            return None
        finally:
            os.close(descriptor)
        return got

    def _read(self, pid: int) -> Process | None:
        raw = self.read(f"{pid}/stat", 1024) if pid > 0 else None
        if not raw:
            return None
        # the name stands in brackets and may hold brackets and spaces itself
        head, _, tail = raw.rpartition(b")")
        words = tail.split()
        try:
            state, parent, start = words[0].decode(), int(words[1]), int(words[19])
        except (IndexError, ValueError):
            return None
        process = self._alive.get(pid)
        if process is None or process.start_ticks != start:
            return Process(pid, start, parent, state, head.partition(b"(")[2].decode("utf-8", "replace"))
        process.parent, process.state = parent, state
        return process

    def _refused(self, name: str, error: OSError) -> None:
        if isinstance(error, PermissionError):
            self.counts["proc", f"{name.split('/')[1] if '/' in name else name}_denied"] += 1


def _is_worker(command: bytes) -> bool:
    return b"--multiprocessing-fork" in command or b"from multiprocessing." in command


__all__ = ["Process", "Processes"]
