"""DCGM: the folder of job ids that dcgm-exporter reads for HPC clusters, one file a GPU, one or more ids a line."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import ClassVar

from pydantic import BaseModel, ConfigDict, Field

from yolometer_agent.attribute._base import Claim, Held, Job, Scene
from yolometer_agent.attribute._map_files import Entry, fitting, read_map

_ID = re.compile(r"[\w.\-\[\]@+]{1,128}", re.ASCII)


class DcgmHpc(BaseModel):
    """Files named by index (`0`, and `0.1` for a MIG device) or by UUID."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    rank: ClassVar[int] = 20

    folder: str | None = Field(default=None, description="the folder given to dcgm-exporter as --hpc-job-mapping-dir")
    launcher: str = Field(default="slurm", pattern=r"^[a-z0-9_]+$", description="whose job ids they are")

    def claims(self, scene: Scene) -> Mapping[Held, Claim]:
        """The job of each process that can belong to one of the jobs of its GPU."""
        found: dict[Held, Claim] = {}
        for uuid in scene.gpus if self.folder else ():
            held = scene.on[uuid]
            file = read_map(self.folder or "", (uuid, *scene.names.get(uuid, ())), "dcgm_hpc", scene) if held else None
            if file is None:
                continue
            words = file.text.replace(",", " ").split()
            entries = [Entry(word) for word in dict.fromkeys(words)]
            if not all(map(_ID.fullmatch, words)):
                scene.counts["dcgm_hpc", "garbled"] += 1
                continue
            for pid, process in held.items():
                used = fitting(entries, file.written_s, process, scene)
                if isinstance(used, str):
                    scene.counts["dcgm_hpc", used] += 1
                    continue
                entry, job = used
                found[uuid, pid] = Claim(job=job or Job(self.launcher, scene.cluster, entry.job or ""))
        return found


SOURCE = DcgmHpc
