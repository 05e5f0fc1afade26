"""Lock: one agent for a node and for a state folder. A second one is told who holds it, and ends."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import socket
import struct
from pathlib import Path
from types import TracebackType
from typing import Self

from yolometer_core.errors import Unavailable


class Held(Unavailable):
    """Another agent works here."""


class NodeLock:
    """Holds a node and its state folder until it is closed or the process ends, however it ends.

    Two locks, for two agents of one node can have two folders, and two nodes (in two containers) one folder: a lock on the
    file `lock` in the folder, and a socket without a file, whose name is the node. Held when either is taken.
    """

    def __init__(self, folder: Path, node: str) -> None:
        self._file = _take_file(folder)
        try:
            self._socket = _take_name(node)
        except BaseException:
            os.close(self._file)
            raise

    def close(self) -> None:
        """Let another agent begin."""
        self._socket.close()
        os.close(self._file)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def _take_file(folder: Path) -> int:
    path = folder / "lock"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        said = f"The state folder {folder} cannot be used ({error.strerror}); correct its rights or name another with state_dir."
        raise Unavailable(said) from None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.ftruncate(file, 0)
        os.pwrite(file, f"{os.getpid()}\n".encode(), 0)
    except BlockingIOError:
        pid = os.pread(file, 20, 0).decode("ascii", "replace").strip()
        os.close(file)
        who = f"process {pid}" if pid.isdigit() else "another process"
        raise Held(f"Another agent ({who}) uses the state folder {folder}; stop it, or name another folder.") from None
    except OSError as error:
        os.close(file)
        raise Unavailable(f"The state folder {folder} cannot be locked ({error.strerror}); name another.") from None
    return file


def _take_name(node: str) -> socket.socket:
    # its length is limited, a node's name is not
    name = f"\0yolometer-agent-{hashlib.blake2b(node.encode(), digest_size=16).hexdigest()}"
    taken = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        taken.bind(name)
        taken.listen(1)
    except OSError:
        taken.close()
        raise Held(f"Another agent ({_holder(name)}) reports for the node {node}; stop it, or name this one with node.") from None
    return taken


def _holder(name: str) -> str:
    """Who listens at a socket, as the kernel tells it."""
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
        asking.settimeout(0.2)
        asking.connect(name)
        pid, _, _ = struct.unpack("3i", asking.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")))
        if pid > 0:
            return f"process {pid}"
    return "another process"


__all__ = ["Held", "NodeLock"]
