"""Whatever happens in whatever order: what the spool promises about numbers, order and losses."""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from _spooling import Place, lost_seqs, put
from hypothesis import event, given, settings
from hypothesis import strategies as st

from yolometer_agent.spool.spool import Spool, SpoolFull

STEPS = st.one_of(
    st.tuples(st.just("append"), st.integers(1, 12)),
    st.tuples(st.just("append"), st.integers(1, 12)),
    st.tuples(st.just("state"), st.integers(0, 200)),
    st.tuples(st.just("read"), st.integers(1, 12)),
    st.tuples(st.just("ack"), st.integers(0, 12)),
    st.tuples(st.sampled_from(["rewind", "tick", "take losses", "close", "kill", "reboot"]), st.just(0)),
)
HARM = st.tuples(st.sampled_from(["cut", "flip", "flip", "flip cursor"]), st.integers(0, 2**20))

MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
"""Where an fsync costs nothing: hundreds of spools are opened here."""


@dataclass
class Ledger:
    """What a test saw: all that was appended, and what became of it."""

    place: Place
    values: dict[int, bytes] = field(default_factory=dict)
    read: list[int] = field(default_factory=list)
    """In this pass of the reader."""
    acked: int = 0
    lost: set[int] = field(default_factory=set)
    states: list[tuple[int, bytes]] = field(default_factory=list)
    refused: int = 0

    def append(self, spool: Spool, count: int) -> None:
        for _ in range(count):
            value = b"%d" % (len(self.values) + self.refused) * (1 + len(self.values) % 40)
            try:
                seq = put(spool, value)
            except SpoolFull:
                self.refused += 1
                continue
            before = max(self.values, default=0)
            assert seq > before
            assert seq == before + 1 or seq & 0xFFFFFFFF == 1
            self.values[seq] = value

    def take(self, spool: Spool, most: int) -> bool:
        found = spool.read(most, 2000)
        for message in found:
            assert message.value == self.values[message.seq]
            assert message.seq > (self.read[-1] if self.read else 0)
            self.read.append(message.seq)
        return bool(found)

    def ack(self, spool: Spool, back: int) -> None:
        if self.read:
            seq = self.read[max(0, len(self.read) - 1 - back)]
            spool.ack(seq)
            self.acked = max(self.acked, seq)

    def take_losses(self, spool: Spool) -> None:
        self.lost.update(seq for seq in lost_seqs(spool.losses()) if seq in self.values)

    def stop(self, spool: Spool, how: str) -> None:
        if how == "close":
            spool.close()
        else:
            self.place.kill(spool)
        if how == "reboot":
            self.place.reboot()
        self.place.pass_time(1.5)

    def all_read(self, spool: Spool) -> list[int]:
        """Read everything from the first message that is not acknowledged."""
        spool.rewind()
        self.read = []
        while self.take(spool, 9):
            pass
        self.take_losses(spool)
        return self.read

    def must_come(self) -> set[int]:
        return {seq for seq in self.values if seq > self.acked} - self.lost


def play(ledger: Ledger, spool: Spool, steps: list[tuple[str, int]]) -> Spool:
    for what, number in steps:
        if what == "append":
            ledger.append(spool, number)
        elif what == "state":
            state = b"%d" % len(ledger.states) + b"s" * number
            try:
                spool.append_state(state)
                ledger.states.append((max([spool.epoch << 32, *ledger.values]), state))
            except SpoolFull:
                ledger.refused += 1
        elif what == "read":
            ledger.take(spool, number)
        elif what == "ack":
            ledger.ack(spool, number)
        elif what == "rewind":
            spool.rewind()
            ledger.read = []
        elif what == "tick":
            ledger.place.pass_time(1.5)
            spool.tick()
        elif what == "take losses":
            ledger.take_losses(spool)
        else:
            ledger.stop(spool, what)
            spool = ledger.place.open()
            ledger.read = []
            if what != "close":  # the cursor may be older: then it is sent again
                ledger.acked = spool._lane.acked if spool._lane.acked < ledger.acked else ledger.acked
            if ledger.states:
                as_of, state = spool.last_state() or (0, b"")
                assert state == ledger.states[-1][1]
                assert as_of == ledger.states[-1][0]
    return spool


