"""Follow in any order of writes, reads, restarts, rotations and kills: nothing is lost, nothing comes twice."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

from _following import Reader, append
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.integers(1, 40)),
        st.tuples(st.just("half"), st.integers(1, 5)),
        st.tuples(st.just("read"), st.integers(1, 60)),
        st.tuples(st.just("restart"), st.just(0)),
        st.tuples(st.just("rotate"), st.just(0)),
    ),
    max_size=40,
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(STEPS)
def test_any_order_of_writes_reads_restarts_and_rotations(tmp_path: Path, steps: list[tuple[str, int]]) -> None:
    for old in tmp_path.iterdir():
        old.unlink()
    log = tmp_path / "train.log"
    reader, written, number, rotated = Reader(log), b"", 0, 0
    for what, amount in steps:
        if what == "write":
            new = b"\nline %d" % number + b"." * amount + b"\n"
            number += 1
        elif what == "half":
            new = b"~" * amount
        elif what == "read":
            reader.poll(amount)
            continue
        elif what == "restart":
            reader.restart()
            continue
        else:
            # The next rotation waits for the reader, as a file rotated twice meanwhile cannot be told from a deleted one.
            reader.read()
            if log.exists():
                rotated += 1
                log.rename(tmp_path / f"train.log.{rotated}")
                written += b"\n"
            continue
        append(log, new)
        written += new
    append(log, b"\nend\n")
    written += b"\nend\n"
    reader.read()
    reader.follow.close()
    assert [record for _, record in reader.got] == [part for part in written.split(b"\n") if part]
    assert reader.ends == sorted(set(reader.ends))


WRITER = """
import os, sys, time
path, number = sys.argv[1], 0
while True:
    fd = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    # Rotated so seldom that even a slow start of a reader sees every file: one that comes and goes meanwhile cannot be read.
    for _ in range(2500):
        time.sleep(0.001)
        os.write(fd, b"%d " % number + b"x" * (number % 300))
        os.write(fd, (b"\\r\\x1b[K", b"\\n", b"\\r\\n")[number % 3])
        number += 1
    os.close(fd)
    os.rename(path, f"{path}.{number}")
"""
READER = """
import json, sys
from pathlib import Path
from yolometer_agent.tail.checkpoint import Checkpoint
from yolometer_agent.tail.follow import Follow
checkpoint = Checkpoint(Path(sys.argv[2]))
follow = Follow(sys.argv[1], checkpoint.load())
with open(sys.argv[3], "ab", buffering=0) as out:
    while True:
        batch = follow.poll(7000)
        if batch is None:
            continue
        found = [[batch.incarnation, batch.chunk.ends(i), r.decode()] for i, r in enumerate(batch.chunk.records)]
        out.write("".join(json.dumps(one) + "\\n" for one in found).encode())
        checkpoint.save(follow.state())
"""


def test_reader_and_writer_killed_at_any_time(tmp_path: Path) -> None:
    log, state, out = tmp_path / "train.log", tmp_path / "state", tmp_path / "out"
    with subprocess.Popen([sys.executable, "-c", WRITER, str(log)]) as process:
        for life in range(8):
            with subprocess.Popen([sys.executable, "-c", READER, str(log), str(state), str(out)]) as reading:
                time.sleep(0.25 + 0.037 * life)
                reading.send_signal(signal.SIGKILL)
        process.send_signal(signal.SIGKILL)
    given = [json.loads(line) for line in out.read_bytes().split(b"\n")[:-1] if line.endswith(b"]")]
    by_end = {end: record for _, end, record in given}
    # A batch handed on before the kill and after the save comes again with the same positions: nothing else does.
    assert len(given) - len(by_end) < len(given) / 2
    assert all(by_end[end] == record for _, end, record in given)
    numbers = [int(by_end[end].removeprefix("\x1b[K").split()[0]) for end in sorted(by_end) if by_end[end] != "\x1b[K"]
    assert numbers == list(range(len(numbers)))
    assert len(numbers) > 100
