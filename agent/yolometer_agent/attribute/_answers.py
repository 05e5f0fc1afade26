"""Answers: what all sources together say of one process, and of the processes of one job."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from yolometer_agent.attribute._base import Claim, Job, Scene
from yolometer_agent.attribute.processes import Process


class Teams(BaseModel):
    """Which team pays, by user, by account of the batch system, or by namespace of Kubernetes."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    users: dict[str, str] = Field(default_factory=dict, description="team of a user")
    accounts: dict[str, str] = Field(default_factory=dict, description="team of an account of the batch system")
    namespaces: dict[str, str] = Field(default_factory=dict, description="team of a namespace of Kubernetes")

    def of(self, claim: Claim) -> str | None:
        """The team of an account, else of a namespace, else of a user."""
        asked = ((self.accounts, claim.account), (self.namespaces, claim.namespace), (self.users, claim.user))
        return next((team for table, name in asked if name and (team := table.get(name))), None)


class Answer(NamedTuple):
    """For whom a process works. `part` tells trainings of one job apart."""

    source: str | None = None
    job: Job | None = None
    place: str | None = None
    user: str | None = None
    team: str | None = None
    part: str = ""

    @property
    def holder(self) -> str | None:
        """Who knows the run: the place, else the job."""
        return self.place or (self.job.key if self.job else None)

    @property
    def group(self) -> tuple[str, ...]:
        """Processes of the same group count as one run."""
        return (self.holder,) if self.holder else ("", self.user or "", self.team or "")


def answer(claims: Sequence[tuple[str, Claim]], teams: Teams, part: str) -> Answer:
    """What the first source to know a field says of it, but a run that has a name is never called otherwise."""
    said = Claim()
    for _, claim in claims:
        if None in said:
            said = Claim._make(mine if mine is not None else its for mine, its in zip(said, claim, strict=True))
    job = said.job if said.run is None else Job("yolometer", "", said.run)
    team = said.team or teams.of(said)
    of_run = (name for name, claim in claims if claim.job or claim.run or claim.place)
    of_payer = (name for name, claim in claims if claim.user or (team and (claim.team or teams.of(claim))))
    source = next(of_run, None) or next(of_payer, None)
    return Answer(source, job, said.place, said.user, team, part if job and said.run is None else "")


def part_of(scene: Scene, process: Process | None) -> str:
    """Step and meeting point of a process: those of the ranks of one training are the same."""
    if process is None:
        return ""
    variables = scene.table.inherited(process)
    return "/".join(variables.get(name, "") for name in ("SLURM_STEP_ID", "MASTER_ADDR", "MASTER_PORT"))


def together(answers: Mapping[int, Answer]) -> dict[int, Answer]:
    """The same answers, where processes of a job that write nothing work for the only place that others of it work for."""
    places: dict[tuple[str, str], set[str]] = {}
    for one in answers.values():
        if one.job and one.place:
            places.setdefault((one.job.key, one.part), set()).add(one.place)
    found = {}
    for pid, one in answers.items():
        mine = places.get((one.job.key, one.part), set()) if one.job and not one.place else set()
        found[pid] = one._replace(place=next(iter(mine))) if len(mine) == 1 else one
    return found


def jobs_of(answers: Iterable[Answer]) -> dict[str, str]:
    """The job of each place whose processes all are in the same one."""
    found: dict[str, set[str]] = {}
    for one in answers:
        if one.place and one.job:
            found.setdefault(one.place, set()).add(one.job.key)
    return {place: next(iter(keys)) for place, keys in found.items() if len(keys) == 1}


__all__ = ["Answer", "Teams", "answer", "jobs_of", "part_of", "together"]
