"""From bytes to events: the product's reader against grep, a bare Python loop and rsyslog, and what idle following costs.

    .venv/bin/python bench/tail.py [--records 1000000] [--rounds 3] [--idle-s 20]

Every way reads the same made logs in a process of its own; its CPU seconds (user and system) count, in turns, and ratios
are medians over the rounds. Importing Python and the product is left out by an empty run of each.

    reader    the agent's reader, as `up` uses it: follow, split, recognise, fold, events
    loop      blocks of 64 KiB, split, one `re.match` with 11 groups a record; keeps nothing
    grep      grep -cE with a pattern of the same parts
    rsyslog   imfile to omfile, no pattern at all (needs Debian's rsyslog)
"""

from __future__ import annotations

import argparse
import json
import re
import resource
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from _child import spent, verdict
from _logs import make_console, make_csv

FRAME = re.compile(
    rb"\s*(?:\x1b\[K)?\s*(\d+)/(\d+)\s+([\d.]+)([GM])\s+([\d.e+-]+)\s+([\d.e+-]+)\s+([\d.e+-]+)\s+(\d+)\s+(\d+):\s+(\d+)%[^/]*?(\d+)/"
)
ROW = re.compile(rb"(\d+)," + rb",".join([rb"([\d.e+-]+)"] * 10))
GREP = {
    "frame": r"[0-9]+/[0-9]+ +[0-9.]+[GM] +[0-9.e+-]+ +[0-9.e+-]+ +[0-9.e+-]+ +[0-9]+ +[0-9]+: +[0-9]+%",
    "row": r"^[0-9]+(,[0-9.e+-]+){10}",
}
DEMANDED = {"console, CR": 1.0, "console, LF": 0.5, "table, CSV": None}
IDLE_PERCENT = 0.3


def by_reader(path: str) -> int:
    """Read a file to its end with the product; return how many events it gave."""
    from yolometer.box import formats
    from yolometer_agent.reader import Reader

    reader = Reader(Path(path), formats(), node="bench", place="bench:/", source="log")
    count, more = 0, bool(Path(path).stat().st_size)
    while more:
        facts, more = reader.poll()
        count += len(facts)
    return count


def by_loop(path: str) -> int:
    """Read a file to its end with a bare loop; return how many records matched."""
    match, count, rest = (ROW if path.endswith(".csv") else FRAME).match, 0, b""
    with open(path, "rb", buffering=0) as file:  # noqa: PTH123  # unbuffered
        while block := file.read(1 << 16):
            records = (rest + block).replace(b"\r", b"\n").split(b"\n")
            rest = records.pop()
            for record in records:
                if record and match(record):
                    count += 1
    return count


def by_follow(path: str, seconds: float) -> dict[str, float]:
    """Follow a growing file as often as `up` does; return percent of a core and memory."""
    from yolometer.box import formats
    from yolometer.up import POLL_S
    from yolometer_agent.reader import Reader

    reader = Reader(Path(path), formats(), node="bench", place="bench:/", source="log")
    while reader.poll()[1]:
        pass
    begun_s, cpu_s, events = time.monotonic(), time.process_time(), 0
    while (now_s := time.monotonic()) - begun_s < seconds:
        events += len(reader.poll()[0])
        time.sleep(POLL_S)
    percent = 100 * (time.process_time() - cpu_s) / (now_s - begun_s)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"percent": percent, "events": events, "poll_s": POLL_S, "rss_mb": memory}


