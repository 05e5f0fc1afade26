"""Places: the training directory that a process works for, by what it writes, what its parents write, and where it stands."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import ClassVar

from pydantic import BaseModel, ConfigDict, Field

from yolometer_agent.attribute._base import Claim, Held, Scene
from yolometer_agent.attribute._jobs import rendezvous_of
from yolometer_agent.attribute._opened import opened
from yolometer_agent.attribute._pipes import readers
from yolometer_agent.attribute._standing import Standing
from yolometer_agent.attribute.processes import Process

_MOST_WAIT_S = 240.0


class Workdir(BaseModel):
    """Finds a place by these signs, nearest first; a sign that fits several places is none:

    1. The process writes a file of the place (for several places: the one that was written last).
    2. A reader of its output does, as tee, or else a parent, as the starter of a job.
    3. A worker or the main process of the same program does.
    4. Its working directory is the place, or below it.
    5. Its working directory is above the place, which the same user owns, which was written lately and after the process
       began, and which no other program holds by a better sign or stands above too.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    rank: ClassVar[int] = 50

    quiet_s: float = Field(default=900.0, gt=0, description="a place that was not written for so long is not worked for")
    again_s: float = Field(default=15.0, gt=0, description="when open files are looked at again, in seconds; later less often")

    def claims(self, scene: Scene) -> Mapping[Held, Claim]:
        """The place of each process."""
        if not scene.known:
            return {}
        processes = {pid: process for _, pid, process in scene.held() if process is not None}
        signs = _Signs(scene, self)
        found = {pid: place for pid, process in processes.items() if (place := signs.written(process))}
        held = set(found.values())
        standing = signs.standing
        for process in (process for pid, process in processes.items() if pid not in found):
            place = standing.inside(process, held)
            if place is not None:
                found[process.pid] = place
        # two programs above one place: one of them only happens to stand there, and which can't be told
        above = {pid: standing.above(process, held) for pid, process in processes.items() if pid not in found}
        families: dict[str | None, set[str]] = {}
        for pid, place in above.items():
            families.setdefault(place, set()).add(signs.family(processes[pid]))
        found.update({pid: place for pid, place in above.items() if place is not None and len(families[place]) == 1})
        return scene.of_processes({pid: Claim(place=place) for pid, place in found.items()})


class _Signs:
    """The places by who writes them, for one look."""

    def __init__(self, scene: Scene, settings: Workdir) -> None:
        self._scene, self._settings = scene, settings
        self.standing = Standing(scene, settings.quiet_s)
        self._places: dict[int, set[str]] = {}
        for known in scene.known:
            for pid in known.pids or ():
                self._places.setdefault(pid, set()).add(known.place)
        self._programs: dict[int, set[str]] | None = None

    def written(self, process: Process) -> str | None:
        """The place that a process writes, itself or through its family."""
        table = self._scene.table
        own = self._places.get(process.pid) or self._opened(process)
        if own:
            return self.standing.newest(own)
        for reader in self._readers(process):
            if reader in self._places:
                return _only(self._places[reader])
        for parent in table.parents(process)[1:]:
            if parent.pid in self._places:
                return _only(self._places[parent.pid])
        return _only(self._of_programs().get(self._program(process), ()))

    def family(self, process: Process) -> str:
        """The same for all processes of a program, and for all ranks of a training."""
        meeting = rendezvous_of(self._scene.table.inherited(process), self._scene.node)
        return meeting.key if meeting else str(self._program(process))

    def _opened(self, process: Process) -> set[str]:
        """The places in whose folders it writes files; looked at now and then, for it costs."""
        now_s, memory = self._scene.now_s, process.memory
        due_s, wait_s, names = memory.get("opened", (0.0, self._settings.again_s, ()))
        if not 0 < due_s - now_s <= wait_s:
            names = tuple(opened(self._scene.table, process, self.standing.marks))
            longer_s = min(wait_s * 2, _MOST_WAIT_S)
            memory["opened"] = (now_s + longer_s, longer_s, names)
        return self.standing.places_of(names)

    def _readers(self, process: Process) -> list[int]:
        """Who reads its output: that stays as it is, once it is there."""
        table = self._scene.table
        kept: list[Process] | None = process.memory.get("readers")
        if kept is None:
            kept = process.memory["readers"] = [one for pid in readers(table, process) if (one := table.get(pid))]
        return [one.pid for one in kept if table.get(one.pid) is one]

    def _program(self, process: Process) -> int:
        """The process that a worker belongs to, through all that made it."""
        table = self._scene.table
        for one in table.parents(process):
            if not table.belongs_to_its_parent(one):
                return one.pid
        return process.pid

    def _of_programs(self) -> dict[int, set[str]]:
        if self._programs is None:
            self._programs = {}
            for pid, places in self._places.items():
                writer = self._scene.table.get(pid)
                if writer is not None:
                    self._programs.setdefault(self._program(writer), set()).update(places)
        return self._programs


def _only(places: Collection[str]) -> str | None:
    return next(iter(places)) if len(places) == 1 else None


SOURCE = Workdir
