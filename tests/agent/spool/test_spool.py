"""The spool in peace: numbers, order, acknowledgement, states, bounds, clocks."""

from __future__ import annotations

import os
import shutil
from zlib import crc32

import pytest
from _spooling import WALL_S, Place, lost_seqs, numbers, put, read_all

from yolometer_agent.spool import frames
from yolometer_agent.spool.spool import SpoolFull
from yolometer_core.errors import BadConfig, BadInput, BadStore, BadUsage, Unavailable


def test_a_message_comes_back_as_it_was_and_knows_its_own_number(place: Place) -> None:
    spool = place.open()
    seq = spool.append(b"topic", b"", lambda epoch, number: f"{epoch}:{number}".encode())
    assert seq == (int(WALL_S) << 32) | 1
    (message,) = spool.read(10, 1000)
    assert (message.seq, message.epoch, message.number) == (seq, int(WALL_S), 1)
    assert (message.topic, message.key, message.value) == (b"topic", b"", f"{int(WALL_S)}:1".encode())
    assert message.wall_ms == int(WALL_S * 1000)
    assert spool.read(10, 1000) == []
    spool.close()


def test_what_was_acknowledged_is_not_read_again_and_its_files_are_gone(place: Place) -> None:
    spool = place.open()
    seqs = [put(spool) for _ in range(50)]
    assert len(place.segments()) > 5
    assert spool.messages_waiting == 50
    assert numbers(spool.read(30, 10**6)) == list(range(1, 31))
    spool.ack(seqs[29])
    spool.ack(seqs[3])  # late
    assert spool.messages_waiting == 20
    assert len(place.segments()) == 4
    assert spool.size_bytes == sum(path.stat().st_size for path in place.segments())
    spool.close()
    left = place.folder / f"{spool.epoch}-0000000001.seg"  # one that could not be deleted
    shutil.copy(place.segments()[0], left)
    again = place.open()
    assert not left.exists()
    assert numbers(read_all(again)) == list(range(31, 51))
    again.close()


def test_rewind_reads_again_what_was_not_acknowledged(place: Place) -> None:
    spool = place.open()
    seqs = [put(spool) for _ in range(30)]
    read_all(spool)
    spool.ack(seqs[11])
    spool.rewind()
    assert numbers(spool.read(3, 10_000)) == [13, 14, 15]
    spool.ack(seqs[19])  # the answer to what was sent before the rewind
    assert numbers(read_all(spool)) == list(range(21, 31))
    with pytest.raises(BadUsage, match="not read yet"):
        spool.ack(seqs[-1] + 1)
    spool.close()


def test_read_keeps_to_its_limits_but_gives_at_least_one(place: Place) -> None:
    spool = place.open()
    for _ in range(5):
        put(spool, b"x" * 400)
    assert len(spool.read(10, 1)) == 1
    assert len(spool.read(2, 10_000)) == 2
    assert len(spool.read(10, 1000)) == 2
    assert spool.read(0, 1000) == []
    spool.close()


@pytest.mark.parametrize("is_clean", [True, False])
def test_a_process_that_stops_or_is_killed_goes_on_with_the_next_number(place: Place, is_clean: bool) -> None:
    spool = place.open()
    for _ in range(20):
        put(spool)
    if is_clean:
        spool.close()
        place.reboot()
    else:
        place.kill(spool)
    place.pass_time(100)
    again = place.open()
    assert again.epoch == int(WALL_S)
    put(again)
    assert numbers(read_all(again)) == list(range(1, 22))
    again.close()


def test_after_a_crash_of_the_system_a_new_epoch_begins(place: Place) -> None:
    spool = place.open()
    last = [put(spool) for _ in range(9)][-1]
    place.kill(spool)
    place.reboot()
    place.wall_s -= 3600  # even when the clock was set back
    again = place.open()
    assert again.epoch == int(WALL_S) + 1
    assert put(again) == (again.epoch << 32) | 1 > last
    found = read_all(again)
    assert numbers(found) == [*range(1, 10), 1]
    again.ack(found[4].seq)
    assert again.messages_waiting == 5
    again.ack(found[9].seq)
    assert again.messages_waiting == 0
    again.close()


