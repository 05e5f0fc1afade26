"""Jobs: which launcher's job, or which pod, a process belongs to, by its control group and the variables that launchers set."""

from __future__ import annotations

import re
from collections.abc import Mapping

from yolometer_agent.attribute._base import Job, Scene
from yolometer_agent.attribute.processes import Process

_ID = re.compile(r"[\w.\-\[\]@+:/]{1,128}", re.ASCII)
_SLURM_GROUP = re.compile(r"/(?:slurm[\w.\-]*|[\w.\-]+slurmstepd\.scope)/(?:[^\n]*/)?job_(\d+)(?:/|$)", re.MULTILINE)
_HEX = "[0-9a-f]"
_POD = re.compile(
    rf"(?:^|[/:\-])pod({_HEX}{{8}}[-_]{_HEX}{{4}}[-_]{_HEX}{{4}}[-_]{_HEX}{{4}}[-_]{_HEX}{{12}}|{_HEX}{{32}})(?:\.slice)?(?:[/:]|$)",
    re.MULTILINE,
)
_LOOPBACK = re.compile(r"localhost(\.localdomain)?|127\.[\d.]+|::1|\[::1\]|0\.0\.0\.0", re.IGNORECASE)


def job_of(scene: Scene, process: Process) -> Job | None:
    """The job of a batch system that a process runs in; None without one, or when it can't be told.

    The control group is believed first: the launcher makes it, while a user may set a variable.
    """
    kept = scene.table.worked_out
    if ("job", process.pid) not in kept:
        job = _batch(scene.table.inherited(process), scene.cluster)
        number = slurm_number(scene, process)
        if number is not None and not (job is not None and job.launcher == "slurm" and job.is_called(number)):
            job = Job("slurm", scene.cluster, number)
        kept["job", process.pid] = job
    found: Job | None = kept["job", process.pid]
    return found


def slurm_number(scene: Scene, process: Process) -> str | None:
    """The number of the Slurm job whose control group a process is in."""
    if "slurm_number" not in process.memory:
        match = _SLURM_GROUP.search(scene.table.cgroup(process))
        process.memory["slurm_number"] = match[1] if match else None
    number: str | None = process.memory["slurm_number"]
    return number


def pod_of(scene: Scene, process: Process) -> str | None:
    """The uid of the pod that a process is in."""
    if "pod" not in process.memory:
        process.memory["pod"] = pod_of_group(scene.table.cgroup(process))
    pod: str | None = process.memory["pod"]
    return pod


def rendezvous_of(variables: Mapping[str, str], node: str) -> Job | None:
    """What the ranks of one distributed training have in common: the id given to torchrun, else where they meet.

    The id alone is not enough, for many use the one of an example, so the host they meet at goes with it. An address of
    this very machine is told apart by the name of the node.
    """
    host, port = variables.get("MASTER_ADDR", ""), variables.get("MASTER_PORT", "")
    name = variables.get("TORCHELASTIC_RUN_ID", "")
    where = node if not host or _LOOPBACK.fullmatch(host) else host
    if name and name.lower() != "none" and _ID.fullmatch(name):
        return Job("torchrun", where, name)
    # some set an address for all they run; a rank has its number too
    ranked = variables.keys() & {"RANK", "WORLD_SIZE", "TORCHELASTIC_RUN_ID"}
    if host and port.isdecimal() and ranked and _ID.fullmatch(host):
        return Job("torchrun", where, port, named=False)
    return None


def pod_of_group(cgroup: str) -> str | None:
    """The uid of the pod in the paths of control groups, as the kubelet's drivers cgroupfs and systemd write it."""
    match = _POD.search(cgroup)
    return plain_uid(match[1]) if match else None


def plain_uid(uid: str) -> str:
    """A uid of a pod without its dashes, which systemd writes in another way."""
    return uid.replace("-", "").replace("_", "")


def _batch(variables: Mapping[str, str], cluster: str) -> Job | None:
    """The job of the batch system whose variables are set."""
    found = _slurm(variables, cluster)
    if found is None and _is_id(job := variables.get("LSB_JOBID", "")):
        index = variables.get("LSB_JOBINDEX", "0")
        found = Job("lsf", cluster, job if index in ("0", "") else f"{job}[{index}]", frozenset({job}))
    if found is None and _is_id(job := variables.get("PBS_JOBID", "")):
        found = Job("pbs", cluster, job, frozenset({job.partition(".")[0]}))
    # JOB_ID alone says little: others use that name too, but a Grid Engine always sets the other one with it
    if found is None and (job := variables.get("JOB_ID", "")).isdecimal() and "SGE_TASK_ID" in variables:
        task = variables["SGE_TASK_ID"]
        found = Job("sge", cluster, f"{job}.{task}" if task.isdecimal() else job, frozenset({job}))
    return found


def _slurm(variables: Mapping[str, str], cluster: str) -> Job | None:
    own = variables.get("SLURM_JOB_ID") or variables.get("SLURM_JOBID") or ""
    if not own.isdecimal():
        return None
    array, task = variables.get("SLURM_ARRAY_JOB_ID", ""), variables.get("SLURM_ARRAY_TASK_ID", "")
    whole = variables.get("SLURM_HET_JOB_ID", "")  # the parts of a heterogeneous job have numbers of their own
    aliases = {own} | ({f"{array}_{task}"} if array and task else set())
    return Job("slurm", variables.get("SLURM_CLUSTER_NAME") or cluster, whole if whole.isdecimal() else own, frozenset(aliases))


def _is_id(text: str) -> bool:
    return bool(text and _ID.fullmatch(text))


__all__ = ["job_of", "plain_uid", "pod_of", "pod_of_group", "rendezvous_of", "slurm_number"]
