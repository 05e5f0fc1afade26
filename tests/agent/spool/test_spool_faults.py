"""The spool in trouble: kills, full and read-only disks, damage, two threads, much data."""

from __future__ import annotations

import errno
import os
import random
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from _spooling import Place, lost_seqs, numbers, put, read_all

from yolometer_agent.spool.spool import Spool
from yolometer_core.errors import Unavailable

WRITER = Path(__file__).with_name("_writer.py")


def _start(what: str, folder: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, str(WRITER), what, str(folder)], stdout=subprocess.PIPE)


def test_kill_9_loses_nothing_that_was_confirmed(tmp_path: Path) -> None:
    chance, folder, wanted, before = random.Random(4), tmp_path / "lane", 0, 0
    for _ in range(20):
        with _start("kill", folder) as process:
            assert process.stdout is not None
            first = process.stdout.readline()
            time.sleep(chance.uniform(0, 0.03))
            process.kill()
            lines = (first + process.stdout.read()).splitlines(keepends=True)
        confirmed = [int(word) for word in [line for line in lines if line.endswith(b"\n")][-1].split()]
        assert before < confirmed[0]
        spool = Spool(folder, max_bytes=10**8, max_age_s=1e9, segment_bytes=20_000)
        found = read_all(spool, 100)
        seqs = [message.seq for message in found]
        assert seqs == list(range(seqs[0], seqs[-1] + 1))
        assert seqs[0] <= confirmed[1] + 1 and seqs[-1] - confirmed[0] in (0, 1)
        assert all(m.value == b"%d:%d " % (m.epoch, m.number) * (m.number % 40 + 1) for m in found)
        assert spool.last_state() is not None and spool.losses() == [] and spool.torn_bytes == 0
        wanted += len(lines)
        before = seqs[-1]
        if chance.random() < 0.5:
            spool.ack(seqs[-1])
        spool.close()
    assert wanted > 200


def test_200_mb_on_disk_take_less_than_8_mib_of_memory(tmp_path: Path) -> None:
    with _start("memory", tmp_path / "lane") as process:
        grown = int(process.communicate()[0])
    assert process.returncode == 0
    assert grown < 8 * 1024 * 1024


def test_a_disk_that_takes_no_more_refuses_with_one_sentence_and_recovers(tmp_path: Path) -> None:
    with _start("limit", tmp_path / "lane") as process:
        said = process.communicate()[0].decode().splitlines()
    assert process.returncode == 0
    assert len(said) == 5
    assert all("cannot be written (File too large)" in line for line in said)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.EACCES])
def test_a_partial_write_leaves_the_file_whole(place: Place, number: int) -> None:
    left = [10**9]

    def write(fd: int, data: bytes | memoryview, at: int) -> int:
        if left[0] <= 0:
            raise OSError(number, os.strerror(number))
        took = os.pwrite(fd, data[: left[0]], at)
        left[0] -= took
        return took

    spool = place.open(write=write)
    seqs = [put(spool) for _ in range(3)]
    left[0] = 30
    for _ in range(20):
        with pytest.raises(Unavailable, match=os.strerror(number)):
            put(spool)
        with pytest.raises(Unavailable):
            spool.append_state(b"s" * 300)
    assert spool.last_state() is None
    assert spool.size_bytes == sum(path.stat().st_size for path in place.folder.glob("*.seg*"))
    left[0] = 10**9
    seqs += [put(spool) for _ in range(10)]
    assert [message.seq for message in read_all(spool)] == seqs == list(range(seqs[0], seqs[0] + 13))
    place.kill(spool)
    again = place.open()
    assert [message.seq for message in read_all(again)] == seqs
    again.close()


def test_another_error_of_the_system_is_no_matter_of_the_disk(place: Place) -> None:
    def write(_fd: int, _data: bytes | memoryview, _at: int) -> int:
        raise OSError(errno.EBADF, os.strerror(errno.EBADF))

    spool = place.open(write=write)
    with pytest.raises(OSError, match="Bad file"):
        put(spool)
    spool.close()


def test_a_folder_that_cannot_be_made_refuses_and_then_works(place: Place) -> None:
    place.folder.write_text("a file is in the way")
    with pytest.raises(Unavailable, match=r"cannot be (read|written)"):
        put(place.open())
    place.folder.unlink()
    spool = place.open()
    put(spool)
    assert len(read_all(spool)) == 1
    spool.close()


def _fill(place: Place, count: int = 60, **options: int) -> list[int]:
    spool = place.open(**options)
    spool.append_state(b"start")
    seqs = [put(spool) for _ in range(count)]
    spool.append_state(b"end")
    spool.close()
    return seqs


def test_a_flipped_bit_in_an_older_segment_loses_the_rest_of_it_only(place: Place) -> None:
    seqs = _fill(place)
    path = place.segments()[3]
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 2] ^= 4
    path.write_bytes(raw)
    spool = place.open()
    found = [message.seq for message in read_all(spool)]
    (loss,) = spool.losses()
    assert loss.reason == "damaged" and 1 < loss.messages < 7
    assert sorted(found + lost_seqs([loss])) == seqs
    spool.rewind()
    assert [message.seq for message in read_all(spool)] == found
    assert spool.losses() == []
    assert spool.messages_waiting == len(found)
    assert spool.epoch == seqs[0] >> 32
    spool.ack(seqs[-1])
    assert len(place.segments()) == 1
    spool.close()


