"""Writers: which files running processes have open for writing, from /proc."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import NamedTuple

from yolometer_agent.tail.discover import natural

Identity = tuple[int, int]


class OpenFile(NamedTuple):
    """A regular file that a process has open for writing, under a name it can be opened by from here."""

    path: Path
    pid: int
    identity: Identity


class Writers(NamedTuple):
    """Who writes: `pids` by (st_dev, st_ino). Not `complete`: some process could not be read, so absence proves nothing."""

    pids: dict[Identity, frozenset[int]]
    complete: bool
    opened: tuple[tuple[int, Identity, str], ...]
    proc: Path

    def open_files(self) -> list[OpenFile]:
        """The files themselves in natural order, without deleted ones and those no name leads to from here.

        The name in /proc is the one the process knows. Where that leads elsewhere, as in a container, the file is
        named through the root folder of its process.
        """
        files = []
        for pid, identity, name in self.opened:
            for path in (Path(name), self.proc / str(pid) / "root" / name.lstrip("/")):
                if _identity(path) == identity:
                    files.append(OpenFile(path, pid, identity))
                    break
        return sorted(files, key=lambda file: (natural(file.path), file.pid))


def writers(proc: Path = Path("/proc")) -> Writers:
    """Look at every process below `proc`. Never raises OSError: what cannot be read makes it not `complete`."""
    opened: set[tuple[int, Identity, str]] = set()
    pids: dict[Identity, set[int]] = {}
    try:
        running = [int(name) for name in os.listdir(proc) if name.isdecimal()]  # noqa: PTH208 - names, not paths
    except OSError:
        return Writers({}, False, (), proc)
    # With hidepid others are not even listed; process 1 always runs.
    complete = 1 in running or not (proc / "self").exists()
    for pid in running:
        folder = f"{proc}/{pid}"
        try:
            descriptors = os.listdir(f"{folder}/fd")  # noqa: PTH208
            for descriptor in descriptors:
                found = _written(folder, descriptor)
                if found is not None:
                    identity, name, deleted = found
                    pids.setdefault(identity, set()).add(pid)
                    if not deleted:
                        opened.add((pid, identity, name))
        except (FileNotFoundError, ProcessLookupError):
            continue
        except OSError:
            # process 1 starts trainers but is none; sandboxes hide theirs even from root
            complete = complete and pid == 1
    return Writers({identity: frozenset(them) for identity, them in pids.items()}, complete, tuple(sorted(opened)), proc)


def _written(folder: str, descriptor: str) -> tuple[Identity, str, bool] | None:
    """Identity, name and whether it is deleted, if this descriptor may write to a regular file."""
    link = f"{folder}/fd/{descriptor}"
    try:
        name = os.readlink(link)  # noqa: PTH115 - a pipe's name is no path
        if not name.startswith("/") or name.startswith("/dev/"):
            return None
        with open(f"{folder}/fdinfo/{descriptor}", "rb") as file:  # noqa: PTH123 - hot: every descriptor of the machine
            flags = next((int(line[6:], 8) for line in file if line.startswith(b"flags:")), 0)
        if flags & os.O_ACCMODE == os.O_RDONLY:
            return None
        seen = os.stat(link)  # noqa: PTH116
    except (FileNotFoundError, ProcessLookupError):
        return None
    if not stat.S_ISREG(seen.st_mode):
        return None
    return (seen.st_dev, seen.st_ino), name, seen.st_nlink == 0


def _identity(path: Path) -> Identity | None:
    try:
        seen = path.stat()
    except (OSError, ValueError):
        return None
    return seen.st_dev, seen.st_ino
