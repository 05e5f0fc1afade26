"""Files that a scheduler's prolog writes for each GPU: read without trust, and matched with the processes that are there."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from yolometer_agent.attribute._base import Job, Scene
from yolometer_agent.attribute._jobs import job_of
from yolometer_agent.attribute.processes import Process

MOST_BYTES = 4096
SETTLE_S = 2.0
"""A file without a line end may be half written for so long."""
BEFORE_S = 60.0
"""A prolog writes its file before the job begins: a process that is older than the file by more is not of that job."""


class Entry(NamedTuple):
    """One job of a file. `user` is a name or a uid, as it is written."""

    job: str | None = None
    user: str | None = None
    account: str | None = None
    cluster: str | None = None


class MapFile(NamedTuple):
    """The text of a file, and when it was written."""

    text: str
    written_s: float


def read_map(folder: str, names: Iterable[str], source: str, scene: Scene) -> MapFile | None:
    """The first of these files that is there and can be used. What is wrong with one is counted, and never raises."""
    for name in names:
        if not name or "/" in name or name.startswith("."):
            continue
        found = _read(f"{folder}/{name}", scene.now_s)
        if isinstance(found, MapFile):
            return found
        if found:
            scene.counts[source, found] += 1
    return None


def fitting(entries: Sequence[Entry], written_s: float, process: Process | None, scene: Scene) -> tuple[Entry, Job | None] | str:
    """The entry that a process can belong to, with its job if the process itself tells it; else why there is none.

    The job that the process tells decides. Without one the user must be the same, and the process must not be older than
    the file. None stands for processes that can't be seen: nothing speaks against the only entry.
    """
    if process is None:
        return (entries[0], None) if len(entries) == 1 else "several_jobs"
    job = job_of(scene, process)
    if job is not None:
        mine = [entry for entry in entries if entry.job is not None and job.is_called(entry.job)]
        if mine:
            return mine[0], job
        entries = [entry for entry in entries if entry.job is None]
        if not entries:
            return "other_job"
    allowed = [entry for entry in entries if entry.user is None or _is_user(entry.user, process, scene)]
    if not allowed:
        return "other_user"
    started_s = scene.table.started_s(process, scene.now_s)
    if started_s is not None and started_s < written_s - BEFORE_S:
        return "older_process"
    # nothing but the name of the GPU speaks for it, and a job would have left its variables
    if all(entry.user is None for entry in allowed) and process.readable and process.depth == 1:
        return "no_job"
    return (allowed[0], job) if len(allowed) == 1 else "several_jobs"


def _is_user(user: str, process: Process, scene: Scene) -> bool:
    """Whether a name or a uid may be that of a process. A name can't be refused where the uid has none here."""
    if user.isdecimal():
        return user == str(process.uid)
    return user == (scene.users.name(process.uid) or user)


def _read(path: str, now_s: float) -> MapFile | str | None:
    """The file, the reason why it can't be used, or None where there is none."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        return "symlink" if error.errno == errno.ELOOP else "unreadable"
    try:
        seen = os.fstat(descriptor)
        if not stat.S_ISREG(seen.st_mode):
            return "no_file"
        raw = os.read(descriptor, MOST_BYTES + 1)
    except OSError:
        return "unreadable"
    finally:
        os.close(descriptor)
    if len(raw) > MOST_BYTES:
        return "huge"
    if not raw.strip():
        return "empty"
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError:
        return "binary"
    if any(not (char.isprintable() or char.isspace()) for char in text):
        return "binary"
    if not text.endswith("\n") and 0 <= now_s - seen.st_mtime < SETTLE_S:
        return "half_written"
    return MapFile(text, seen.st_mtime)


__all__ = ["Entry", "MapFile", "fitting", "read_map"]
