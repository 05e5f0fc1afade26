"""Helpers of the integration tests: files that grow as trainers write them, a store that is a list, the command as a process."""

from __future__ import annotations

import json
import os
import random
import select
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from yolometer.box import closing  # noqa: F401 - the package must be there before processes are started
from yolometer.feed import captures
from yolometer.replay import replay
from yolometer_core.errors import StoreUnavailable
from yolometer_core.events import Event
from yolometer_core.testing import MemoryStore
from yolometer_sinks.stores._base import Table
from yolometer_stream.runs.rows import Terms

COMMAND = str(Path(sys.executable).parent / "yolometer")
CAPTURES = sorted(path.name for path in captures().iterdir() if path.is_dir())
SOAK = bool(os.environ.get("YOLOMETER_SOAK"))
TERMS = Terms("demo GPU", 1, None, None, ())
WHEN_SEEN = ("ts", "seq", "version", "started_ts", "ended_ts")
"""Fields that say when something was seen, and so differ between a live reading and a later one."""


class Rows(MemoryStore):
    """A store that is a list, and knows the questions that the box asks."""

    name = "memory"

    def query(self, sql: str, params: Mapping[str, Any] | None = None, **more: object) -> Any:  # type: ignore[override]
        if "source_states" in sql:
            known = [row for row in self.rows("source_state") if row["digest"] is not None and row["role"] != "settings"]
            names = tuple(name.strip() for name in sql.partition("SELECT")[2].partition("FROM")[0].split(","))
            return Table(names, [tuple(row[name] for name in names) for row in known])
        runs = self.rows("run")
        if "DISTINCT place" in sql:
            return Table(("place",), list({(row["place"],): None for row in runs}))
        mine = {row["run_id"] for row in runs if row["place"] == (params or {})["place"]}
        names = ("run_id", "attempt", "epoch", "take") if "FROM epochs" in sql else ("run_id",)
        rows = [row for row in self.rows("epoch" if "FROM epochs" in sql else "run") if row["run_id"] in mine]
        return Table(names, [tuple(row[name] for name in names) for row in rows])

    def told(self) -> dict[str, list[dict[str, Any]]]:
        """All runs and epochs as they stand, apart from when they were seen."""
        return {
            table: sorted(
                ({name: _comparable(value) for name, value in row.items() if name not in WHEN_SEEN} for row in self.rows(table)),
                key=lambda row: str(row["event_id"]),
            )
            for table in ("run", "epoch")
        }


class Away(Rows):
    """A store that is away for a while."""

    away = False

    def write(self, events: Iterable[Event]) -> None:
        if self.away:
            raise StoreUnavailable("The store is away.")
        super().write(events)


def _comparable(value: Any) -> Any:
    """NaN as a word: it does not equal itself."""
    if isinstance(value, tuple):
        return [_comparable(item) for item in value]
    return "nan" if value != value else value  # noqa: PLR0124 - true of NaN alone, whatever the type


def differences(one: Mapping[str, Sequence[Mapping[str, Any]]], other: Mapping[str, Sequence[Mapping[str, Any]]]) -> list[str]:
    """Where two sets of rows differ, field by field."""
    found = []
    for table in one:
        left, right = ({row["event_id"]: row for row in rows[table]} for rows in (one, other))
        lone = left.keys() ^ right.keys()
        found += [f"{table} {key} is only in {'the first' if key in left else 'the second'}" for key in lone]
        for key in left.keys() & right.keys():
            found += [
                f"{table} {key} {name}: {left[key][name]} is not {right[key][name]}"
                for name in left[key]
                if left[key][name] != right[key][name]
            ]
    return found


def read_at_once(folder: Path, node: str = "node") -> dict[str, list[dict[str, Any]]]:
    """The rows of one replay of a folder."""
    store = Rows()
    replay([str(folder)], store, TERMS, node=node)
    return store.told()


@dataclass
class Growing:
    """A copy of a training directory that grows in random pieces: settings at once, logs in turn, the table in step."""

    source: Path
    target: Path
    rng: random.Random
    largest: int = 1 << 20
    shuffled: bool = False
    late: bool = False
    _left: dict[Path, bytes] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.late:
            self.target.mkdir(parents=True, exist_ok=True)
        names = sorted((path for path in self.source.iterdir() if path.is_file()), key=lambda path: (len(path.name), path.name))
        for path in names:
            if path.suffix == ".yaml" and not self.shuffled and not self.late:
                (self.target / path.name).write_bytes(path.read_bytes())
            else:
                self._left[self.target / path.name] = path.read_bytes()

    @property
    def done(self) -> bool:
        return not self._left

    def step(self) -> int:
        """Append one piece to one file; returns its length, 0 when all is written."""
        if not self._left:
            return 0
        logs = [path for path in self._left if path.suffix == ".log"]
        others = [path for path in self._left if path.suffix != ".log"]
        ready = [*(logs if self.shuffled else logs[:1]), *others]
        path = self.rng.choice(ready)
        data = self._left[path]
        length = min(len(data), self.largest, int(2 ** self.rng.uniform(0, 20)))
        piece, rest = data[:length], data[length:]
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab") as file:
            file.write(piece)
        if rest:
            self._left[path] = rest
        else:
            del self._left[path]
        return length

    def rest(self) -> None:
        """Write all that is left."""
        while self.step():
            pass


