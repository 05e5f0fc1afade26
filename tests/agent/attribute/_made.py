"""Nodes made of files: a /proc, map files and training directories, as a case in YAML describes them."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from yolometer_agent.attribute._answers import Teams
from yolometer_agent.attribute._base import GpuProcess, Holder, Known, Scene
from yolometer_agent.attribute._users import Users
from yolometer_agent.attribute.attribute import Attributor, sources_of
from yolometer_agent.attribute.processes import Processes

NOW_S = 1_750_000_000.0
UP_S = 500_000.0
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
ANA = 1000 if os.geteuid() == 0 else os.geteuid()
"""Ana's uid: only root can give folders to others, so without it she is who runs the tests."""
PASSWD = f"root:x:0:0:root:/:/bin/sh\nana:x:{ANA}:{ANA}::/:/bin/sh\nben:x:1001:1001::/:/bin/sh\n"


def load(path: Path) -> Any:
    """The cases of a file, in which 1000 is Ana."""
    return yaml.safe_load(re.sub(r"\b1000\b", str(ANA), path.read_text()))


class Made:
    """A node below a folder; paths of a case that do not begin with `pipe:` lie below that folder too."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.proc = folder, folder / "proc"
        self.now_s = NOW_S
        self.proc.mkdir()
        (folder / "gpustat").mkdir()
        (folder / "hpc").mkdir()
        (folder / "pods").mkdir()
        (folder / "passwd").write_text(PASSWD)
        (self.proc / "uptime").write_text(f"{UP_S} 1.0\n")

    def process(self, pid: int, about: Mapping[str, Any] | None = None) -> None:
        """Make a process, or make it again as it is now."""
        said = dict(about or {})
        mine = self.proc / str(pid)
        (mine / "fd").mkdir(parents=True, exist_ok=True)
        (mine / "fdinfo").mkdir(exist_ok=True)
        ticks = int((UP_S - said.get("ago_s", 3600)) * TICKS_PER_S)
        parent, name = said.get("parent", 1), said.get("name", "python")
        rest = " ".join(["0"] * 17)
        (mine / "stat").write_text(f"{pid} ({name}) {said.get('state', 'S')} {parent} {rest} {ticks} 0 0\n")
        numbers = f"{pid}\t7" if said.get("container") else str(pid)
        uid = said.get("uid", ANA)
        (mine / "status").write_text(f"Name:\tx\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\nGroups:\t1 2\nNSpid:\t{numbers}\n")
        environ = said.get("environ")
        env = environ.encode() if environ is not None else b"".join(f"{k}={v}\0".encode() for k, v in said.get("env", {}).items())
        (mine / "environ").write_bytes(env)
        (mine / "cgroup").write_text(f"0::{said.get('cgroup', '/user.slice/user-1000.slice/session-2.scope')}\n")
        (mine / "cmdline").write_bytes(said.get("command", f"python\0train{pid}.py\0").encode())
        self._link(mine / "cwd", said.get("cwd", "."))
        self._link(mine / "root", ".")
        for number, target in said.get("fds", {}).items():
            self.opens(pid, int(number), target)
        if parent < 2:
            return
        children = self.proc / str(parent) / "task" / str(parent)
        children.mkdir(parents=True, exist_ok=True)
        with (children / "children").open("a") as file:
            file.write(f"{pid} ")

    def opens(self, pid: int, number: int, target: str) -> None:
        """Open a file for writing; with a `<` in front for reading."""
        reads = target.startswith("<")
        self._link(self.proc / str(pid) / "fd" / str(number), target.lstrip("<"))
        (self.proc / str(pid) / "fdinfo" / str(number)).write_text(f"pos:\t0\nflags:\t{'0100000' if reads else '0102001'}\n")

    def ends(self, pid: int) -> None:
        """Take a process away."""
        mine = self.proc / str(pid)
        for path in sorted(mine.rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
        mine.rmdir()

    def file(self, name: str, said: Mapping[str, Any] | str) -> Path:
        """Write a file; `age_s` before now."""
        about: Mapping[str, Any] = {"text": said} if isinstance(said, str) else said
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(about.get("text", ""))
        when = self.now_s - about.get("age_s", 3700)
        os.utime(path, (when, when))
        return path

    def place(self, key: str, said: Mapping[str, Any]) -> Known:
        """A place and its files, owned by the user of `uid` if that can be."""
        folder = self.folder / said["folder"]
        folder.mkdir(parents=True, exist_ok=True)
        if os.geteuid() == 0:
            os.chown(folder, said.get("uid", ANA), -1)
        age = {"age_s": said.get("age_s", 5)}
        names = said.get("files", ["results.csv"])  # those that begin with a slash lie elsewhere
        files = [self.file(name[1:] if name[0] == "/" else f"{said['folder']}/{name}", age) for name in names]
        writers = said.get("writers", [])
        return Known(key, str(folder), tuple(map(str, files)), None if writers is None else frozenset(writers))

    def attributor(self, **more: Any) -> Attributor:
        settings = {
            "slurm_map": {"folder": str(self.folder / "gpustat")},
            "dcgm_hpc": {"folder": str(self.folder / "hpc")},
            "kubernetes": {"pods": str(self.folder / "pods"), "checkpoint": str(self.folder / "checkpoint")},
        }
        given: dict[str, Any] = {"node": "node1", "proc": self.proc, "passwd": self.folder / "passwd", "host_pids": True}
        return Attributor(sources_of(settings), wall=lambda: self.now_s, **{**given, **more})

    def scene(self, gpus: Mapping[str, tuple[GpuProcess, ...]], *, unseen: frozenset[int] = frozenset()) -> Scene:
        """What a source alone is given."""
        counts: Counter[tuple[str, str]] = Counter()
        users = Users(self.folder / "passwd")
        users.begin()
        return Scene(
            gpus=gpus, names={}, known=(), table=Processes(self.proc, counts), users=users, now_s=self.now_s, node="node1",
            cluster="", unseen=unseen, counts=counts,
        )  # fmt: skip

    def _link(self, path: Path, target: str) -> None:
        path.unlink(missing_ok=True)
        path.symlink_to(target if target.startswith(("pipe:", "/")) else self.folder / target)


def gpu_processes(said: list[Any] | None) -> list[GpuProcess] | None:
    """The processes of a GPU, as a case writes them: `12`, or `[12, 0.5]` with the part of the time it was active."""
    if said is None:
        return None
    return [GpuProcess(one) if isinstance(one, int) else GpuProcess(one[0], None, one[1]) for one in said]


def told(holders: list[Holder], like: list[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The holders as dictionaries, with the fields that the case speaks of."""
    wanted = [dict(one) for one in like] + [{}] * len(holders)
    return [{name: getattr(holder, name) for name in one} for holder, one in zip(holders, wanted, strict=False)]


def run_case(folder: Path, case: Mapping[str, Any]) -> tuple[Attributor, dict[str, list[Holder]]]:
    """Make the node of a case and look once."""
    made = Made(folder)
    for pid, about in case.get("processes", {}).items():
        made.process(pid, about)
    for name, said in case.get("files", {}).items():
        made.file(name, said)
    known = [made.place(key, said) for key, said in case.get("places", {}).items()]
    more = {name: case[name] for name in ("cluster", "host_pids", "node") if name in case}
    attributor = made.attributor(teams=Teams(**case.get("teams", {})), **more)
    gpus = {uuid: gpu_processes(said) for uuid, said in case["gpus"].items()}
    return attributor, attributor.refresh(gpus, known, case.get("names"))
