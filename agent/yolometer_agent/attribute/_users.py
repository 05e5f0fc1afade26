"""Users: the names that a passwd file gives to uids. It is read again when it changed."""

from __future__ import annotations

from pathlib import Path

from yolometer_agent.attribute.processes import Process

_MOST_BYTES = 1 << 24


class Users:
    """Names of users by uid. Never raises OSError: without a file nobody has a name."""

    def __init__(self, passwd: Path = Path("/etc/passwd")) -> None:
        self._passwd = passwd
        self._stamp: tuple[int, int, int] | None = None
        self._names: dict[int, str] = {}

    def begin(self) -> None:
        """Look whether the file changed."""
        try:
            seen = self._passwd.stat()
            stamp = seen.st_mtime_ns, seen.st_size, seen.st_ino
            if stamp == self._stamp:
                return
            text = self._passwd.read_bytes()[:_MOST_BYTES].decode("utf-8", "replace")
        except OSError:
            self._stamp, self._names = None, {}
            return
        self._stamp, self._names = stamp, {}
        for line in text.splitlines():
            fields = line.split(":")
            if len(fields) > 3 and fields[0] and fields[2].isdecimal():
                self._names.setdefault(int(fields[2]), fields[0])

    def name(self, uid: int | None) -> str | None:
        """The name of a uid, or None."""
        return None if uid is None else self._names.get(uid)

    def of(self, process: Process | None) -> str | None:
        """The name of the user of a process. The root of a container is nobody in particular."""
        if process is None or (process.uid == 0 and process.depth > 1):
            return None
        return self.name(process.uid)


__all__ = ["Users"]
