"""Standing: where the places are, which of them was written last, and which one a working directory leads to."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable

from yolometer_agent.attribute._base import Known, Scene
from yolometer_agent.attribute.processes import Process

_Identity = tuple[int, int]
_MOST_LEVELS = 12


class Standing:
    """The places of one look. Folders are compared by what they are, not by name: a container has other names for them."""

    def __init__(self, scene: Scene, quiet_s: float) -> None:
        self._scene, self._quiet_s = scene, quiet_s
        self.folders: dict[str, list[Known]] = {}
        self.marks: dict[str, list[Known]] = {}
        """The places by their files, and by the folders they are."""
        for known in scene.known:
            self.folders.setdefault(known.folder, []).append(known)
            for name in (known.folder, *known.files):
                self.marks.setdefault(name, []).append(known)
        self._of = {known.place: known for known in scene.known}
        kept = scene.memory
        for folder in kept.keys() - self.folders.keys():
            del kept[folder]

    def places_of(self, names: Iterable[str]) -> set[str]:
        """The places that these files or folders belong to."""
        return {known.place for name in names for known in self.marks.get(name, ())}

    def newest(self, places: Collection[str]) -> str | None:
        """The place that was written last; None when that is not just one."""
        if len(places) < 2:
            return next(iter(places), None)
        times = sorted(((self._written_s(self._of[place]), place) for place in places if place in self._of), reverse=True)
        return times[0][1] if times and (len(times) == 1 or times[0][0] > times[1][0]) else None

    def inside(self, process: Process, held: Collection[str]) -> str | None:
        """The place that the working directory of a process is, or is below of if no other process holds it."""
        by_folder: dict[_Identity, list[Known]] = {}
        for folder, known in self.folders.items():
            above = self._above(folder)
            if above:
                by_folder.setdefault(above[0], []).extend(known)
        began_s = self._scene.table.started_s(process, self._scene.now_s)
        name, last = f"{process.pid}/cwd", None
        for level in range(_MOST_LEVELS):
            here = self._scene.table.identity(name)
            if here is None or here == last:
                return None
            places = {known.place for known in by_folder.get(here, ()) if self._lately(known, began_s)}
            if level:
                places -= set(held)
            if places:
                return self.newest(places)
            name, last = f"{name}/..", here
        return None

    def above(self, process: Process, held: Collection[str]) -> str | None:
        """The only place below the working directory that this process can be at work for."""
        table, pid = self._scene.table, process.pid
        here = table.identity(f"{pid}/cwd")
        # a service stands at the top, and all places are below that
        if here is None or here == table.identity(f"{pid}/cwd/..") or here == table.identity(f"{pid}/root"):
            return None
        began_s = table.started_s(process, self._scene.now_s)
        fitting = [
            known
            for folder, there in self.folders.items()
            if here in self._above(folder)[1:] and _owner(folder) == process.uid
            for known in there
            if known.place not in held and self._lately(known, began_s)
        ]
        return fitting[0].place if len(fitting) == 1 else None

    def _lately(self, known: Known, began_s: float | None) -> bool:
        written_s = self._written_s(known)
        return written_s > self._scene.now_s - self._quiet_s and (began_s is None or written_s >= began_s - 1.0)

    def _written_s(self, known: Known) -> float:
        """When its files were last written; 0 when none is there."""
        newest_s = 0.0
        for file in known.files:
            try:
                newest_s = max(newest_s, os.stat(file).st_mtime)  # noqa: PTH116  # hot
            except OSError:
                continue
        return newest_s

    def _above(self, folder: str) -> list[_Identity]:
        """The folder and all above it, as they were when it was first seen."""
        kept: list[_Identity] | None = self._scene.memory.get(folder)
        if not kept:
            kept, name = [], folder
            while name:
                try:
                    seen = os.stat(name)  # noqa: PTH116
                except OSError:
                    kept = []
                    break
                kept.append((seen.st_dev, seen.st_ino))
                name = name.rpartition("/")[0]
            self._scene.memory[folder] = kept
        return kept


def _owner(folder: str) -> int | None:
    try:
        return os.stat(folder).st_uid  # noqa: PTH116
    except OSError:
        return None


__all__ = ["Standing"]
