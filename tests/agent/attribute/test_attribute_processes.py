"""Processes: real ones in the real /proc, and files in its place; no secret of an environment is kept."""

from __future__ import annotations

import logging
import os
import pickle
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from _made import ANA, NOW_S, UP_S, Made
from hypothesis import given
from hypothesis import strategies as st

from yolometer_agent.attribute._base import WHOLE_MICRO, GpuProcess, Known
from yolometer_agent.attribute._variables import NAMES, allowed
from yolometer_agent.attribute._visibility import hides_others, sees_host
from yolometer_agent.attribute.attribute import Attributor, sources_of
from yolometer_agent.attribute.processes import Processes
from yolometer_agent.tail.writers import writers

CHILD = """
import sys
kept = [open(path, "ab") for path in sys.argv[1:]]
print("ready", flush=True)
sys.stdin.read()
"""
PARENT = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "import sys; print('ready', flush=True); sys.stdin.read()"], cwd="/",
    env={"NOTHING": "1"})
log = open(sys.argv[1], "ab")
print(child.pid, flush=True)
child.wait()
"""
SECRETS = {
    "AWS_SECRET_ACCESS_KEY": "s3cr3t-aws", "WANDB_API_KEY": "s3cr3t-wandb", "HF_TOKEN": "s3cr3t-hf", "PASSWORD": "s3cr3t-pw",
    "YOLOMETER_STORE": "clickhouse://u:s3cr3t-store@h/db", "YOLOMETER_RUN_TOKEN": "s3cr3t-run", "SLURM_JWT": "s3cr3t-jwt",
    "SLURM_JOB_COMMENT": "s3cr3t-comment", "KUBERNETES_SERVICE_TOKEN": "s3cr3t-k8s", "MASTER_ADDR_AUTH": "s3cr3t-addr",
    "yolometer_run": "s3cr3t-case", "X": "YOLOMETER_RUN=s3cr3t-inside", "RANKX": "s3cr3t-rank",
    "SLURM_JOB_ACCOUNT": "s3cr3t" * 99,
}  # fmt: skip


@contextmanager
def child(*arguments: object, code: str = CHILD, **more: object) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A process that has said its first line, and that ends with its input."""
    argv = [sys.executable, "-c", code, *map(str, arguments)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, **more) as process:  # type: ignore[call-overload]
        assert process.stdout is not None
        try:
            yield process, process.stdout.readline().strip()
        finally:
            if process.stdin:
                process.stdin.close()
            process.wait(30)


def real() -> Attributor:
    return Attributor(sources_of(), node="node1", host_pids=True)


def test_the_environment_of_a_real_process() -> None:
    env = {"SLURM_JOB_ID": "77", "SLURM_CLUSTER_NAME": "blue", "YOLOMETER_TEAM": "vision", "YOLOMETER_USER": "eve", **SECRETS}
    with child(env=env, cwd="/") as (process, _):
        holder = real().refresh({"GPU-0": [GpuProcess(process.pid)]})["GPU-0"][0]
    assert holder[:6] == ("slurm:blue:77", "job:slurm:blue:77", "eve", "vision", "environment", WHOLE_MICRO)


def test_no_secret_leaves_an_environment(caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]) -> None:
    """Nothing that is given, kept or said holds a value that is not on the list."""
    with caplog.at_level(logging.DEBUG), child(env={**SECRETS, "YOLOMETER_RUN": "night"}, cwd="/") as (process, _):
        attributor = real()
        found = [attributor.refresh({"GPU-0": [GpuProcess(process.pid)]}) for _ in range(2)]
    assert found[1]["GPU-0"][0].run_id == "night"
    out = capfd.readouterr()
    table = attributor._table
    kept = repr([vars(attributor), vars(table), [vars_of(one) for one in table._alive.values()]])
    raw = pickle.dumps([table._alive, attributor._memory, attributor._last, attributor._jobs]).decode("latin-1")
    assert "night" in raw  # what is on the list is kept, so the look went deep enough
    for said in (repr(found), kept, raw, repr(attributor.counts), caplog.text, out.out, out.err):
        assert "s3cr3t" not in said


