"""Follow: real files, real processes: nothing is lost, nothing comes twice."""

from __future__ import annotations

import os
import socket
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from _following import Reader, append, lines, records

from yolometer_agent.tail.follow import Follow
from yolometer_core.errors import BadInput


@pytest.fixture
def anyones() -> Iterator[Path]:
    """A folder that other users reach too, which pytest's own is not."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


def test_waits_for_the_file_then_reads_it_as_it_grows(log: Path, reader: Reader) -> None:
    assert reader.poll() is None
    assert reader.follow.problem is None
    log.write_bytes(b"")
    assert reader.poll() is None
    append(log, b"one\ntw")
    batch = reader.poll()
    assert batch is not None
    assert batch[1:] == (0, True, 6, True)
    assert batch.chunk.remainder == b"tw"
    assert reader.poll() is None
    append(log, b"o\n")
    assert reader.read() == [(0, b"two")]
    assert reader.fresh == [0]
    assert reader.ends == [4, 8]


def test_a_poll_reads_at_most_max_bytes_and_says_when_it_is_at_the_end(log: Path, reader: Reader) -> None:
    log.write_bytes(b"x" * 9 + b"\n" + b"y" * 9 + b"\n")
    first, second, third = reader.poll(8), reader.poll(8), reader.poll(8)
    assert first is not None
    assert second is not None
    assert third is not None
    assert [batch.at_end for batch in (first, second, third)] == [False, False, True]
    assert first.size_bytes == 20
    assert reader.poll(8) is None
    assert len(reader.got) == 2


def test_a_file_of_120_bytes_is_read_at_once(log: Path, reader: Reader) -> None:
    log.write_bytes(b"z" * 119 + b"\n")
    assert reader.read() == [(0, b"z" * 119)]


def test_two_files_with_the_same_first_2_kib_are_two_files(tmp_path: Path) -> None:
    same = b"banner " * 300 + b"\n"
    for name in ("a", "b"):
        (tmp_path / name).write_bytes(same + name.encode() + b"\n")
    for name in ("a", "b"):
        with Follow(tmp_path / name) as follow:
            batch = follow.poll()
            assert batch is not None
            assert batch.chunk.records == [same[:-1], name.encode()]


@pytest.mark.parametrize("restart", [False, True])
def test_rename_rotation_with_unread_data(log: Path, reader: Reader, restart: bool) -> None:
    log.write_bytes(lines(0, 100))
    reader.poll(50)
    append(log, lines(100, 200) + b"no end")
    log.rename(log.with_name("train.log.1"))
    if restart:
        reader.restart()
    else:
        reader.poll(50)
    log.write_bytes(lines(0, 5))
    if restart:
        reader.restart()
    reader.read(64)
    assert reader.got == [*records(0, 0, 200), (0, b"no end"), *records(1, 0, 5)]
    assert reader.fresh == [0, 1]
    assert reader.follow.base == 200 * 7 + 10 * 0 + sum(len(b"line %d\n" % n) - 7 for n in range(200)) + 1


def test_the_old_file_is_read_until_the_new_one_has_bytes(log: Path, reader: Reader) -> None:
    log.write_bytes(lines(0, 3))
    reader.read()
    old = log.with_name("train.log.1")
    log.rename(old)
    log.touch()
    assert reader.read() == []
    append(old, lines(3, 5))
    assert reader.read() == records(0, 3, 5)
    append(old, lines(5, 6))
    append(log, lines(0, 1))
    assert reader.read() == [*records(0, 5, 6), *records(1, 0, 1)]
    append(log, lines(1, 2))
    assert reader.read() == records(1, 1, 2)


@pytest.mark.parametrize("restart", [False, True])
def test_copytruncate(log: Path, reader: Reader, restart: bool) -> None:
    log.write_bytes(lines(0, 100) + b"tail")
    reader.read()
    os.truncate(log, 0)
    if restart:
        reader.restart()
    assert reader.read() == ([] if restart else [(0, b"tail")])
    append(log, lines(0, 3))
    assert reader.read() == records(1, 0, 3)
    assert reader.fresh == [0, 1]
    assert reader.ends[-3:] == [sum(len(b"line %d\n" % n) for n in range(100)) + 1 + 7 * n for n in (1, 2, 3)]


def test_a_writer_without_append_leaves_a_hole_after_truncation(log: Path, reader: Reader) -> None:
    with log.open("wb", buffering=0) as file:
        file.write(lines(0, 100))
        reader.read()
        os.truncate(log, 0)
        file.write(lines(100, 103))
        assert reader.read() == records(1, 100, 103)


@pytest.mark.parametrize("restart", [False, True])
def test_rewritten_in_place_with_the_same_length_or_longer(log: Path, reader: Reader, restart: bool) -> None:
    log.write_bytes(lines(0, 10))
    for incarnation, content in enumerate([lines(10, 17), lines(20, 60)], start=1):
        reader.read()
        if restart:
            reader.restart()
        with log.open("r+b") as file:
            file.truncate(0)
            file.write(content)
        assert [number for number, _ in reader.read()] == [incarnation] * content.count(b"\n")


def test_same_length_rewrite_while_at_the_end(log: Path, reader: Reader) -> None:
    log.write_bytes(b"aaaa\n")
    reader.read()
    time.sleep(0.01)
    with log.open("r+b") as file:
        file.write(b"bbbb\n")
    assert reader.read() == [(1, b"bbbb")]


def test_the_same_first_kib_but_another_middle_is_seen_when_opened_again(log: Path, reader: Reader) -> None:
    log.write_bytes(b"b" * 1500 + b"\n" + lines(0, 50))
    reader.read()
    reader.restart()
    log.write_bytes(b"b" * 1500 + b"\n" + lines(100, 200))
    assert len(reader.read()) == 101


def reborn_with_the_same_inode(path: Path, content: bytes) -> bool:
    inode = path.stat().st_ino
    path.unlink()
    for number in range(200):
        path.write_bytes(content)
        if path.stat().st_ino == inode:
            return True
        path.rename(path.with_name(f"spare{number}"))
    path.write_bytes(content)
    return False


@pytest.mark.parametrize("how", ["restart", "idle"])
def test_reborn_with_the_same_inode(log: Path, how: str) -> None:
    now = [0.0]
    reader = Reader(log, idle_close_s=1.0, clock=lambda: now[0])
    log.write_bytes(b"epoch,time\n" + lines(0, 40))
    reader.read()
    if how == "restart":
        reader.restart()
    else:
        now[0] = 2.0
        assert reader.poll() is None
    assert not reader.follow.is_open
    same_inode = reborn_with_the_same_inode(log, b"epoch,time\n" + lines(50, 200))
    new = reader.read()
    reader.follow.close()
    assert new == [(1, b"epoch,time"), *records(1, 50, 200)], same_inode


def test_known_inode_with_other_content_is_read_from_its_start(log: Path, reader: Reader) -> None:
    log.write_bytes(b"a" * 399 + b"\n")
    reader.read()
    reader.restart()
    log.write_bytes(b"b" * 499 + b"\n")
    assert reader.read() == [(1, b"b" * 499)]


def test_deleted_drained_waited_for_and_found_again(log: Path, reader: Reader) -> None:
    with log.open("wb", buffering=0) as file:
        file.write(lines(0, 10))
        reader.poll(20)
        log.unlink()
        file.write(lines(10, 12))
        reader.read(20)
        assert reader.got == records(0, 0, 12)
        assert reader.poll() is None
        file.write(b"last words")
        log.write_bytes(lines(0, 2))
        assert reader.read() == [(0, b"last words"), *records(1, 0, 2)]


def test_moved_away_and_back_is_the_same_file(log: Path, reader: Reader) -> None:
    log.write_bytes(lines(0, 3))
    reader.read()
    log.rename(log.with_name("away"))
    assert reader.read() == []
    reader.restart()
    assert reader.read() == []
    log.with_name("away").rename(log)
    append(log, lines(3, 4))
    assert reader.read() == records(0, 3, 4)


def test_device_numbers_dealt_anew_are_the_same_file(log: Path, reader: Reader) -> None:
    log.write_bytes(lines(0, 3))
    reader.read()
    state = reader.follow.state()
    reader.follow.close()
    reader.follow = Follow(log, {**state, "device": state["device"] + 1})
    append(log, lines(3, 4))
    assert reader.read() == records(0, 3, 4)
    assert reader.follow.state()["device"] == state["device"]


@pytest.mark.skipif(not hasattr(os, "seteuid") or os.geteuid() != 0, reason="only root can drop and regain a permission")
def test_permission_lost_and_regained(anyones: Path) -> None:
    folder = anyones / "run"
    folder.mkdir()
    log = folder / "train.log"
    log.write_bytes(lines(0, 3))
    reader = Reader(log)
    try:
        os.seteuid(65534)
        assert len(reader.read()) == 3
        for target in (log, folder):
            for closed in (False, True):
                if closed:
                    reader.restart()
                os.seteuid(0)
                append(log, lines(3, 4))
                target.chmod(0)
                os.seteuid(65534)
                before = len(reader.got)
                if closed or target is folder:
                    assert reader.poll() is None
                    assert reader.follow.problem is not None
                    assert "Permission denied" in reader.follow.problem
                os.seteuid(0)
                target.chmod(0o755)
                os.seteuid(65534)
                reader.read()
                assert len(reader.got) == before + 1
                assert reader.follow.problem is None
    finally:
        os.seteuid(0)
        reader.follow.close()


def test_a_folder_a_pipe_a_socket_or_a_device_is_refused_without_blocking(log: Path, reader: Reader) -> None:
    log.mkdir()
    assert reader.poll() is None
    assert "is a folder, not a regular file" in str(reader.follow.problem)
    log.rmdir()
    os.mkfifo(log)
    assert reader.poll() is None
    assert "is a pipe" in str(reader.follow.problem)
    log.unlink()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(os.path.relpath(log))
        assert reader.poll() is None
        assert "is a socket" in str(reader.follow.problem)
    log.unlink()
    log.symlink_to("/dev/zero")
    assert reader.poll() is None
    assert "is a device" in str(reader.follow.problem)
    log.unlink()
    log.symlink_to(log)
    assert reader.poll() is None
    assert "cannot be read (Too many levels of symbolic links)" in str(reader.follow.problem)
    log.unlink()
    log.symlink_to(log.with_name("nothing"))
    assert reader.poll() is None
    assert reader.follow.problem is None
    log.with_name("nothing").write_bytes(b"there\n")
    assert reader.read() == [(0, b"there")]


def test_a_link_set_to_another_file_is_a_rotation(log: Path, reader: Reader) -> None:
    for name in ("one", "two"):
        log.with_name(name).write_bytes(name.encode() + b"\n")
    log.symlink_to("one")
    reader.read()
    append(log, b"more\n")
    log.unlink()
    log.symlink_to("two")
    assert reader.read() == [(0, b"more"), (1, b"two")]


def test_idle_files_hold_no_descriptor_and_clock_steps_do_no_harm(log: Path) -> None:
    now = [1000.0]
    reader = Reader(log, idle_close_s=60.0, clock=lambda: now[0])
    log.write_bytes(b"a\nhalf")
    reader.read()
    now[0] = 1059.0
    reader.poll()
    assert reader.follow.is_open
    now[0] = 10.0
    reader.poll()
    assert reader.follow.is_open
    now[0] = 71.0
    reader.poll()
    assert not reader.follow.is_open
    append(log, b" a line\n")
    assert reader.read() == [(0, b"half a line")]
    now[0] = 1e9
    reader.poll()
    assert not reader.follow.is_open
    assert reader.fresh == [0]


def test_a_long_line_is_counted_and_the_next_one_arrives_over_a_restart(log: Path, reader: Reader) -> None:
    log.write_bytes(b"x" * (5 * 2**20))
    for _ in range(4):
        reader.poll()
    reader.restart()
    append(log, b"\nnormal\n")
    assert reader.read() == [(0, b"normal")]
    assert reader.ends == [5 * 2**20 + 8]
    assert reader.follow.long_records == 1


def test_a_state_of_something_else_is_refused(log: Path) -> None:
    with pytest.raises(BadInput, match="remove it to read the file from its start"):
        Follow(log, {"path": str(log)})
