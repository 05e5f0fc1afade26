"""Helpers of the tests of the spool: a folder that is opened again and again, with clocks and a boot that a test moves."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from yolometer_agent.spool.frames import LAST_NUMBER
from yolometer_agent.spool.lane import Loss
from yolometer_agent.spool.reading import Spooled
from yolometer_agent.spool.spool import Spool

WALL_S = 1_790_000_000.0


class Place:
    """A folder, its clocks and its boot. `open` gives a new Spool on it."""

    def __init__(self, root: Path, **options: Any) -> None:
        self.root, self.folder = root, root / "lane0"
        self.options = {"max_bytes": 1_000_000, "max_age_s": 1e9, "segment_bytes": 1000, **options}
        self.clock_s, self.wall_s, self.boot = 50.0, WALL_S, "boot-0"
        self._lives = 0

    def open(self, **more: Any) -> Spool:
        options = {**self.options, **more}
        return Spool(self.folder, clock=lambda: self.clock_s, wall=lambda: self.wall_s, boot_id=lambda: self.boot, **options)

    def kill(self, spool: Spool) -> None:
        """What kill -9 leaves: the files as they are now, in a new folder."""
        self._lives += 1
        old, self.folder = self.folder, self.root / f"lane{self._lives}"
        if old.exists():
            shutil.copytree(old, self.folder)
        spool.close()

    def reboot(self) -> None:
        self.boot = self.boot[:-1] + str(int(self.boot[-1]) + 1) if self.boot[-1] != "9" else self.boot + "0"

    def segments(self) -> list[Path]:
        return sorted(self.folder.glob("*.seg"))

    def pass_time(self, seconds: float) -> None:
        self.clock_s += seconds
        self.wall_s += seconds


def put(spool: Spool, value: bytes = b"v" * 100, topic: bytes = b"gpu", key: bytes = b"node") -> int:
    return spool.append(topic, key, lambda _epoch, _number: value)


def read_all(spool: Spool, at_a_time: int = 7) -> list[Spooled]:
    found: list[Spooled] = []
    while some := spool.read(at_a_time, 10_000):
        found += some
    return found


def numbers(found: list[Spooled]) -> list[int]:
    return [message.number for message in found]


def lost_seqs(losses: list[Loss]) -> list[int]:
    for loss in losses:
        assert loss.messages == loss.last_seq - loss.first_seq + 1
        assert loss.first_seq & LAST_NUMBER >= 1
    return [seq for loss in losses for seq in range(loss.first_seq, loss.last_seq + 1)]
