"""Writers: real processes in the real /proc, and a folder of files in its place."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from yolometer_agent.tail.writers import writers

CHILD = """
import os, sys
kept = [open(sys.argv[1], "ab"), open(sys.argv[2], "rb"), open(sys.argv[3], "r+b"), open("/dev/null", "wb")]
os.unlink(sys.argv[3])
print("ready", flush=True)
sys.stdin.read()
"""


def test_a_child_that_writes(tmp_path: Path) -> None:
    paths = [tmp_path / name for name in ("written.log", "read.log", "deleted.log")]
    for path in paths:
        path.touch()
    ids = [(path.stat().st_dev, path.stat().st_ino) for path in paths]
    with subprocess.Popen(
        [sys.executable, "-c", CHILD, *map(str, paths)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        child.stdout.readline()
        found = writers()
        assert found.pids[ids[0]] == {child.pid}
        assert ids[1] not in found.pids
        assert found.pids[ids[2]] == {child.pid}
        files = [file for file in found.open_files() if file.pid == child.pid]
        assert [(file.path, file.identity) for file in files] == [(paths[0], ids[0])]
        child.kill()
    assert ids[0] not in writers().pids


def fake(proc: Path, pid: int, target: Path, flags: str, descriptor: int = 3) -> None:
    (proc / str(pid) / "fd").mkdir(parents=True, exist_ok=True)
    (proc / str(pid) / "fdinfo").mkdir(exist_ok=True)
    (proc / str(pid) / "fd" / str(descriptor)).symlink_to(target)
    (proc / str(pid) / "fdinfo" / str(descriptor)).write_text(f"pos:\t0\nflags:\t{flags}\nmnt_id:\t1\n")


def test_a_folder_of_files_as_proc(tmp_path: Path) -> None:
    proc, log, table = tmp_path / "proc", tmp_path / "train10.log", tmp_path / "train2.log"
    log.touch()
    table.touch()
    fake(proc, 10, log, "0102001")
    fake(proc, 10, log, "0102001", 4)
    fake(proc, 11, log, "0100000")
    fake(proc, 12, table, "0100002")
    fake(proc, 13, tmp_path / "gone", "0100001")
    (proc / "14").mkdir()
    (proc / "uptime").touch()
    found = writers(proc)
    assert found.complete
    assert found.pids == {
        (log.stat().st_dev, log.stat().st_ino): {10},
        (table.stat().st_dev, table.stat().st_ino): {12},
    }
    assert [(file.path, file.pid) for file in found.open_files()] == [(table, 12), (log, 10)]


def test_a_file_of_a_container_is_named_through_its_root(tmp_path: Path) -> None:
    proc, log = tmp_path / "proc", tmp_path / "rootfs" / "data" / "train.log"
    log.parent.mkdir(parents=True)
    log.touch()
    fake(proc, 10, log, "0100001")
    found = writers(proc)
    (proc / "10" / "root").symlink_to(tmp_path / "rootfs")
    inside = found._replace(opened=tuple((pid, identity, "/data/train.log") for pid, identity, _ in found.opened))
    assert [file.path for file in inside.open_files()] == [proc / "10" / "root" / "data" / "train.log"]


def test_no_proc_or_a_closed_one_is_not_complete(tmp_path: Path) -> None:
    assert not writers(tmp_path / "none").complete
    proc = tmp_path / "proc"
    (proc / "10").mkdir(parents=True)
    (proc / "10" / "fd").touch()
    assert not writers(proc).complete
    (proc / "10" / "fd").unlink()
    (proc / "self").symlink_to("10")
    assert not writers(proc).complete