@given(
    steps=st.lists(STEPS, max_size=40),
    max_bytes=st.sampled_from([4000, 10**6]),
    drop=st.booleans(),
    end=st.sampled_from(["close", "kill", "reboot"]),
)
@settings(max_examples=60)
def test_without_harm_all_comes_in_order_once_or_is_counted(
    steps: list[tuple[str, int]], max_bytes: int, drop: bool, end: str
) -> None:
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        ledger = Ledger(Place(Path(folder), max_bytes=max_bytes, drop=drop))
        spool = play(ledger, ledger.place.open(), steps)
        assert spool.size_bytes == sum(path.stat().st_size for path in ledger.place.segments()) <= max_bytes
        assert spool.torn_bytes == 0
        ledger.take_losses(spool)
        ledger.stop(spool, end)
        spool = ledger.place.open()
        acked = ledger.acked if end == "close" else min(spool._lane.acked, ledger.acked)
        waiting = spool.messages_waiting
        read = ledger.all_read(spool)
        assert len(read) == waiting
        assert set(read) == {seq for seq in ledger.values if seq > acked} - ledger.lost
        assert ledger.must_come() <= set(read)
        assert drop or not ledger.lost
        spool.close()


def do_harm(place: Place, what: str, number: int) -> str:
    segments = place.segments()
    if what == "cut" and segments:
        os.truncate(segments[-1], number % (segments[-1].stat().st_size + 1))
        return "cut"
    paths = [path for path in place.folder.glob("cursor*") if path.stat().st_size] if what == "flip cursor" else segments
    if not paths:
        return "nothing"
    path = paths[number % len(paths)]
    raw = bytearray(path.read_bytes())
    bit = (number // len(paths)) % (len(raw) * 8)
    raw[bit // 8] ^= 1 << bit % 8
    path.write_bytes(raw)
    return "last" if path == segments[-1] else "cursor" if what == "flip cursor" else "older"


@given(
    fill=st.sampled_from([0, 30, 60]),
    before=st.lists(STEPS, max_size=20),
    stop=st.sampled_from(["close", "kill", "reboot"]),
    harm=HARM,
    between=st.lists(STEPS, max_size=8),
    harms=st.lists(HARM, max_size=2),
    after=st.lists(STEPS, max_size=20),
)
@settings(max_examples=60)
def test_with_harm_nothing_wrong_is_read_and_no_number_is_used_again(
    fill: int,
    before: list[tuple[str, int]],
    stop: str,
    harm: tuple[str, int],
    between: list[tuple[str, int]],
    harms: list[tuple[str, int]],
    after: list[tuple[str, int]],
) -> None:
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        ledger = Ledger(Place(Path(folder)))
        spool = play(ledger, ledger.place.open(), [("append", fill), *before])
        ledger.take_losses(spool)
        ledger.stop(spool, stop)
        if stop == "kill" and harm[0] == "cut":
            ledger.place.reboot()  # the death of a process alone cuts nothing that was written
        done = do_harm(ledger.place, *harm)
        event(f"{stop} and {done}")
        # one harm is accounted for to the last message
        spool = ledger.place.open()
        torn = spool.torn_bytes
        read = ledger.all_read(spool)
        missing = ledger.must_come() - set(read)
        assert stop != "close" or done == "cursor" or read == [] or read[0] > ledger.acked
        if torn and stop != "close":
            assert all(seq > max(read, default=0) for seq in missing)
        elif not (done == "cut" and stop != "close"):
            assert not missing
        if done in {"cursor", "older", "nothing"}:
            assert torn == 0
        # after that, and more harm: no crash, no wrong message, no number twice (the ledger looks at each)
        ledger.states = []
        ledger.append(spool, 1)
        spool = play(ledger, spool, [step for step in between if step[0] != "state"])
        for more in harms:
            spool.close()
            ledger.place.reboot()
            do_harm(ledger.place, *more)
            spool = ledger.place.open()
            ledger.all_read(spool)
            ledger.append(spool, 3)
        spool = play(ledger, spool, [step for step in after if step[0] != "state"])
        ledger.all_read(spool)
        assert spool.messages_waiting <= len(ledger.values)
        spool.close()
