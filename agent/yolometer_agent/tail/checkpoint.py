"""Checkpoint: one JSON dict on disk that survives crashes, full disks and damage."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
from pathlib import Path
from typing import Any

from yolometer_core.errors import Unavailable

VERSION = 1
_HEADER = re.compile(rb'\{"version":(\d+),"checksum":"([0-9a-f]{32})","state":')


class Checkpoint:
    """Keeps the newest dict that was saved in `path`, and the one before in `path` + `.bak`. One writer at a time.

    `problem` is None, or one sentence about what `load` found damaged; the damaged file is kept as `.damaged`.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.problem: str | None = None
        self._backup = self._beside(".bak")
        self._is_good: bool | None = None

    def load(self) -> dict[str, Any] | None:
        """The newest whole dict; None when there is none.

        A damaged, truncated, empty or foreign file is set aside and the backup is used: what was read since then
        is read again. Unavailable when a file is there but cannot be read.
        """
        self.problem = None
        state, why = self._read(self.path)
        self._is_good = state is not None
        if state is not None:
            return state
        if why is not None:
            self._set_aside(self.path)
        elif not self._backup.exists():
            return None
        state, backup_why = self._read(self._backup)
        if backup_why is not None:
            self._set_aside(self._backup)
        found = f"is damaged ({why}) and was kept as {self._beside('.damaged').name}" if why else "is gone"
        then = "the backup from before is used" if state is not None else "there is no whole backup, so all is read again"
        self.problem = f"The checkpoint {self.path} {found}; {then}."
        return state

    def save(self, state: dict[str, Any]) -> None:
        """Replace the dict. Unavailable when the disk does not take it; then the old one is whole. The order of side effects:

        1. The new one is written to a temporary file in the same folder (mode 0600) and fsynced.
        2. The old one, if it is good, becomes the backup too: at no time is there no whole file.
        3. The temporary file replaces the old one.
        4. The folder is fsynced: from here on the new one survives a power cut.
        """
        body = json.dumps(state, separators=(",", ":"), allow_nan=False).encode()
        new = b'{"version":%d,"checksum":"%s","state":%s}\n' % (VERSION, _checksum(body).encode(), body)
        temporary = self._beside(".tmp")
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            _write(temporary, new)
            if self._is_good is None:
                self._is_good = self._read(self.path)[0] is not None
            if self._is_good:
                self._back_up()
            temporary.replace(self.path)
            _sync_folder(self.path.parent)
        except OSError as error:
            with contextlib.suppress(OSError):
                temporary.unlink()
            raise Unavailable(
                f"The checkpoint {self.path} cannot be written ({error.strerror}); make room or correct the folder."
            ) from error
        self._is_good = True

    def _back_up(self) -> None:
        link = self._beside(".bak.tmp")
        link.unlink(missing_ok=True)
        try:
            os.link(self.path, link)
        except FileNotFoundError:
            return
        except PermissionError:
            # A file system without hard links: then the backup alone is there for a moment, which `load` knows.
            link = self.path
        link.replace(self._backup)

    def _read(self, path: Path) -> tuple[dict[str, Any] | None, str | None]:
        """The dict, or why there is none (both None: no file)."""
        try:
            raw = path.read_bytes()
        except FileNotFoundError:
            return None, None
        except OSError as error:
            raise Unavailable(f"The checkpoint {path} cannot be read ({error.strerror}); correct its rights.") from error
        header = _HEADER.match(raw)
        if not raw:
            return None, "it is empty"
        if header is None:
            return None, "it is not a checkpoint of yolometer"
        if int(header[1]) != VERSION:
            return None, f"it has version {int(header[1])}, this program reads version {VERSION}"
        body = raw[header.end() : -2]
        if not raw.endswith(b"}\n") or _checksum(body).encode() != header[2]:
            return None, "its checksum is wrong"
        state = json.loads(body)
        return (state, None) if isinstance(state, dict) else (None, "it holds no dict")

    def _set_aside(self, path: Path) -> None:
        aside = path.with_name(path.name + ".damaged")
        try:
            path.replace(aside)
        except OSError as error:
            raise Unavailable(f"The damaged checkpoint {path} cannot be renamed ({error.strerror}); remove it.") from error

    def _beside(self, suffix: str) -> Path:
        return self.path.with_name(self.path.name + suffix)


def _checksum(body: bytes) -> str:
    return hashlib.blake2b(body, digest_size=16).hexdigest()


def _write(path: Path, data: bytes) -> None:
    path.unlink(missing_ok=True)
    fd = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600)
    with open(fd, "wb", buffering=0) as file:  # noqa: PTH123 - a descriptor, not a path
        view = memoryview(data)
        while view:
            view = view[file.write(view) :]
        os.fsync(fd)


def _sync_folder(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
