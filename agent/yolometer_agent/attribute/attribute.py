"""Attribution: asks all sources who works on which GPU, and says for each GPU whose it is and in which shares."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from yolometer_agent import attribute as parts
from yolometer_agent.attribute._answers import Answer, Teams, answer, jobs_of, part_of, together
from yolometer_agent.attribute._base import WHOLE_MICRO, Claim, GpuProcess, Holder, Known, Scene, Source
from yolometer_agent.attribute._shares import active_micro, split_micro
from yolometer_agent.attribute._users import Users
from yolometer_agent.attribute._visibility import hides_others, sees_host
from yolometer_agent.attribute.processes import Processes
from yolometer_core.errors import BadConfig
from yolometer_core.parts import discover

IDLE = "idle"
_SERVERS = ("nvidia-cuda-mps",)
"""They hold a GPU for others, and are nobody's run while others are there."""


class Attributor:
    """Keeps what it read of each process as long as that lives. One thread calls it; it never raises for what it reads."""

    def __init__(
        self,
        sources: Mapping[str, Source],
        *,
        node: str,
        teams: Teams | None = None,
        cluster: str = "",
        proc: Path = Path("/proc"),
        passwd: Path = Path("/etc/passwd"),
        host_pids: bool | None = None,
        wall: Callable[[], float] = time.time,
    ) -> None:
        """`cluster`: its name where the environment of a job does not tell it. `host_pids`: None finds out by itself."""
        self._sources = dict(sorted(sources.items(), key=lambda item: item[1].rank))
        self._node, self._teams, self._cluster, self._proc, self._wall = node, teams or Teams(), cluster, proc, wall
        self.counts: Counter[tuple[str, str]] = Counter()
        """How often something could not be used, by (source or "proc", reason)."""
        self._table = Processes(proc, self.counts)
        self._users = Users(passwd)
        self._host = sees_host(proc) if host_pids is None else host_pids
        self._memory: dict[str, dict[str, Any]] = {name: {} for name in self._sources}
        self._last: dict[int, Answer] = {}
        self._jobs: dict[str, str] = {}

    @property
    def blind(self) -> str | None:
        """One sentence when it cannot know processes by the pids that the driver gives."""
        if self._host:
            return None
        return (
            "The agent cannot see the processes that hold GPUs, for it runs in a container with process numbers of its own; "
            "start it with the host's (hostPID: true, --pid=host)."
        )

    def jobs(self) -> Mapping[str, str]:
        """The key of the job of each place, as the last look found it."""
        return self._jobs

    def refresh(
        self,
        gpus: Mapping[str, Sequence[GpuProcess] | None],
        known: Iterable[Known] = (),
        names: Mapping[str, Sequence[str]] | None = None,
    ) -> dict[str, list[Holder]]:
        """The holders of each GPU; the shares of each add up to `WHOLE_MICRO`.

        `gpus`: its processes by UUID, None when the driver does not list them. `names`: what else files may call a GPU
        (index, minor number; `0.1` for a MIG device). Order: 1. look at the processes, 2. ask the sources, 3. put together
        what they say of each process, 4. of each job, 5. of each GPU, 6. forget processes that ended.
        """
        self._table.begin()
        self._users.begin()
        held = {uuid: _listed(processes, -at) for at, (uuid, processes) in enumerate(gpus.items(), start=1)}
        pids = {process.pid for processes in held.values() for process in processes}
        unseen = self._unseen(pids)
        scene = Scene(
            gpus=held, names={uuid: tuple(other) for uuid, other in (names or {}).items()}, known=tuple(known),
            table=self._table, users=self._users, now_s=self._wall(), node=self._node, cluster=self._cluster,
            unseen=frozenset(unseen), counts=self.counts,
        )  # fmt: skip
        claims = self._claims(scene)
        there = {pid: process for _, pid, process in scene.held()}
        answers = together({
            pid: answer(claims.get(pid, ()), self._teams, part_of(scene, process)) for pid, process in there.items()
        })  # fmt: skip
        self._jobs = jobs_of(answers.values())
        # one that ended since the driver listed it worked for whom it did before, just this once
        ended = {pid: self._last[pid] for pid in pids - there.keys() if pid in self._last}
        self._last = {pid: one for pid, one in answers.items() if pid > 0}
        found = {uuid: self._holders(processes, {**answers, **ended}) for uuid, processes in held.items()}
        self._table.end()
        return found

    def _unseen(self, pids: Iterable[int]) -> set[int]:
        """The processes that are there, or may be, and of which nothing can be read."""
        unseen = set()
        for pid in pids:
            if pid < 0 or not self._host:
                unseen.add(pid)
            elif (process := self._table.get(pid)) is not None:
                self._table.about(process)
                if process.state == "Z":
                    self.counts["proc", "zombie"] += 1
            elif self._table.is_there(pid) or hides_others(self._proc):
                unseen.add(pid)
            else:
                self.counts["proc", "ended"] += 1
        self.counts["proc", "unseen"] += len(unseen)
        return unseen

    def _claims(self, scene: Scene) -> dict[int, list[tuple[str, Claim]]]:
        """What the sources say of each process, in their order. One that contradicts itself about a process says nothing."""
        found: dict[int, list[tuple[str, Claim]]] = {}
        for name, source in self._sources.items():
            try:
                scene.memory = self._memory[name]
                said = source.claims(scene)
            except Exception:  # noqa: BLE001  # one source that fails must not cost the others theirs, nor a sample
                self.counts[name, "failed"] += 1
                continue
            of_pid: dict[int, Claim | None] = {}
            for (_, pid), claim in said.items():
                of_pid[pid] = claim if of_pid.get(pid, claim) == claim else None
            for pid, only in of_pid.items():
                if only is not None:
                    found.setdefault(pid, []).append((name, only))
                else:
                    self.counts[name, "contradiction"] += 1
        return found

    def _holders(self, processes: Sequence[GpuProcess], answers: Mapping[int, Answer]) -> list[Holder]:
        """The runs on one GPU; idle without a process, and nobody's with only such as nobody knows."""
        if not processes:
            return [Holder(None, None, None, None, IDLE, WHOLE_MICRO)]
        told = [process for process in processes if process.pid in answers and not self._serves(process.pid)]
        runs: dict[tuple[str, ...], list[GpuProcess]] = {}
        for process in told or processes:
            runs.setdefault(answers.get(process.pid, Answer()).group, []).append(process)
        ordered = sorted(runs.items())
        shares = split_micro([active_micro([process.sm_ratio for process in members]) for _, members in ordered])
        found = [
            _holder([answers.get(process.pid, Answer()) for process in members], share)
            for (_, members), share in zip(ordered, shares, strict=True)
        ]
        return sorted(found, key=lambda holder: -holder.share_micro)

    def _serves(self, pid: int) -> bool:
        process = self._table.get(pid) if self._host and pid > 0 else None
        return process is not None and process.name.startswith(_SERVERS)


