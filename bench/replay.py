"""The whole path, from files to rows in an embedded store: many small runs, one big log, and growth with length.

    .venv/bin/python bench/replay.py [--runs 100] [--records 1000000] [--epochs 5000]

Each part runs in a process of its own; CPU seconds (user and system, with the threads of the engine) and the most memory are
of that process. `of the loop` is the speed against reading the same bytes with the bare loop of bench/tail.py; start
and migration of the store are left out of both.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

from _child import spent, verdict
from _logs import ITERATIONS, make_console
from tail import by_loop

LINEAR = 1.5
"""The most that a record of a log of --epochs may cost, against one of a log a fifth as long."""
_LOSS = re.compile(rb"(\d\.\d\d)(\d)(?=[ ,])")


def make_runs(folder: Path, runs: int) -> None:
    """Copy the captured trainings until there are `runs` of them; digits of losses differ, so that none is a copy."""
    from yolometer.feed import captures

    sources = sorted(path for path in captures().iterdir() if path.is_dir())
    for number in range(runs):
        source, turn = sources[number % len(sources)], number // len(sources)
        target = folder / f"{turn:04d}" / source.name
        target.mkdir(parents=True)
        for file in sorted(source.iterdir()):
            data = file.read_bytes()
            if file.suffix != ".yaml":
                data = _LOSS.sub(partial(_turned, turn), data)
            (target / file.name).write_bytes(data)


def _turned(turn: int, found: re.Match[bytes]) -> bytes:
    """A loss with another last digit for each turn."""
    return found[1] + b"%d" % ((int(found[2]) + turn + int(found[1][-1:]) * turn // 10) % 10)


def by_replay(folder: str) -> dict[str, float]:
    """Replay a folder into an empty store in memory; return what it held and what that cost."""
    from yolometer.replay import replay
    from yolometer_sinks.open_store import open_store
    from yolometer_stream.runs.rows import Terms

    store = open_store("chdb://memory")
    store.migrate()
    begun = time.process_time()
    done = replay([folder], store, Terms())
    cpu_s = time.process_time() - begun
    store.close()
    files = [path for path in Path(folder).rglob("*") if path.is_file()]
    begun = time.process_time()
    for path in files:
        by_loop(str(path))
    loop_s = time.process_time() - begun
    size = sum(path.stat().st_size for path in files)
    return {"runs": len(done.run_ids), "events": done.facts, "mb": size / 1e6, "cpu_s": cpu_s, "loop_s": max(loop_s, 1e-4)}


def measure(name: str, folder: Path) -> dict[str, float]:
    """Replay in a child and print one line."""
    used = spent([sys.executable, __file__, "--replay", str(folder)])
    said: dict[str, float] = used.said
    cpu_s = said["cpu_s"]
    print(
        f"{name:<32} {cpu_s:>7.2f} CPU s   {said['runs'] / cpu_s:>7.2f} runs/s   {said['events'] / cpu_s:>8,.0f} events/s"
        f"   {said['mb'] / cpu_s:>6.2f} MB/s   {used.rss_mb:>5.0f} MB   {said['loop_s'] / cpu_s:.3f} of the loop"
    )
    return said


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--epochs", type=int, default=5_000)
    parser.add_argument("--replay", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.replay:
        print(json.dumps(by_replay(given.replay)))
        return
    with tempfile.TemporaryDirectory(prefix="yolometer-bench-") as name:
        folder = Path(name)
        (many := folder / "many").mkdir()
        make_runs(many, given.runs)
        said = measure(f"{given.runs} small runs", many)
        if said["runs"] < given.runs:
            print(f"  {said['runs']:.0f} runs were found: some were taken for copies")
        cost = {}
        records = {"one big log": given.records, f"{given.epochs // 5} epochs": given.epochs // 5 * (ITERATIONS + 3)}
        records[f"{given.epochs} epochs"] = given.epochs * (ITERATIONS + 3)
        for part, count in records.items():
            (home := folder / part.replace(" ", "-")).mkdir()
            log = make_console(home / "train.log", count, cr=True)
            cost[part] = measure(f"{part}, {count:,} records", home)["cpu_s"] / count
            log.unlink()
        short, long = list(cost.values())[-2:]
        growth = long / short
        print(f"a record of the long log costs {growth:.2f} of one of the short log   {verdict(growth, LINEAR, at_most=True)}")


if __name__ == "__main__":
    main()
