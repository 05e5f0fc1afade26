"""`yolometer doctor`: what works on this machine, what does not, and what to do about it."""

from __future__ import annotations

import os
import platform
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import typer

from yolometer import options, show
from yolometer.box import closing, formats, operators
from yolometer_agent.tail.writers import writers
from yolometer_core.errors import EmptyStore, YolometerError
from yolometer_sinks.open_store import open_store
from yolometer_sinks.stores._base import Table
from yolometer_sql.migrate import status
from yolometer_stream.runs.rows import Terms

LOW_DISK_BYTES = 1 << 30
FAILED = 1


def doctor_command(store: options.Store = None, as_json: options.Json = False) -> None:
    """Check what yolometer needs here, and say what to do where something is missing.

    Example: yolometer doctor --store chdb:///var/lib/yolometer --json
    """
    url = store or options.default_store()
    checks: list[tuple[str, Callable[[], str]]] = [
        ("python", _python),
        ("parts", _parts),
        ("store", lambda: _store(url)),
        ("processes", _processes),
        ("disk", lambda: _disk(url)),
    ]
    results = [_check(name, check) for name, check in checks]
    if as_json:
        print(show.document({"ok": all(item["ok"] for item in results), "checks": results}))
    else:
        rows = [(item["check"], "fine" if item["ok"] else "to do", item["says"]) for item in results]
        show.out().print(show.answer_grid(Table(("check", "state", "what it says"), rows), {}, "What works here"))
    if not all(item["ok"] for item in results):
        raise typer.Exit(FAILED)


def _check(name: str, check: Callable[[], str]) -> dict[str, Any]:
    try:
        return {"check": name, "ok": True, "says": check()}
    except YolometerError as error:
        return {"check": name, "ok": False, "says": str(error)}


def _python() -> str:
    if sys.version_info < (3, 11):  # noqa: UP036 - nothing keeps a checkout from being run by an older Python
        raise YolometerError(f"Python {platform.python_version()} is too old; install Python 3.11 or newer.")
    return f"Python {platform.python_version()} on {platform.system()} {platform.machine()}"


def _parts() -> str:
    return f"{len(formats())} log formats, {len(operators(Terms()))} operators"


def _store(url: str) -> str:
    with closing(open_store(url)) as opened:
        name = opened.name
        try:
            pending = [item for item in status(opened) if item.state == "pending"]
        except EmptyStore:
            return f"{name} is new: the next command makes its tables"
    wanting = f"; {len(pending)} migration(s) to apply: the next command does it"
    return f"{name} answers" + (wanting if pending else " and its tables are up to date")


def _processes() -> str:
    seen = writers()
    if not seen.complete:
        why = "Not all processes can be seen, so a killed training is noticed 15 minutes late; run as root to see them all."
        raise YolometerError(why)
    return f"processes can be seen; {len(seen.pids)} files are being written now"


def _disk(url: str) -> str:
    scheme, _, rest = url.partition("://")
    folder = Path(rest.split("?")[0]) if scheme == "chdb" and rest.startswith("/") else Path.home()
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    free = shutil.disk_usage(folder).free
    if free < LOW_DISK_BYTES:
        raise YolometerError(f"Only {free / 2**20:,.0f} MiB are free at {folder}; free some space or choose another --store.")
    if not os.access(folder, os.W_OK):
        raise YolometerError(f"{folder} cannot be written; choose another --store or change its permissions.")
    return f"{free / 2**30:,.1f} GiB are free at {folder}"