def by_rsyslog(program: str, log: Path, folder: Path) -> float | None:
    """CPU seconds that rsyslog needs to copy a log line by line, start included; None when it does not get through."""
    folder.mkdir()
    out, conf, pid = folder / "out", folder / "rsyslog.conf", folder / "pid"
    conf.write_text(
        f'global(workDirectory="{folder}" maxMessageSize="64k")\nmodule(load="imfile" mode="inotify")\n'
        f'input(type="imfile" file="{log}" tag="yolo:" ruleset="out")\ntemplate(name="raw" type="string" string="%msg%\\n")\n'
        f'ruleset(name="out"){{action(type="omfile" file="{out}" template="raw" ioBufferSize="64k" flushOnTXEnd="on")}}\n'
    )
    child = subprocess.Popen([program, "-n", "-f", str(conf), "-i", str(pid)], stderr=subprocess.DEVNULL)
    size, still, deadline = -1, 0, time.monotonic() + 120
    while time.monotonic() < deadline and still < 8:
        time.sleep(0.25)
        now = out.stat().st_size if out.exists() else 0
        still, size = (still + 1 if now == size and now else 0), now
    child.send_signal(signal.SIGTERM)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    child.wait()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    shutil.rmtree(folder)
    if size < 0.9 * log.stat().st_size:
        return None
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def measure(name: str, log: Path, records: int, rounds: int, empty: Path) -> None:
    """Print one line for each way through one log."""
    me, kind = [sys.executable, __file__], "row" if log.suffix == ".csv" else "frame"
    rsyslog = shutil.which("rsyslogd") or shutil.which("rsyslogd", path="/usr/sbin:/sbin")
    seconds: dict[str, list[float]] = {"reader": [], "loop": [], "grep": [], "rsyslog": []}
    memory = 0.0
    for number in range(rounds):
        for way in ("reader", "loop"):
            used, idle = spent([*me, f"--{way}", str(log)]), spent([*me, f"--{way}", str(empty)])
            seconds[way].append(max(used.cpu_s - idle.cpu_s, 1e-3))
            memory = max(memory, used.rss_mb) if way == "reader" else memory
        # into a file: into /dev/null grep stops at the first match
        seconds["grep"].append(max(spent(["grep", "-cE", GREP[kind], str(log)], str(empty.with_suffix(".count"))).cpu_s, 1e-3))
        told = by_rsyslog(rsyslog, log, empty.with_name(f"rsyslog-{number}")) if rsyslog else None
        seconds["rsyslog"] += [told] if told else []
    print(f"\n{name}: {records:,} records, {log.stat().st_size / 1e6:.0f} MB; the reader needs {memory:.0f} MB")
    for way, found in seconds.items():
        if not found:
            why = "did not get through the log" if rsyslog else "is not there (Debian: apt-get install rsyslog)"
            print(f"  {way:<8} {why}")
            continue
        ratio = statistics.median(loop / own for loop, own in zip(seconds["loop"], found, strict=False))
        demanded = DEMANDED[name] if way == "reader" else None
        end = f"   {verdict(ratio, demanded)}" if demanded else ""
        middle = statistics.median(found)
        print(f"  {way:<8} {middle:>7.2f} CPU s   {records / middle / 1e3:>8,.0f} k records/s   {ratio:>6.2f} of the loop{end}")


def idle(folder: Path, seconds: float) -> None:
    """Print what following costs while a log grows by 80 frames a second."""
    source, log = make_console(folder / "idle-source", int(80 * seconds) + 1000, cr=True).read_bytes(), folder / "idle.log"
    frames = source.split(b"\r")
    log.write_bytes(b"\r".join(frames[:100]))
    command = [sys.executable, __file__, "--follow", str(log), "--idle-s", str(seconds)]
    child = subprocess.Popen(command, stdout=subprocess.PIPE)
    at, begun_s = 100, time.monotonic()
    with log.open("ab", buffering=0) as file:
        while child.poll() is None:
            due = 100 + int(80 * (time.monotonic() - begun_s))
            if due > at and at < len(frames):
                file.write(b"\r" + b"\r".join(frames[at:due]))
                at = due
            time.sleep(0.01)
    said = json.loads(child.stdout.read()) if child.stdout else {}
    rhythm = f"a look every {1000 * said['poll_s']:.0f} ms"
    print(f"\nfollowing 80 frames/s for {seconds:g} s, {rhythm}:")
    print(f"  {said['events']:.0f} events, {said['rss_mb']:.0f} MB")
    print(f"  {said['percent']:.2f} % of a core   {verdict(said['percent'], IDLE_PERCENT, at_most=True)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--idle-s", type=float, default=20.0)
    for way in ("reader", "loop", "follow"):
        parser.add_argument(f"--{way}", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.reader or given.loop:
        print(json.dumps({"count": by_reader(given.reader) if given.reader else by_loop(given.loop)}))
    elif given.follow:
        print(json.dumps(by_follow(given.follow, given.idle_s)))
    else:
        with tempfile.TemporaryDirectory(prefix="yolometer-bench-") as name:
            folder = Path(name)
            empty = folder / "empty"
            empty.touch()
            logs = {
                "console, CR": lambda: make_console(folder / "cr.log", given.records, cr=True),
                "console, LF": lambda: make_console(folder / "lf.log", given.records, cr=False),
                "table, CSV": lambda: make_csv(folder / "rows.csv", given.records),
            }
            for kind, make in logs.items():
                log = make()
                measure(kind, log, given.records, given.rounds, empty)
                log.unlink()
            idle(folder, given.idle_s)


if __name__ == "__main__":
    main()
