"""Feed: plays captured trainings into a folder as if they happened now. For the demo and for tests."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path

CHUNK_BYTES = 1 << 10


def captures() -> Path:
    """The folder of captured trainings that ships with the command (real logs of tiny trainings)."""
    return Path(str(files("yolometer") / "captures"))


class Feed:
    """Grows a copy of every file below `source` in `target`, all of them within about `seconds`.

    The files of one training grow in step; a second process (train2.log) begins when the first log is through.
    """

    def __init__(self, source: Path, target: Path, seconds: float, sleep: Callable[[float], None] = time.sleep) -> None:
        self._runs = sorted(folder for folder in source.iterdir() if folder.is_dir())
        self._target = target
        self._seconds = seconds
        self._sleep = sleep
        self._thread = threading.Thread(target=self._play, name="feed", daemon=True)

    def start(self) -> None:
        self._thread.start()

    @property
    def done(self) -> bool:
        return not self._thread.is_alive()

    def join(self, seconds: float) -> None:
        self._thread.join(seconds)

    def _play(self) -> None:
        steps = 40
        plays = [_Play(folder, self._target / folder.name) for folder in self._runs]
        for step in range(1, steps + 1):
            for play in plays:
                play.to(step / steps)
            self._sleep(self._seconds / steps)


class _Play:
    """One training: settings at once, then logs one after the other, and the table in step with them."""

    def __init__(self, source: Path, target: Path) -> None:
        target.mkdir(parents=True)
        self._target = target
        logs = sorted(source.glob("train*.log"), key=lambda path: (len(path.name), path.name))
        self._logs = [(path.name, path.read_bytes()) for path in logs]
        self._total = sum(len(data) for _, data in self._logs)
        self._table = next(((path.name, path.read_bytes()) for path in sorted(source.glob("results.*"))), None)
        for path in sorted(source.glob("*.yaml")):
            (target / path.name).write_bytes(path.read_bytes())
        self._written: dict[str, int] = {}

    def to(self, share: float) -> None:
        """Grow all files to `share` of their whole length."""
        wanted = round(self._total * share)
        for name, data in self._logs:
            self._grow(name, data, min(max(wanted, 0), len(data)))
            wanted -= len(data)
        if self._table is not None:
            name, data = self._table
            self._grow(name, data, round(len(data) * share))

    def _grow(self, name: str, data: bytes, length: int) -> None:
        begun = self._written.get(name, 0)
        if length <= begun:
            return
        with (self._target / name).open("ab") as file:
            for at in range(begun, length, CHUNK_BYTES):
                file.write(data[at : min(at + CHUNK_BYTES, length)])
        self._written[name] = length
