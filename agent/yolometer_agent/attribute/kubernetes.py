"""Kubernetes: the pod of a process by its control group, else by the kubelet's list of who was given which GPU."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from yolometer_agent.attribute._base import Claim, Held, Job, Scene
from yolometer_agent.attribute._jobs import plain_uid, pod_of, rendezvous_of
from yolometer_agent.attribute.processes import Process

_LOG_FOLDER = re.compile(r"([a-z0-9][a-z0-9\-]*)_([a-z0-9][a-z0-9.\-]*)_([0-9a-f\-]{32,36})")
_MOST_BYTES = 1 << 23
_Stamp = tuple[int, int, int]


class _Kept(NamedTuple):
    """What was read of a file or folder, as long as it stays the same."""

    stamp: _Stamp
    value: Any


class Kubernetes(BaseModel):
    """Needs no client: names of pods come from the folder of their logs, GPUs of pods from the kubelet's own checkpoint."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    rank: ClassVar[int] = 30

    pods: str = Field(default="/var/log/pods", description="where the kubelet keeps the logs of pods, a folder each")
    checkpoint: str = Field(
        default="/var/lib/kubelet/device-plugins/kubelet_internal_checkpoint", description="what the kubelet gave to which pod"
    )

    def claims(self, scene: Scene) -> Mapping[Held, Claim]:
        """Pod and namespace of each process in one; for processes that can't be seen, those of the only pod given their GPU."""
        given: Mapping[str, frozenset[str]] | None = None
        found: dict[Held, Claim] = {}
        for uuid, pid, process in scene.held():
            pod = pod_of(scene, process) if process is not None else None
            if process is None:
                if given is None:
                    given = self._given(scene)
                owners = given.get(uuid, frozenset())
                pod = next(iter(owners)) if len(owners) == 1 else None
                if len(owners) > 1:
                    scene.counts["kubernetes", "several_pods"] += 1
            if pod is not None:
                found[uuid, pid] = self._claim(scene, process, pod)
        return found

    def _claim(self, scene: Scene, process: Process | None, pod: str) -> Claim:
        namespace, name = self._named(scene).get(pod, ("", pod))
        together = rendezvous_of(scene.table.inherited(process), scene.node) if process is not None else None
        # a training on several pods has several pods, but one place to meet
        job = together if together is not None and together.named else Job("kubernetes", namespace, name)
        return Claim(job=job, namespace=namespace or None)

    def _named(self, scene: Scene) -> Mapping[str, tuple[str, str]]:
        """Namespace and name of each pod, by its uid."""
        stamp = _stamp(self.pods)
        if stamp is None:
            return {}
        kept = scene.memory.get("pods")
        if kept is None or kept.stamp != stamp:
            try:
                listed = os.listdir(self.pods)  # noqa: PTH208  # names, not paths
            except OSError:
                listed = []
                scene.counts["kubernetes", "pods_unreadable"] += 1
            folders = (_LOG_FOLDER.fullmatch(name) for name in listed)
            kept = _Kept(stamp, {plain_uid(match[3]): (match[1], match[2]) for match in folders if match})
            scene.memory["pods"] = kept
        named: Mapping[str, tuple[str, str]] = kept.value
        return named

    def _given(self, scene: Scene) -> Mapping[str, frozenset[str]]:
        """The pods that each GPU was given to, by UUID."""
        stamp = _stamp(self.checkpoint)
        if stamp is None:
            return {}
        kept = scene.memory.get("checkpoint")
        if kept is None or kept.stamp != stamp:
            try:
                with Path(self.checkpoint).open("rb") as file:
                    value = given(json.loads(file.read(_MOST_BYTES)))
            except (OSError, ValueError, RecursionError):
                scene.counts["kubernetes", "checkpoint_unreadable"] += 1
                return {}
            kept = scene.memory["checkpoint"] = _Kept(stamp, value)
        pods: Mapping[str, frozenset[str]] = kept.value
        return pods


def given(said: Any) -> dict[str, frozenset[str]]:
    """UUID -> uids of pods, of a kubelet's checkpoint: lists of devices, by NUMA node since 1.20. What is none is passed over."""
    data = said.get("Data") if isinstance(said, dict) else None
    entries = data.get("PodDeviceEntries") if isinstance(data, dict) else None
    found: dict[str, set[str]] = {}
    for entry in entries if isinstance(entries, list) else ():
        if not isinstance(entry, dict) or not isinstance(pod := entry.get("PodUID"), str):
            continue
        devices = entry.get("DeviceIDs")
        lists = list(devices.values()) if isinstance(devices, dict) else [devices]
        for device in (device for devices in lists if isinstance(devices, list) for device in devices):
            if isinstance(device, str) and device.startswith(("GPU-", "MIG-")):
                # a GPU that is shared by time has replicas: GPU-...::3
                found.setdefault(device.partition("::")[0], set()).add(plain_uid(pod))
    return {uuid: frozenset(pods) for uuid, pods in found.items()}


def _stamp(path: str) -> _Stamp | None:
    try:
        seen = os.stat(path)  # noqa: PTH116  # hot
    except OSError:
        return None
    return seen.st_mtime_ns, seen.st_size, seen.st_ino


SOURCE = Kubernetes