def test_a_wiped_folder_begins_a_new_epoch(place: Place) -> None:
    spool = place.open()
    put(spool)
    spool.close()
    for path in place.segments():
        path.unlink()
    again = place.open()
    assert put(again) >> 32 == int(WALL_S) + 1
    again.close()


def test_when_the_numbers_of_an_epoch_are_used_up_the_next_begins(place: Place) -> None:
    spool = place.open()
    put(spool)
    spool._writer.last += frames.LAST_NUMBER - 1
    assert put(spool) == (int(WALL_S) + 1) << 32 | 1
    spool.close()


def test_the_newest_state_is_found_however_many_segments_came_and_went(place: Place) -> None:
    spool = place.open()
    assert spool.last_state() is None
    spool.append_state(b"start")
    seqs = [put(spool) for _ in range(10)]
    spool.append_state(b"ten")
    seqs += [put(spool) for _ in range(40)]
    read_all(spool)
    spool.ack(seqs[-1])
    assert len(place.segments()) == 1
    place.kill(spool)
    again = place.open()
    assert again.last_state() == (seqs[9], b"ten")
    place.kill(again)
    place.reboot()
    after = place.open()
    put(after)
    assert after.last_state() == (seqs[9], b"ten")
    after.close()


def test_states_alone_take_one_segment(place: Place) -> None:
    spool = place.open(drop=False)
    for number in range(200):
        spool.append_state(b"%d" % number * 20)
        spool.read(1, 1)
    assert len(place.segments()) == 1
    assert spool.size_bytes == place.segments()[0].stat().st_size <= 1000
    put(spool)
    assert numbers(read_all(spool)) == [1]
    spool.close()
    again = place.open()
    assert again.last_state() == (again.epoch << 32, b"199" * 20)
    assert again.messages_waiting == 1
    again.close()


def test_over_its_bytes_the_oldest_segments_are_dropped_and_counted(place: Place) -> None:
    spool = place.open(max_bytes=4000)
    seqs = []
    for _ in range(100):
        seqs.append(put(spool))
        assert spool.size_bytes <= 4000
    losses = spool.losses()
    assert spool.losses() == []
    assert {loss.reason for loss in losses} == {"full"}
    assert sum(loss.size_bytes for loss in losses) == pytest.approx(100 * 138 - spool.size_bytes, rel=0.1)
    read = [message.seq for message in read_all(spool)]
    assert lost_seqs(losses) + read == seqs
    spool.close()


def test_a_message_that_is_read_may_be_dropped_and_its_late_ack_does_nothing(place: Place) -> None:
    spool = place.open(max_bytes=4000)
    put(spool)
    (first,) = spool.read(1, 1000)
    while not (losses := spool.losses()):
        put(spool)
    assert first.seq == losses[0].first_seq
    waiting = spool.messages_waiting
    spool.ack(first.seq)
    assert spool.messages_waiting == waiting
    assert read_all(spool)[0].seq == losses[0].last_seq + 1
    spool.close()


def test_a_loss_that_nobody_took_survives_a_kill(place: Place) -> None:
    spool = place.open(max_bytes=4000)
    seqs = [put(spool) for _ in range(60)]
    place.kill(spool)
    again = place.open(max_bytes=4000)
    losses = again.losses()
    assert lost_seqs(losses) + [message.seq for message in read_all(again)] == seqs
    place.pass_time(2)
    again.tick()
    place.kill(again)
    last = place.open(max_bytes=4000)
    assert last.losses() == []
    last.close()


def test_without_dropping_a_full_spool_refuses_and_loses_nothing(place: Place) -> None:
    spool = place.open(max_bytes=4000, drop=False)
    spool.append_state(b"s" * 50)
    seqs = []
    seqs += [put(spool) for _ in range(20)]
    with pytest.raises(SpoolFull, match="is full"):
        seqs += iter(lambda: put(spool), None)
    assert 3000 < spool.size_bytes <= 4000
    with pytest.raises(Unavailable):
        spool.append_state(b"s" * 300)
    place.pass_time(1e10)
    spool.tick()
    assert [message.seq for message in read_all(spool)] == seqs
    spool.ack(seqs[-1])
    seqs.append(put(spool))
    assert seqs[-1] == seqs[-2] + 1
    assert [message.seq for message in read_all(spool)] == seqs[-1:]
    assert spool.losses() == []
    spool.close()


