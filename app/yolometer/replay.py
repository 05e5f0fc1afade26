"""Replay: finished or running training directories and bare log files, read once through the same pipeline as live ones."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from yolometer.box import Box, formats, known_sources, told_by
from yolometer_agent.agent import Agent, is_settings
from yolometer_agent.reader import UNKNOWN
from yolometer_core.errors import BadUsage
from yolometer_sinks.stores._base import Store
from yolometer_stream.runs.rows import Terms

BATCH_ROWS = 5_000


@dataclass
class Replayed:
    """What a replay found: ids of the runs it read, places whose copies it was given, and what it skipped with the reason."""

    run_ids: list[str] = field(default_factory=list)
    twins: list[str] = field(default_factory=list)
    skipped: list[dict[str, str]] = field(default_factory=list)
    files: int = 0
    facts: int = 0


def replay(
    paths: Sequence[str],
    store: Store,
    terms: Terms,
    *,
    node: str | None = None,
    keep_copies: bool = False,
    progress: Callable[[int, int, str], None] = lambda done, total, name: None,
) -> Replayed:
    """Read every log, table and settings file below `paths` into the store.

    `progress(done, total, file)` is called for each file. Raises BadUsage when no path exists at all, Unavailable
    or BadStore from the store. What cannot be read or recognised is in `skipped`; the rest is done all the same.
    """
    node = node or socket.gethostname()
    _check(paths)
    patterns, known = [_pattern(path) for path in paths], known_sources(store)
    agent = Agent(patterns, formats(), node=node, known=known, keep_copies=keep_copies, live=False, now=_changed)
    box = Box(store, terms, node=node, told=told_by(store))
    try:
        return _read(agent, box, progress)
    finally:
        agent.close()


def _read(agent: Agent, box: Box, progress: Callable[[int, int, str], None]) -> Replayed:
    files = [path for path in agent.scan() if str(path) not in agent.skipped]
    folders: dict[Path, list[Path]] = {}
    for path in files:
        folders.setdefault(path.parent, []).append(path)
    done = 0
    skipped = dict(agent.skipped)
    box.take(agent.poll([path for path in files if is_settings(str(path))])[0])
    for folder in sorted(folders):
        for path in folders[folder]:
            progress(done, len(files), str(path))
            _drain(agent, box, path)
            done += 1
            problem = agent.problem_of(path)
            if problem or agent.format_of(path) is None:
                skipped[str(path)] = problem or _silent(path)
        box.take(agent.stands(folders[folder], digest=True))
    box.settle()
    skipped |= box.refused
    progress(done, len(files), "")
    reasons = [{"path": path, "reason": why} for path, why in sorted(skipped.items())]
    return Replayed(sorted(box.runs), sorted(set(filter(None, agent.copied.values()))), reasons, len(files), box.facts)


def _drain(agent: Agent, box: Box, path: Path) -> None:
    more = True
    while more:
        facts, more = agent.poll([path])
        box.take(facts)
        if box.waiting > BATCH_ROWS:
            box.flush()


def _changed(path: Path) -> datetime:
    """When a file changed last: the time of all it says, when it is read afterwards."""
    try:
        return datetime.fromtimestamp(path.stat().st_mtime, UTC)
    except (OSError, ValueError, OverflowError):
        return datetime.now(UTC)


def _silent(path: Path) -> str:
    try:
        if path.stat().st_size == 0:
            return "It is empty."
    except OSError as error:
        return f"It cannot be read ({error.strerror})."
    return UNKNOWN


def _check(paths: Sequence[str]) -> None:
    if not paths:
        raise BadUsage("Name at least one training directory or log file to replay.")
    if not all(path.strip() for path in paths):
        raise BadUsage("A path to replay is empty; name a training directory or a log file.")


def _pattern(path: str) -> str:
    return os.path.normpath(Path(path).expanduser().absolute())
