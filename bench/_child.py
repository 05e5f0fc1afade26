"""One measured thing in a process of its own: its CPU seconds and its largest memory are its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple


class Spent(NamedTuple):
    """What a child process spent (user and system CPU seconds, most memory) and what it printed as JSON (None: no JSON)."""

    cpu_s: float
    rss_mb: float
    said: Any


def spent(command: Sequence[str], output: str | None = None) -> Spent:
    """Run a command to its end; its output goes to the file `output`, or comes back. SystemExit when it fails."""
    with open(output, "wb") if output else open(os.devnull) as file:  # noqa: PTH123  # devnull is not used
        child = subprocess.Popen(command, stdout=file if output else subprocess.PIPE)  # our own commands
        text = child.stdout.read() if child.stdout else b""
        _, status, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        sys.exit(f"{' '.join(command)} ended with {child.returncode}")
    return Spent(used.ru_utime + used.ru_stime, used.ru_maxrss / 1024, json.loads(text) if text.startswith(b"{") else None)


def verdict(value: float, demanded: float, *, at_most: bool = False) -> str:
    """`demanded at least 0.50: met`, as every benchmark ends its lines."""
    met = value <= demanded if at_most else value >= demanded
    return f"demanded {'at most' if at_most else 'at least'} {demanded:g}: {'met' if met else 'NOT met'}"