def test_what_is_too_old_is_dropped_and_counted(place: Place) -> None:
    spool = place.open(max_age_s=100)
    for _ in range(20):
        put(spool)
    place.pass_time(60)
    seqs = [put(spool) for _ in range(20)]
    place.pass_time(60)
    spool.tick()
    losses = spool.losses()
    assert {loss.reason for loss in losses} == {"old"}
    rest = [message.seq for message in read_all(spool)]
    assert rest[-20:] == seqs and len(rest) < 28
    assert lost_seqs(losses)[-1] + 1 == rest[0]
    spool.close()
    place.pass_time(60)
    again = place.open(max_age_s=100)
    again.tick()
    assert lost_seqs(again.losses()) and again.messages_waiting < 8
    again.close()


def test_a_clock_that_steps_drops_nothing(place: Place) -> None:
    spool = place.open(max_age_s=100)
    for step_s in (0, -3600, 7200, -WALL_S + 5, WALL_S):
        place.wall_s += step_s
        for _ in range(10):
            put(spool)
            spool.tick()
    spool.close()
    place.wall_s -= 86_400
    again = place.open(max_age_s=100)
    again.tick()
    assert again.losses() == []
    assert len(read_all(again)) == 50
    again.close()


def test_gauges(place: Place) -> None:
    spool = place.open()
    assert (spool.size_bytes, spool.messages_waiting, spool.oldest_wall_ms) == (0, 0, None)
    seqs = []
    for _ in range(20):
        seqs.append(put(spool))
        place.pass_time(1)
    start_ms = int(WALL_S * 1000)
    assert spool.oldest_wall_ms == start_ms
    spool.read(5, 10_000)
    spool.read(5, 10_000)
    spool.ack(seqs[4])
    assert (spool.messages_waiting, spool.oldest_wall_ms) == (15, start_ms + 5000)
    spool.ack(seqs[9])
    assert spool.oldest_wall_ms == start_ms + 10_000
    spool.close()
    again = place.open()
    assert (again.messages_waiting, again.oldest_wall_ms) == (10, start_ms + 10_000)
    again.ack(read_all(again)[-1].seq)
    assert (again.messages_waiting, again.oldest_wall_ms) == (0, None)
    again.close()


def test_only_the_owner_may_read_the_files(place: Place) -> None:
    old = os.umask(0)
    try:
        spool = place.open()
        put(spool)
        spool.close()
    finally:
        os.umask(old)
    assert place.folder.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in place.folder.iterdir()} == {0o600}
    assert {path.name for path in place.folder.iterdir()} >= {"cursor", f"{int(WALL_S)}-0000000001.seg"}


def test_the_cursor_is_saved_once_a_second_at_most(place: Place) -> None:
    spool = place.open()
    seqs = [put(spool) for _ in range(5)]
    read_all(spool)
    before = (place.folder / "cursor").read_bytes()
    spool.ack(seqs[2])
    spool.tick()
    assert (place.folder / "cursor").read_bytes() == before
    place.pass_time(1.1)
    spool.tick()
    assert (place.folder / "cursor").read_bytes() != before
    place.kill(spool)
    again = place.open()
    assert numbers(read_all(again)) == [4, 5]
    again.close()


def test_sizes_that_cannot_work_are_refused(place: Place) -> None:
    with pytest.raises(BadConfig, match="too small"):
        place.open(max_bytes=100)
    spool = place.open()
    with pytest.raises(BadInput, match="make it smaller"):
        put(spool, b"x" * 600)
    assert put(spool) & frames.LAST_NUMBER == 1
    spool.close()


def test_files_of_a_newer_version_are_left_alone(place: Place) -> None:
    spool = place.open()
    put(spool)
    spool.close()
    (path,) = place.segments()
    raw = bytearray(path.read_bytes())
    raw[8] = 2
    raw[36:40] = crc32(raw[:36]).to_bytes(4, "little")
    path.write_bytes(raw)
    with pytest.raises(BadStore, match="version 2"):
        place.open()
    assert path.read_bytes() == raw
