"""Discovery: files, folders, globs, links and loops."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from yolometer_agent.tail.discover import find


def make(root: Path, *names: str) -> None:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(b"x\n")


def names(root: Path, *patterns: str | Path, **options: object) -> list[str]:
    found = find([root / pattern for pattern in patterns], **options)
    return [str(path.relative_to(root)) for path in found.files]


def test_natural_order(tmp_path: Path) -> None:
    make(tmp_path, "train10/a.log", "train2/a.log", "train/a.log", "train2/a10.log", "train2/a2.log", "train02/a.log", "b.log")
    assert names(tmp_path, ".") == [
        "b.log",
        "train/a.log",
        "train02/a.log",
        "train2/a.log",
        "train2/a2.log",
        "train2/a10.log",
        "train10/a.log",
    ]
    make(tmp_path, "t/train2.log", "t/train.log", "t/train10.log")
    assert names(tmp_path, "t") == ["t/train.log", "t/train2.log", "t/train10.log"]


def test_file_folder_and_glob_list_a_file_once(tmp_path: Path) -> None:
    make(tmp_path, "runs/a/train.log", "runs/b/results.csv", "runs/b/deep/er/args.yaml", "other.log")
    runs = ["runs/a/train.log", "runs/b/deep/er/args.yaml", "runs/b/results.csv"]
    assert names(tmp_path, "runs") == runs
    assert names(tmp_path, "runs/*", "runs", "runs/a/train.log", "runs/**", "runs/../runs/a") == runs
    assert names(tmp_path, "runs/*/*.csv") == ["runs/b/results.csv"]
    assert names(tmp_path, "**/args.yaml") == ["runs/b/deep/er/args.yaml"]
    assert names(tmp_path, "**/*.log") == ["other.log", "runs/a/train.log"]
    assert names(tmp_path, "runs/[ab]/d?ep") == ["runs/b/deep/er/args.yaml"]
    assert find([str(tmp_path / "runs"), str(tmp_path / "runs/**/*")]).skipped == []


def test_home_and_relative_patterns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(tmp_path, "runs/a.log")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert find(["~/runs/*.log"]).files == [tmp_path / "runs/a.log"]
    assert find(["runs/*.log"]).files == [Path("runs/a.log")]
    assert find(["r*"]).files == [Path("runs/a.log")]
    assert find(["runs/a.log", tmp_path / "runs"]).files == [tmp_path / "runs/a.log"]


def test_names_with_glob_letters_and_strange_bytes(tmp_path: Path) -> None:
    make(tmp_path, "run [1]/a.log", os.fsdecode(b"bad\xff.log"))
    assert names(tmp_path, "run [1]") == ["run [1]/a.log"]
    assert len(names(tmp_path, ".")) == 2


def test_what_cannot_be_a_log_is_passed_over_unless_named(tmp_path: Path) -> None:
    make(tmp_path, "a/best.pt", "a/x.JPG", "a/events.out.tfevents.17.host", "a/labels.cache", "a/log", "a/.hidden.log")
    make(tmp_path, "a/__pycache__/x.log", "a/.git/x.log", "set/images/1.jpg", "set/labels/1.txt", "run/labels/1.txt")
    assert names(tmp_path, "a", "set", "run") == ["a/.hidden.log", "a/log", "run/labels/1.txt"]
    assert names(tmp_path, "a/*.pt") == []
    assert names(tmp_path, "a/best.pt", "a/x.JPG") == ["a/best.pt", "a/x.JPG"]
    assert names(tmp_path, "set/labels") == ["set/labels/1.txt"]
    assert names(tmp_path, "a", exclude=["*hidden*"]) == ["a/log"]
    assert names(tmp_path, ".", exclude=["*/a", "set"]) == ["run/labels/1.txt"]
    assert find([tmp_path / "a"]).skipped == []


def test_what_matches_nothing_is_said(tmp_path: Path) -> None:
    make(tmp_path, "a/best.pt")
    found = find([tmp_path / "no", tmp_path / "*.csv", tmp_path / "a"])
    assert found.files == []
    assert found.skipped == [
        (f"{tmp_path}/no", f"nothing matches {tmp_path}/no"),
        (f"{tmp_path}/*.csv", f"nothing matches {tmp_path}/*.csv"),
        (f"{tmp_path}/a", "holds no file that could be a log"),
    ]


def test_loops_of_links_end_and_real_names_win(tmp_path: Path) -> None:
    make(tmp_path, "runs/train/a.log", "far/b.log")
    (tmp_path / "runs/again").symlink_to("..")
    (tmp_path / "runs/latest").symlink_to("train")
    (tmp_path / "runs/train/up").symlink_to(tmp_path / "runs")
    (tmp_path / "runs/train/self").symlink_to("self")
    (tmp_path / "runs/0.log").symlink_to("train/a.log")
    (tmp_path / "runs/gone").symlink_to("nothing")
    found = find([tmp_path / "runs"])
    assert found.files == [tmp_path / "runs/again/far/b.log", tmp_path / "runs/train/a.log"]
    assert dict(found.skipped) == {
        f"{tmp_path}/runs/gone": "it is a link that leads nowhere",
        f"{tmp_path}/runs/train/self": "it is a link that leads to itself",
    }
    assert find([tmp_path / "runs/latest"]).files[0] == tmp_path / "runs/latest/a.log"
    assert find([tmp_path / "runs/*/a.log", tmp_path / "runs/0.log"]).files == [tmp_path / "runs/train/a.log"]
    assert tmp_path / "runs/train/a.log" in find([tmp_path / "**/*.log"]).files


def test_two_to_the_fortieth_ways_are_walked_once(tmp_path: Path) -> None:
    for level in range(40):
        folder = tmp_path / f"level{level}"
        folder.mkdir()
        for link in "ab":
            (folder / link).symlink_to(tmp_path / f"level{level + 1}")
    make(tmp_path, "level40/a.log")
    assert len(find([tmp_path / "level0"]).files) == 1
    assert len(find([tmp_path / "level0" / "**" / "*.log"]).files) == 1


def test_only_regular_files(tmp_path: Path) -> None:
    make(tmp_path, "a.log")
    os.mkfifo(tmp_path / "pipe")
    found = find([tmp_path, tmp_path / "pipe"])
    assert found.files == [tmp_path / "a.log"]
    assert found.skipped == [(f"{tmp_path}/pipe", "it is a pipe, a socket or a device, not a regular file")]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can drop its rights and take them back")
def test_unreadable_files_and_folders_are_said() -> None:
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        root.chmod(0o755)
        make(root, "a.log", "secret.log", "closed/b.log")
        (root / "secret.log").chmod(0)
        (root / "closed").chmod(0)
        # access(2) asks for the real user: both are dropped.
        os.setresuid(65534, 65534, 0)
        try:
            found = find([root])
        finally:
            os.setresuid(0, 0, 0)
    assert found.files == [root / "a.log"]
    assert sorted(found.skipped) == [
        (f"{root}/closed", "it cannot be read: permission denied"),
        (f"{root}/secret.log", "it cannot be read: permission denied"),
    ]


def test_too_many_files_are_cut_and_said(tmp_path: Path) -> None:
    make(tmp_path, *(f"{number}.log" for number in range(9)))
    found = find([tmp_path], max_files=4)
    assert len(found.files) == 4
    assert len(found.skipped) == 1
    assert "more than 4 files" in found.skipped[0][1]
