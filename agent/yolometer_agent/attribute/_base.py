"""The words of attribution: what is asked, what a source may claim, and what comes out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol, runtime_checkable

if TYPE_CHECKING:
    from yolometer_agent.attribute._users import Users
    from yolometer_agent.attribute.processes import Process, Processes

WHOLE_MICRO = 1_000_000
"""The shares of one GPU add up to this."""
UNSEEN_PID = -1
"""Stands for all processes of a GPU whose list the driver does not give."""


class GpuProcess(NamedTuple):
    """A process that holds memory of a GPU, by the host's pid; `sm_ratio` is the part of the time it was active, None unknown."""

    pid: int
    memory_bytes: int | None = None
    sm_ratio: float | None = None


class Known(NamedTuple):
    """A place that is tailed: its key as the facts have it, its real folder, its files, who writes them (None: not looked)."""

    place: str
    folder: str
    files: tuple[str, ...] = ()
    pids: frozenset[int] | None = None


class Holder(NamedTuple):
    """For whom a GPU works, and for which part of it. None is unknown.

    `run_id`: how YOLOMETER_RUN or a launcher names the run. `holder`: the place that is tailed, else the key of the job,
    else None. `job`: the key of the job, `job:<launcher>:<cluster>:<id>`, also where the holder is a place.
    `attribution_source`: the first source that knew it; "idle" without a process; None when nobody knows.
    `share_micro`: millionths; those of one GPU add up to `WHOLE_MICRO`. `processes`: how many of its processes are there.
    """

    run_id: str | None
    holder: str | None
    user: str | None
    team: str | None
    attribution_source: str | None
    share_micro: int
    job: str | None = None
    processes: int = 0


class Job(NamedTuple):
    """A job of a launcher. `aliases`: other ids by which files of that launcher may call it. `named`: its id names a run."""

    launcher: str
    cluster: str
    id: str
    aliases: frozenset[str] = frozenset()
    named: bool = True

    @property
    def key(self) -> str:
        """The same on all nodes of the job."""
        return f"job:{self.launcher}:{self.cluster}:{self.id}"

    @property
    def run_id(self) -> str | None:
        """The name of its run; None where the id is only an address."""
        named_by_hand = self.id if self.launcher == "yolometer" else f"{self.launcher}:{self.cluster}:{self.id}"
        return named_by_hand if self.named else None

    def is_called(self, name: str) -> bool:
        """Whether a file that writes `name` means this job."""
        return name == self.id or name in self.aliases


class Claim(NamedTuple):
    """What one source says of one process on one GPU; None says nothing. `account` and `namespace` lead to a team."""

    job: Job | None = None
    run: str | None = None
    place: str | None = None
    user: str | None = None
    team: str | None = None
    account: str | None = None
    namespace: str | None = None


Held = tuple[str, int]
"""A GPU and the pid of a process on it."""


@dataclass
class Scene:
    """One look at a node: all that a source may ask. `memory` is the source's own and lives as long as the agent."""

    gpus: Mapping[str, tuple[GpuProcess, ...]]
    names: Mapping[str, tuple[str, ...]]
    known: tuple[Known, ...]
    table: Processes
    users: Users
    now_s: float
    node: str
    cluster: str
    unseen: frozenset[int]
    counts: Counter[tuple[str, str]]
    memory: dict[str, Any] = field(default_factory=dict)
    on: dict[str, dict[int, Process | None]] = field(init=False)
    """The processes of each GPU by pid; None in place of one that cannot be seen from here. Those that ended are left out."""

    def __post_init__(self) -> None:
        self.on = {uuid: dict(self._there(processes)) for uuid, processes in self.gpus.items()}

    def _there(self, processes: Iterable[GpuProcess]) -> Iterator[tuple[int, Process | None]]:
        for pid, _, _ in processes:
            process = None if pid in self.unseen else self.table.get(pid)
            if process is not None or pid in self.unseen:
                yield pid, process

    def held(self) -> Iterator[tuple[str, int, Process | None]]:
        """Every process on every GPU, as `on` has them."""
        for uuid, processes in self.on.items():
            for pid, process in processes.items():
                yield uuid, pid, process

    def of_processes(self, claims: Mapping[int, Claim]) -> dict[Held, Claim]:
        """Claims by pid, for a process on all of its GPUs."""
        return {(uuid, pid): claims[pid] for uuid, processes in self.on.items() for pid in processes if pid in claims}


@runtime_checkable
class Source(Protocol):
    """Knows something of who holds GPUs. Frozen settings, given under its name in `attribution:`; offered as SOURCE."""

    rank: ClassVar[int]
    """Lower is asked and believed first."""

    def claims(self, scene: Scene) -> Mapping[Held, Claim]:
        """What it knows. Never raises OSError: what cannot be used is counted in `scene.counts` as (source, reason)."""


__all__ = ["UNSEEN_PID", "WHOLE_MICRO", "Claim", "GpuProcess", "Held", "Holder", "Job", "Known", "Scene", "Source"]