def vars_of(process: object) -> dict[str, object]:
    return {name: getattr(process, name) for name in type(process).__slots__}  # type: ignore[attr-defined]


@given(st.lists(st.tuples(st.one_of(st.sampled_from(sorted(NAMES)), st.text(max_size=12)), st.text(max_size=250)), max_size=8))
def test_only_names_on_the_list_are_kept(pairs: list[tuple[str, str]]) -> None:
    raw = b"\0".join(f"{name}={value}".encode("utf-8", "surrogatepass") for name, value in pairs)
    found = allowed(raw)
    assert found.keys() <= NAMES
    assert all(value.isprintable() and 0 < len(value) <= 200 for value in found.values())


@given(st.binary(max_size=400))
def test_any_bytes_may_be_an_environment(raw: bytes) -> None:
    assert allowed(raw).keys() <= NAMES


def test_the_first_of_two_alike_counts() -> None:
    assert allowed(b"RANK=0\0RANK=1\0=x\0RANK\0YOLOMETER_RUN=a\nb\0YOLOMETER_TEAM=\xff\0") == {"RANK": "0"}


def test_a_real_process_that_writes_its_place(tmp_path: Path) -> None:
    """By its open file, with the eyes of the tail and without."""
    folder = tmp_path / "runs" / "a"
    folder.mkdir(parents=True)
    log = folder / "train.log"
    with child(log, cwd="/", env={}) as (process, _):
        seen = log.stat()
        pids = writers().pids[seen.st_dev, seen.st_ino]
        for known in (Known("node1:a", str(folder), (str(log),), pids), Known("node1:a", str(folder), (str(log),), None)):
            holder = real().refresh({"GPU-0": [GpuProcess(process.pid)]}, [known])["GPU-0"][0]
            assert (holder.holder, holder.attribution_source) == ("node1:a", "workdir")


def test_a_real_process_by_its_folder(tmp_path: Path) -> None:
    folder = tmp_path / "project" / "runs" / "a"
    folder.mkdir(parents=True)
    for start in (folder, tmp_path / "project"):
        with child(cwd=start, env={}) as (process, _):
            (folder / "results.csv").write_text("epoch\n")
            known = [Known("node1:a", str(folder), (str(folder / "results.csv"),), frozenset())]
            assert real().refresh({"GPU-0": [GpuProcess(process.pid)]}, known)["GPU-0"][0].holder == "node1:a"


def test_a_real_child_of_a_process_that_writes(tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    argv = [sys.executable, "-c", PARENT, str(log)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd="/") as parent:
        assert parent.stdout is not None
        assert parent.stdin is not None
        words = {parent.stdout.readline().strip(), parent.stdout.readline().strip()} - {"ready"}
        known = [Known("node1:a", str(tmp_path), (str(log),), frozenset({parent.pid}))]
        holder = real().refresh({"GPU-0": [GpuProcess(int(words.pop()))]}, known)["GPU-0"][0]
        parent.stdin.close()
        parent.wait(30)
    assert holder.holder == "node1:a"


def test_a_real_pipeline(tmp_path: Path) -> None:
    """`train | cat | tee log`: the process knows neither the log nor its folder."""
    log = tmp_path / "train.log"
    code = "import os, sys; print(os.getpid(), flush=True); sys.stdin.read()"
    argv = ["sh", "-c", f"{sys.executable} -c '{code}' | cat | tee {log}"]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd="/") as shell:
        assert shell.stdin is not None
        assert shell.stdout is not None
        pid = int(shell.stdout.readline())
        seen = log.stat()
        known = [Known("node1:a", str(tmp_path), (str(log),), writers().pids[seen.st_dev, seen.st_ino])]
        holder = real().refresh({"GPU-0": [GpuProcess(pid)]}, known)["GPU-0"][0]
        shell.stdin.close()
        shell.wait(30)
    assert holder.holder == "node1:a"
    assert pid not in (known[0].pids or ())


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_a_process_of_another_user_cannot_be_read(tmp_path: Path) -> None:
    """Without root: the user is known, the rest is counted as denied, nothing is raised."""
    with child(env={"YOLOMETER_RUN": "night"}, cwd="/") as (process, _):
        known = [Known("node1:a", str(tmp_path), (), None)]
        attributor = real()
        os.seteuid(65534)
        try:
            holder = attributor.refresh({"GPU-0": [GpuProcess(process.pid)]}, known)["GPU-0"][0]
        finally:
            os.seteuid(0)
        assert real().refresh({"GPU-0": [GpuProcess(process.pid)]})["GPU-0"][0].run_id == "night"
    assert (holder.run_id, holder.holder, holder.user, holder.attribution_source) == (None, None, "root", "user")
    assert attributor.counts["proc", "environ_denied"] >= 1
    assert attributor.counts["proc", "cwd_denied"] >= 1
    assert attributor.counts["proc", "fd_denied"] >= 1