class Command:
    """`yolometer` as a process; what it says is read without blocking it."""

    def __init__(self, *arguments: str, env: Mapping[str, str] | None = None, cwd: Path | None = None) -> None:
        self.process = subprocess.Popen(
            [COMMAND, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, **(env or {})},
            cwd=cwd,
        )
        self.out = b""
        self.err = b""

    def __enter__(self) -> Command:
        return self

    def __exit__(self, *error: object) -> None:
        if self.process.returncode is None:
            self.process.kill()
            self.end(10)

    @property
    def pid(self) -> int:
        return self.process.pid

    def read(self, seconds: float = 0.0) -> None:
        """Take what it said meanwhile."""
        assert self.process.stdout and self.process.stderr
        streams = [stream for stream in (self.process.stdout, self.process.stderr) if not stream.closed]
        ready, _, _ = select.select(streams, [], [], seconds)
        for stream in ready:
            data = os.read(stream.fileno(), 1 << 16)
            if stream is self.process.stdout:
                self.out += data
            else:
                self.err += data

    def until(self, text: str, seconds: float = 20.0) -> None:
        """Wait until it said `text` on one of its streams."""
        end = time.monotonic() + seconds
        while text.encode() not in self.out + self.err:
            if time.monotonic() > end or self.process.poll() is not None:
                self.read(0.1)
                assert text.encode() in self.out + self.err, f"{text!r} was not said: {self.out!r} {self.err!r}"
            self.read(0.05)

    def lines(self) -> list[dict[str, Any]]:
        """The JSON lines it printed so far."""
        self.read()
        return [json.loads(line) for line in self.out.decode().splitlines(keepends=True) if line.endswith("\n")]

    def end(self, seconds: float = 10.0) -> int:
        """Wait for its end; returns the exit code."""
        out, err = self.process.communicate(timeout=seconds)
        self.out += out
        self.err += err
        return self.process.returncode

    def stop(self, number: int, seconds: float = 10.0) -> int:
        """Send a signal and wait for the end."""
        self.process.send_signal(number)
        return self.end(seconds)


@dataclass
class Answer:
    """How a command ended, and what it said."""

    code: int
    out: str
    err: str
    seconds: float

    @property
    def document(self) -> Any:
        """The one JSON document of stdout."""
        return json.loads(self.out)

    @property
    def sentences(self) -> list[str]:
        return [line for line in self.err.splitlines() if line.strip()]


def yolometer(
    *arguments: str | Path, seconds: float = 60.0, env: Mapping[str, str] | None = None, cwd: Path | None = None
) -> Answer:
    """Run the command to its end."""
    began = time.monotonic()
    done = subprocess.run(
        [COMMAND, *map(str, arguments)], capture_output=True, timeout=seconds, env={**os.environ, **(env or {})}, cwd=cwd,
        check=False, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    return Answer(done.returncode, done.stdout.decode(), done.stderr.decode(), time.monotonic() - began)


def rows_of(store: str, *queries: str) -> list[list[dict[str, Any]]]:
    """What a store answers, asked in a process of its own (one process may open one embedded store)."""
    script = (
        "import json, sys\n"
        "from yolometer import show\n"
        "from yolometer_sinks.open_store import open_store\n"
        "store = open_store(sys.argv[1])\n"
        "store.migrate()\n"
        "print(show.document([store.query(text).dicts() for text in sys.argv[2:]]))\n"
        "store.close()\n"
    )
    done = subprocess.run([sys.executable, "-c", script, store, *queries], capture_output=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr.decode()
    answer: list[list[dict[str, Any]]] = json.loads(done.stdout)
    return answer


def without(rows: Sequence[Mapping[str, Any]], *names: str) -> list[dict[str, Any]]:
    """Rows without some of their fields."""
    return [{name: value for name, value in row.items() if name not in names} for row in rows]


def eventually(seconds: float = 20.0) -> Iterator[float]:
    """Tries with pauses: `for left in eventually(): if ...: break`, with `else` for never."""
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        yield left
        time.sleep(0.05)
