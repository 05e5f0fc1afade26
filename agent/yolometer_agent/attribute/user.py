"""User: who runs a process, when nothing else is known of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from pydantic import BaseModel, ConfigDict

from yolometer_agent.attribute._base import Claim, Held, Scene
from yolometer_agent.attribute._jobs import pod_of


class User(BaseModel):
    """The name of the real uid; `uid:1234` where nobody has that name here."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    rank: ClassVar[int] = 60

    def claims(self, scene: Scene) -> Mapping[Held, Claim]:
        """The user of each process. The root of a container is nobody in particular, and the uids of pods mean nothing here."""
        said = {}
        for _, pid, process in scene.held():
            if process is None or process.uid is None or (process.uid == 0 and process.depth > 1):
                continue
            if pod_of(scene, process) is None:
                said[pid] = Claim(user=scene.users.of(process) or f"uid:{process.uid}")
        return scene.of_processes(said)


SOURCE = User