def _listed(processes: Sequence[GpuProcess] | None, stand_in: int) -> tuple[GpuProcess, ...]:
    """Each process once, as it is first listed; a stand-in for those of a GPU whose driver does not list them."""
    if processes is None:
        return (GpuProcess(stand_in),)
    found: dict[int, GpuProcess] = {}
    for process in processes:
        if process.pid > 0:
            found.setdefault(process.pid, process)
    return tuple(found[pid] for pid in sorted(found))


def _holder(answers: Sequence[Answer], share_micro: int) -> Holder:
    """The processes of one run as one holder; what the first one does not know, another one may."""

    def first(field: str) -> Any:
        return next((value for one in answers if (value := getattr(one, field)) is not None), None)

    job = first("job")
    return Holder(
        run_id=job.run_id if job else None, holder=answers[0].holder, user=first("user"), team=first("team"),
        attribution_source=first("source"), share_micro=share_micro, job=job.key if job else None, processes=len(answers),
    )  # fmt: skip


def sources_of(settings: Mapping[str, Mapping[str, Any] | None] | None = None) -> dict[str, Source]:
    """All sources, with their settings by name; None turns one off. BadConfig for one that does not exist or is set wrong."""
    kinds: dict[str, type] = discover(parts, "SOURCE", type)
    given = settings or {}
    for name in given:
        if name not in kinds:
            raise BadConfig(f"There is no source {name!r} of attribution; the sources are {', '.join(kinds)}.")
    found: dict[str, Source] = {}
    for name, kind in kinds.items():
        mine = given.get(name, {})
        if mine is None:
            continue
        try:
            found[name] = kind(**mine)
        except ValidationError as error:
            mistake = error.errors(include_input=False, include_url=False)[0]
            key = ".".join(map(str, mistake["loc"]))
            raise BadConfig(f"The key 'attribution.{name}.{key}' is wrong ({mistake['msg'].lower()}); correct it.") from None
    return found


__all__ = ["IDLE", "Attributor", "sources_of"]
