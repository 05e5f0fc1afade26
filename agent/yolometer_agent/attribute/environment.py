"""Environment: what a process was started with: its run, team and user by name, its launcher, where its ranks meet."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from pydantic import BaseModel, ConfigDict

from yolometer_agent.attribute._base import Claim, Held, Scene
from yolometer_agent.attribute._jobs import job_of, rendezvous_of
from yolometer_agent.attribute.processes import Process


class Environment(BaseModel):
    """Reads the variables in `processes.NAMES` and no other. Those of another user need root or CAP_SYS_PTRACE."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    rank: ClassVar[int] = 40

    def claims(self, scene: Scene) -> Mapping[Held, Claim]:
        """What the variables of each process say."""
        said: dict[int, Claim] = {}
        for _, pid, process in scene.held():
            if process is not None and pid not in said:
                said[pid] = _claim(scene, process)
        return scene.of_processes({pid: claim for pid, claim in said.items() if any(claim)})


def _claim(scene: Scene, process: Process) -> Claim:
    kept: Claim | None = process.memory.get("environment")
    if kept is not None:
        return kept
    variables = scene.table.inherited(process)
    claim = Claim(
        job=job_of(scene, process) or rendezvous_of(variables, scene.node),
        run=variables.get("YOLOMETER_RUN"),
        user=variables.get("YOLOMETER_USER") or variables.get("SLURM_JOB_USER"),
        team=variables.get("YOLOMETER_TEAM"),
        account=variables.get("SLURM_JOB_ACCOUNT") or variables.get("LSB_PROJECT_NAME") or variables.get("PBS_ACCOUNT"),
    )
    if process.environment:  # what it was started with stays; its parents may change
        process.memory["environment"] = claim
    return claim


SOURCE = Environment
