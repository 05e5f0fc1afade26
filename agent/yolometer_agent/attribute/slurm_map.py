"""Slurm: the control group that it makes for a job, and the files that a prolog writes for each GPU, as for jobstats."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import ClassVar

from pydantic import BaseModel, ConfigDict, Field

from yolometer_agent.attribute._base import Claim, Held, Job, Scene
from yolometer_agent.attribute._jobs import job_of, slurm_number
from yolometer_agent.attribute._map_files import Entry, MapFile, fitting, read_map
from yolometer_agent.attribute.processes import Process

_FIELDS = {
    "SLURM_JOB_ID": "job", "SLURM_JOBID": "job", "JOB_ID": "job", "JOBID": "job", "JOB": "job",
    "SLURM_JOB_USER": "user", "USER": "user", "SLURM_JOB_UID": "user", "UID": "user",
    "SLURM_JOB_ACCOUNT": "account", "ACCOUNT": "account", "SLURM_CLUSTER_NAME": "cluster", "CLUSTER": "cluster",
}  # fmt: skip
_JOB = re.compile(r"([1-9]\d{0,11}(?:_\d{1,9})?)(?:[.+]\w+)?", re.ASCII)
_USER = re.compile(r"\d{1,10}|(?=\S*[A-Za-z_])\w[\w.@\\\-]{0,63}", re.ASCII)
_WORD = re.compile(r"[\w.@\-]{1,64}", re.ASCII)


class SlurmMap(BaseModel):
    """Files named by UUID, or by another name of the GPU: `job uid`, `user job`, `job`, or KEY=VALUE; and control groups."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    rank: ClassVar[int] = 10

    folder: str = Field(default="/run/gpustat", description="where the prolog of Slurm writes a file for each GPU")

    def claims(self, scene: Scene) -> Mapping[Held, Claim]:
        """Job and user of each process that a file, or its control group, gives to a job."""
        found: dict[Held, Claim] = {}
        for uuid in scene.gpus:
            held = scene.on[uuid]
            if not held:
                continue
            file = read_map(self.folder, (uuid, *scene.names.get(uuid, ())), "slurm_map", scene)
            uids = {str(process.uid) for process in held.values() if process is not None}
            entries = parse(file.text, uids) if file else []
            if file and not entries:
                scene.counts["slurm_map", "garbled"] += 1
            for pid, process in held.items():
                claim = _of_file(entries, file, process, scene) if file and entries else None
                if claim is None and process is not None and slurm_number(scene, process):
                    claim = Claim(job=job_of(scene, process), user=scene.users.of(process))
                if claim is not None:
                    found[uuid, pid] = claim
        return found


def parse(text: str, uids: Collection[str]) -> list[Entry]:
    """The jobs that a file names; none when it is garbled. Of two numbers the uid is the one in `uids`, else the second."""
    entries: list[Entry] = []
    fields: dict[str, str] = {}
    for line in text.splitlines():
        words = line.replace(",", " ").split()
        if words and all("=" in word for word in words):
            for word in words:
                key, _, value = word.partition("=")
                name = _FIELDS.get(key.upper())
                value = value.strip("\"'")
                if name is None or not value or (name == "user" and "user" in fields):
                    continue
                if name == "job" and fields.get("job", value) != value:
                    entries += _entry(fields)
                    fields = {}
                fields[name] = value
        elif words:
            entries += _entry(_in_order(words, uids))
    return list(dict.fromkeys(entries + _entry(fields)))


def _in_order(words: list[str], uids: Collection[str]) -> dict[str, str]:
    first, second = words[0], words[1] if len(words) > 1 else None
    if second is None:
        return {"job": first}
    swapped = not _JOB.fullmatch(first) or (first in uids and second not in uids and _JOB.fullmatch(second))
    return {"user": first, "job": second} if swapped else {"job": first, "user": second}


def _entry(fields: Mapping[str, str]) -> list[Entry]:
    """The fields as an entry, if all of them can be what they should be."""
    if not fields.keys() & {"job", "user"}:
        return []
    job, user = fields.get("job"), fields.get("user")
    known = _JOB.fullmatch(job) if job else None
    if (job and not known) or (user and not _USER.fullmatch(user)):
        return []
    others = {name: value for name in ("account", "cluster") if _WORD.fullmatch(value := fields.get(name, ""))}
    return [Entry(known[1] if known else None, user, **others)]


def _of_file(entries: list[Entry], file: MapFile, process: Process | None, scene: Scene) -> Claim | None:
    used = fitting(entries, file.written_s, process, scene)
    if isinstance(used, str):
        scene.counts["slurm_map", used] += 1
        return None
    entry, job = used
    if job is None and entry.job is not None:
        job = Job("slurm", entry.cluster or scene.cluster, entry.job)
    user = entry.user
    if user is not None and user.isdecimal():
        user = scene.users.name(int(user))
    return Claim(job=job, user=user or scene.users.of(process), account=entry.account)


SOURCE = SlurmMap