def test_a_real_process_that_ended(tmp_path: Path) -> None:
    with child(cwd="/") as (process, _):
        pid = process.pid
    assert real().refresh({"GPU-0": [GpuProcess(pid)]})["GPU-0"][0].attribution_source is None


def test_a_real_zombie() -> None:
    process = subprocess.Popen([sys.executable, "-c", ""], env={"YOLOMETER_RUN": "night"})
    try:
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        attributor = real()
        holder = attributor.refresh({"GPU-0": [GpuProcess(process.pid)]})["GPU-0"][0]
    finally:
        process.wait()
    assert holder.run_id is None
    assert attributor.counts["proc", "zombie"] == 1


def test_the_start_of_a_real_process() -> None:
    before_s = time.time()
    with child() as (process, _):
        table = Processes()
        found = table.get(process.pid)
        assert found is not None
        started_s = table.started_s(found, time.time())
    assert started_s is not None
    assert before_s - 1 < started_s < time.time() + 1


# files in place of /proc ----------------------------------------------------------------------------------------


def test_names_of_programs_may_hold_anything(tmp_path: Path) -> None:
    made = Made(tmp_path)
    made.process(10, {"name": "a) R 1 (b) ", "parent": 7})
    found = Processes(made.proc).get(10)
    assert found is not None
    assert (found.name, found.parent, found.state) == ("a) R 1 (b) ", 7, "S")


@pytest.mark.parametrize("text", ["", "10", "10 (x) S", "10 (x) S y " + "0 " * 30, "(((", ")"])
def test_a_process_whose_numbers_are_cut_short_is_none(tmp_path: Path, text: str) -> None:
    made = Made(tmp_path)
    made.process(10)
    (made.proc / "10" / "stat").write_text(text)
    assert Processes(made.proc).get(10) is None
    holder = made.attributor().refresh({"GPU-0": [GpuProcess(10)]})["GPU-0"][0]
    assert (holder.attribution_source, holder.processes) == (None, 1)


def test_each_environment_is_read_once_and_forgotten_at_the_end(tmp_path: Path) -> None:
    made = Made(tmp_path)
    made.process(10, {"env": {"YOLOMETER_RUN": "night"}})
    attributor = made.attributor()
    gpus = {"GPU-0": [GpuProcess(10)]}
    attributor.refresh(gpus)
    for name in ("environ", "cgroup", "status"):
        (made.proc / "10" / name).unlink()
    assert attributor.refresh(gpus)["GPU-0"][0][:3] == ("night", "job:yolometer::night", "ana")
    assert attributor._table._alive.keys() == {10}
    attributor.refresh({"GPU-0": []})
    assert not attributor._table._alive
    assert not attributor._last