@pytest.mark.parametrize("harm", ["header", "gone", "empty"])
def test_a_segment_that_is_gone_or_has_no_header_is_one_loss(place: Place, harm: str) -> None:
    seqs = _fill(place)
    spool = place.open()
    path = place.segments()[3]
    if harm == "header":
        spool.close()
        raw = path.read_bytes()
        path.write_bytes(b"?" + raw[1:])
        spool = place.open()
    elif harm == "gone":
        path.unlink()
    else:
        path.write_bytes(b"")
    found = [message.seq for message in read_all(spool)]
    (loss,) = spool.losses()
    assert sorted(found + lost_seqs([loss])) == seqs
    assert loss.messages == 6
    spool.close()


def test_a_torn_end_is_cut_off_and_its_numbers_are_never_used_again(place: Place) -> None:
    seqs = _fill(place, 20)
    path = place.segments()[-1]
    size = path.stat().st_size
    os.truncate(path, size - 100)
    spool = place.open()
    assert spool.torn_bytes > 0
    assert spool.last_state() == ((seqs[0] >> 32) << 32, b"start")
    spool.close()  # nothing was appended: the next start knows it still
    again = place.open()
    assert again.torn_bytes == 0
    new = put(again)
    assert new >> 32 > seqs[0] >> 32
    found = [message.seq for message in read_all(again)]
    assert found[-1] == new
    assert found[:-1] + lost_seqs(again.losses()) == seqs
    again.close()


def test_damage_where_it_is_written_right_now(place: Place) -> None:
    spool = place.open(segment_bytes=100_000)
    seqs = [put(spool) for _ in range(10)]
    (path,) = place.segments()
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 2] ^= 1
    path.write_bytes(raw)
    found = read_all(spool)
    seqs += [put(spool) for _ in range(10)]
    found += read_all(spool)
    assert sorted([message.seq for message in found] + lost_seqs(spool.losses())) == seqs
    assert numbers(found)[-10:] == list(range(11, 21))
    spool.close()


def test_a_damage_that_is_found_twice_is_one_loss(place: Place) -> None:
    seqs = _fill(place)
    path = place.segments()[2]
    os.truncate(path, path.stat().st_size - 1)
    spool = place.open()
    read_all(spool)
    place.pass_time(2)
    spool.tick()
    place.kill(spool)
    again = place.open()
    read_all(again)
    (loss,) = again.losses()
    assert loss.messages == 1 and loss.last_seq in seqs
    again.close()


def test_the_backup_of_a_damaged_cursor_does_not_bring_numbers_back(place: Place) -> None:
    seqs = _fill(place, 5)
    size = place.segments()[-1].stat().st_size
    place.reboot()
    spool = place.open()
    seqs.append(put(spool))
    place.kill(spool)
    # a power cut: the last message and the cursor are lost, and the backup says that all was well
    os.truncate(place.segments()[-1], size)
    (place.folder / "cursor").write_bytes(b"")
    place.reboot()
    again = place.open()
    assert put(again) > seqs[-1]
    again.close()


def test_a_damaged_cursor_sends_again_and_begins_an_epoch(place: Place) -> None:
    spool = place.open()
    seqs = [put(spool) for _ in range(5)]
    read_all(spool)
    spool.ack(seqs[3])
    spool.close()
    for path in place.folder.glob("cursor*"):
        path.write_bytes(b"damage")
    again = place.open()
    assert again.damage is not None and "is damaged" in again.damage
    assert [message.seq for message in read_all(again)] == seqs
    assert put(again) >> 32 > seqs[-1] >> 32
    again.close()


@pytest.mark.parametrize("max_bytes", [10**8, 20_000])
def test_a_writer_and_a_reader_at_the_same_time(tmp_path: Path, max_bytes: int) -> None:
    spool = Spool(tmp_path / "lane", max_bytes=max_bytes, max_age_s=1e9, segment_bytes=5000, fsync_s=0.01)
    seqs: list[int] = []
    got: list[int] = []
    total = 1000

    def write() -> None:
        seqs.extend(spool.append(b"t", b"k", lambda _epoch, number: b"%d" % number * 9) for _ in range(total))

    writer = threading.Thread(target=write)
    writer.start()
    end_s = time.monotonic() + 60
    lost: set[int] = set()
    while len(lost.union(got)) < total and time.monotonic() < end_s:
        some = spool.read(50, 10_000)
        assert all(message.value == b"%d" % message.number * 9 for message in some)
        got += [message.seq for message in some]
        assert spool.messages_waiting >= 0 and (spool.oldest_wall_ms or 1) > 0
        spool.tick()
        if some:
            spool.ack(some[-1].seq)
            time.sleep(0 if max_bytes > 10**6 else 0.01)
        lost.update(lost_seqs(spool.losses()))
    writer.join()
    assert got == sorted(set(got))
    assert sorted(lost.union(got)) == seqs
    assert bool(lost) == (max_bytes < 10**6)
    assert spool.messages_waiting == 0 and spool.problem is None
    spool.close()
