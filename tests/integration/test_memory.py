"""How much memory the agent and a replay take: figures of the whole process, from /proc."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from yolometer.feed import captures

AGENT_MIB = 48
REPLAY_GROWTH_MIB = 40

AGENT = """
import json, random, sys
from pathlib import Path
from yolometer_agent import formats as parts
from yolometer_agent.agent import Agent
from yolometer_agent.formats._base import Format
from yolometer_core.parts import discover

source, target = Path(sys.argv[1]), Path(sys.argv[2])
rng = random.Random(3)
data = [(path.name, path.read_bytes()) for path in sorted(source.iterdir()) if path.is_file()]
formats = discover(parts, "FORMAT", Format)
agent = Agent([str(target)], formats, node="node", keep_copies=True)
files = []
for number in range(50):
    folder = target / f"run{number}"
    folder.mkdir(parents=True)
    files += [[folder / name, content, 0] for name, content in data]
facts = 0
rounds = 0
while any(done < len(content) for _, content, done in files):
    for entry in files:
        path, content, done = entry
        piece = content[done : done + rng.randrange(1, 8192)]
        if piece:
            with path.open("ab") as file:
                file.write(piece)
            entry[2] = done + len(piece)
    if rounds % 10 == 0:
        agent.scan()
        facts += len(agent.stands())
    facts += len(agent.poll()[0])
    rounds += 1
agent.poll(resting=True)
state = len(json.dumps(agent.state()))
status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
names = ("chdb", "pyarrow", "clickhouse_connect", "numpy", "pandas", "yolometer_sinks", "rich")
rss, peak = (int(status[name].split()[0]) / 1024 for name in ("VmRSS", "VmHWM"))
print(json.dumps({"rss": rss, "peak": peak, "facts": facts, "sources": agent.sources, "rounds": rounds, "state_bytes": state,
                  "heavy": [name for name in names if name in sys.modules]}))
"""

REPLAY = """
import sys
from pathlib import Path
from yolometer.commands import replay
from yolometer.cli import run
import typer
app = typer.Typer()
app.command()(replay.replay_command)
sys.argv = ["replay", *sys.argv[1:]]
code = run(app)
status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
print(int(status["VmHWM"].split()[0]) / 1024, file=sys.stderr)
sys.exit(code)
"""


def python(script: str, *arguments: str) -> tuple[str, str]:
    done = subprocess.run([sys.executable, "-c", script, *arguments], capture_output=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode(), done.stderr.decode()


def test_an_agent_of_50_growing_runs_is_small(tmp_path: Path) -> None:
    out, _ = python(AGENT, str(captures() / "yolov8n-long"), str(tmp_path / "runs"))
    found = json.loads(out)
    print(found)
    assert found["heavy"] == []
    assert found["sources"] == 150 and found["facts"] > 50 * 240
    assert found["rss"] < AGENT_MIB
    assert found["peak"] < AGENT_MIB


def test_a_log_ten_times_as_long_takes_no_more_memory(tmp_path: Path) -> None:
    sys.path.insert(0, str(Path(__file__).parents[2] / "bench"))
    make_console = pytest.importorskip("_logs").make_console
    peaks = {}
    for records in (20_000, 200_000):
        (tmp_path / str(records)).mkdir()
        log = make_console(tmp_path / str(records) / "train.log", records, cr=True)
        out, err = python(REPLAY, str(log), "--json")
        (run,) = json.loads(out)["runs"]
        assert run["epochs_done"] == (records - 13) // 203
        peaks[records] = float(err.splitlines()[-1])
    print({records: f"{peak:.0f} MiB" for records, peak in peaks.items()})
    assert peaks[200_000] - peaks[20_000] < REPLAY_GROWTH_MIB