def test_circles_of_parents_end(tmp_path: Path) -> None:
    made = Made(tmp_path)
    made.process(10, {"parent": 11})
    made.process(11, {"parent": 10})
    table = Processes(made.proc)
    found = table.get(10)
    assert found is not None
    assert [one.pid for one in table.parents(found)] == [10, 11]


def test_without_an_uptime_nothing_is_older(tmp_path: Path) -> None:
    made = Made(tmp_path)
    made.process(10, {"ago_s": 100})
    table = Processes(made.proc)
    found = table.get(10)
    assert found is not None
    assert table.started_s(found, NOW_S) == pytest.approx(NOW_S - 100)
    for text in ("", "x y"):
        (made.proc / "uptime").write_text(text)
        table.begin()
        assert table.started_s(found, NOW_S) is None
    assert UP_S > 0


@pytest.mark.parametrize(
    ("numbers", "namespace", "sees"),
    [("99", "pid:[4026531836]", True), ("99", "pid:[4026532000]", False), ("99 7", "pid:[4026532000]", True), (None, None, True)],
)
def test_whose_numbers_a_proc_shows(tmp_path: Path, numbers: str | None, namespace: str | None, sees: bool) -> None:
    if namespace:
        (tmp_path / "self" / "ns").mkdir(parents=True)
        (tmp_path / "self" / "ns" / "pid").symlink_to(namespace)
        (tmp_path / "self" / "status").write_text(f"Name:\tx\nNSpid:\t{numbers}\n")
    assert sees_host(tmp_path) is sees
    attributor = Attributor({}, node="node1", proc=tmp_path)
    assert (attributor.blind is None) is sees
    assert sees or "--pid=host" in str(attributor.blind)


def test_processes_that_are_hidden_are_not_gone(tmp_path: Path) -> None:
    made = Made(tmp_path)
    made.process(10)
    assert not hides_others(made.proc)
    (made.proc / "self").symlink_to("10")
    assert hides_others(made.proc)
    attributor = made.attributor()
    holders = attributor.refresh({"GPU-0": [GpuProcess(10), GpuProcess(99)]})["GPU-0"]
    assert [(holder.user, holder.share_micro) for holder in holders] == [(None, 500_000), ("ana", 500_000)]
    assert attributor.counts["proc", "unseen"] == 1


def test_a_look_at_a_full_node_is_cheap(tmp_path: Path) -> None:
    """8 GPUs, 8 runs of 8 workers that all hold memory, 100 places: the usual look, when all was read once."""
    made = Made(tmp_path)
    gpus, known = {}, []
    for run in range(8):
        first = 100 + run * 10
        made.process(first - 1, {"name": "bash"})
        for worker in range(8):
            made.process(first + worker, {"parent": first if worker else first - 1, "env": {"SLURM_JOB_ID": str(run)}})
        made.file(f"gpustat/GPU-{run}", f"{run + 1} {ANA}\n")
        gpus[f"GPU-{run}"] = [GpuProcess(first + worker, 1 << 30, 0.1) for worker in range(8)]
        known.append(made.place(f"node1:/{run}", {"folder": f"runs/{run}", "writers": [first]}))
    known += [made.place(f"node1:/old{at}", {"folder": f"runs/old{at}", "age_s": 9000}) for at in range(92)]
    attributor = made.attributor()
    attributor.refresh(gpus, known)
    costs = []
    for _ in range(7):
        begin = resource.getrusage(resource.RUSAGE_SELF)
        found = attributor.refresh(gpus, known)
        end = resource.getrusage(resource.RUSAGE_SELF)
        costs.append(end.ru_utime + end.ru_stime - begin.ru_utime - begin.ru_stime)
    assert all(len(holders) == 1 for holders in found.values())
    print(f"{min(costs) * 1000:.2f} ms")
    assert min(costs) < 0.02  # about 3 ms here; the bound leaves room for slow machines
