"""Checkpoint: whatever happens to the file, the newest whole dict comes back."""

from __future__ import annotations

import json
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from yolometer_agent.tail.checkpoint import Checkpoint
from yolometer_core.errors import Unavailable


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "checkpoint.json"


def names(path: Path) -> set[str]:
    return {file.name for file in path.parent.iterdir()}


def test_nothing_there(path: Path) -> None:
    checkpoint = Checkpoint(path)
    assert checkpoint.load() is None
    assert checkpoint.problem is None


def test_comes_back_in_another_process_as_json_and_private(path: Path) -> None:
    state = {"é": [1, 2.5, None, True], "nested": {"offset": 2**60}}
    Checkpoint(path).save(state)
    again = Checkpoint(path)
    assert again.load() == state
    assert again.problem is None
    assert json.loads(path.read_bytes())["state"] == state
    assert path.stat().st_mode & 0o777 == 0o600
    assert names(path) == {"checkpoint.json"}


def test_the_one_before_is_kept(path: Path) -> None:
    checkpoint = Checkpoint(path)
    for number in range(3):
        checkpoint.save({"n": number})
    assert Checkpoint(path.with_name("checkpoint.json.bak")).load() == {"n": 1}
    assert names(path) == {"checkpoint.json", "checkpoint.json.bak"}


GOOD = b'{"version":1,"checksum":"'


@pytest.mark.parametrize(
    ("damage", "why"),
    [
        (lambda raw: b"", "it is empty"),
        (lambda raw: raw[:-1], "its checksum is wrong"),
        (lambda raw: raw[: len(raw) // 2], "not a checkpoint"),
        (lambda raw: raw[:-8], "its checksum is wrong"),
        (lambda raw: raw + raw, "its checksum is wrong"),
        (lambda raw: raw.replace(b'"n":1', b'"n":7'), "its checksum is wrong"),
        (lambda raw: bytes(len(raw)), "not a checkpoint"),
        (lambda raw: b'{"n": 1}', "not a checkpoint"),
        (lambda raw: b"\xff\xfe\x00", "not a checkpoint"),
        (lambda raw: raw.replace(b'"version":1', b'"version":2'), "it has version 2"),
    ],
)
def test_damage_is_reported_set_aside_and_the_backup_used(path: Path, damage: object, why: str) -> None:
    assert callable(damage)
    checkpoint = Checkpoint(path)
    checkpoint.save({"n": 0})
    checkpoint.save({"n": 1})
    damaged = damage(path.read_bytes())
    path.write_bytes(damaged)
    again = Checkpoint(path)
    assert again.load() == {"n": 0}
    assert why in str(again.problem)
    assert "the backup from before is used" in str(again.problem)
    assert path.with_name("checkpoint.json.damaged").read_bytes() == damaged
    again.save({"n": 2})
    assert Checkpoint(path).load() == {"n": 2}
    assert Checkpoint(path.with_name("checkpoint.json.bak")).load() == {"n": 0}


def test_a_damaged_one_never_becomes_the_backup_even_if_nobody_loaded(path: Path) -> None:
    Checkpoint(path).save({"n": 0})
    Checkpoint(path).save({"n": 1})
    path.write_bytes(b"junk")
    Checkpoint(path).save({"n": 2})
    assert Checkpoint(path.with_name("checkpoint.json.bak")).load() == {"n": 0}


def test_both_damaged(path: Path) -> None:
    checkpoint = Checkpoint(path)
    checkpoint.save({"n": 0})
    checkpoint.save({"n": 1})
    for file in list(path.parent.iterdir()):
        file.write_bytes(b"junk")
    assert checkpoint.load() is None
    assert "no whole backup" in str(checkpoint.problem)
    assert names(path) == {"checkpoint.json.damaged", "checkpoint.json.bak.damaged"}


def test_only_the_backup_is_left(path: Path) -> None:
    checkpoint = Checkpoint(path)
    checkpoint.save({"n": 0})
    checkpoint.save({"n": 1})
    path.unlink()
    assert checkpoint.load() == {"n": 0}
    assert "is gone" in str(checkpoint.problem)


def test_a_list_is_no_state(path: Path) -> None:
    Checkpoint(path).save([1])
    assert Checkpoint(path).load() is None


def test_a_full_disk_leaves_the_old_one_whole(path: Path) -> None:
    checkpoint = Checkpoint(path)
    checkpoint.save({"n": 0})
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    try:
        with pytest.raises(Unavailable, match=r"cannot be written \(.*\); make room"):
            checkpoint.save({"n": "x" * 5000})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert names(path) == {"checkpoint.json"}
    assert Checkpoint(path).load() == {"n": 0}
    checkpoint.save({"n": 1})
    assert checkpoint.load() == {"n": 1}


def test_no_folder_can_be_made_and_no_file_be_read(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(Unavailable, match="cannot be written"):
        Checkpoint(tmp_path / "file" / "checkpoint").save({})
    with pytest.raises(Unavailable, match="cannot be read"):
        Checkpoint(tmp_path).load()


SAVER = """
import sys
from yolometer_agent.tail.checkpoint import Checkpoint
checkpoint = Checkpoint(sys.argv[1])
n = (checkpoint.load() or {"n": 0})["n"]
while True:
    n += 1
    checkpoint.save({"n": n, "fill": "x" * 20000})
    print(n, flush=True)
"""


def test_killed_at_any_time(path: Path) -> None:
    for life in range(6):
        with subprocess.Popen([sys.executable, "-c", SAVER, str(path)], stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            process.stdout.readline()
            time.sleep(0.011 * life)
            process.send_signal(signal.SIGKILL)
            said = process.stdout.read().split()
        checkpoint = Checkpoint(path)
        state = checkpoint.load()
        assert checkpoint.problem is None
        assert state is not None
        assert not said or state["n"] >= int(said[-1])
