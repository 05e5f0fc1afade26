"""ClickHouse embedded in this process (chDB): `chdb:///folder` or `chdb://memory`.

What to know of chDB: one process per folder, one folder per process, never fork while it is open, and it takes a
`config.xml` of the working directory for its own, at import and whenever the engine starts. Hence the checks here.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import sys
import tempfile
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from yolometer_core.errors import BadStore, BadUsage, StoreUnavailable
from yolometer_sinks.stores._base import DATABASE, Scheme, Store, address

USAGE = "chdb:///folder or chdb://memory"
OPTIONS = ("database", "memory_mib")
MEMORY_MIB = 2048
CACHE_BYTES = 64 << 20
INSERTS = "inserts"  # the folder in the store where the rows of an insert wait for the engine
TMPFS = "/dev/shm"  # noqa: S108  # where they wait when the store is in memory
_HARMLESS = {"tmp", "status", INSERTS, "lost+found"}  # a folder with anything else and no metadata is not a store
_opened: dict[str, int] = {}  # what this process has open, and how often
_guard = threading.Lock()


def open_chdb(url: str) -> Store:
    """Open an embedded store; its folder is made when it is not there.

    `?database=name` takes another database than `yolometer`, `?memory_mib=n` caps the engine's memory (2048).
    Raises StoreUnavailable when another process has it open or the folder may not be written, BadStore when the
    path is a file, another kind of folder or damaged, BadUsage when this process has another folder open.
    """
    where = address(url, OPTIONS, USAGE)
    database = unquote(where.options.get("database", DATABASE))
    memory_mib = where.options.get("memory_mib", str(MEMORY_MIB))
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", database):
        raise BadUsage("The database of the store URL must be letters, digits and underscores; correct it.")
    if not re.fullmatch(r"[1-9][0-9]{2,8}", memory_mib):
        raise BadUsage("The option memory_mib of the store URL must be a whole number from 100; correct it.")
    path = unquote(where.parts.path)
    if where.parts.netloc == "memory" and path in ("", "/"):
        folder = None
    elif not where.parts.netloc and path.startswith("/") and path.strip("/") and not set(path) & set("?\0\n"):
        folder = Path(os.path.realpath(path))
    else:
        raise BadUsage(f"The store URL names no folder; write it as {USAGE}, with three slashes before the folder.")
    with _guard:
        return _open(folder, database, int(memory_mib))


def _open(folder: Path | None, database: str, memory_mib: int) -> Store:
    """In order: the folder is looked at, the engine starts, leftovers of inserts go, set-aside data is refused."""
    name = f"chdb://{folder}" if folder else "chdb://memory"
    key = str(folder) if folder else ":memory:"
    if folder is not None:
        _look(folder)
    for other in _opened:
        if other != key:
            raise BadUsage(f"This process has the chDB store {other} open, so {name} cannot be; close the other one first.")
    first = key not in _opened
    if folder is not None and first:
        _make(folder, name)
    try:
        with _neutral_folder():
            import chdb  # noqa: F401  # reads the working directory, hence here
            from clickhouse_connect.driver import create_client

            from yolometer_sinks.stores._client import ClientStore
            from yolometer_sinks.stores._errors import Locked, foreign

            limits = {
                "max_server_memory_usage": memory_mib << 20,
                "mark_cache_size": CACHE_BYTES,
                "primary_index_cache_size": CACHE_BYTES,
            }
            path = str(folder) if folder else None
            try:
                with _silenced(), foreign(name, during="open"):
                    client = create_client(interface="chdb", path=path, chdb_options=limits, tz_mode="aware")
            except Locked:
                # chDB says the same of a lock and of metadata that it cannot read: the lock itself tells them apart.
                if folder is not None and first and _holder(folder) is None:
                    damaged = f"The data of the store {name} is damaged; restore it from a copy, or replay into an empty folder."
                    raise BadStore(damaged) from None
                raise
    except ImportError:
        raise BadUsage("The embedded ClickHouse is not installed; install yolometer[box].") from None
    try:
        waiting = _waiting_folder(folder)
        if folder is not None and first:
            with foreign(name):
                _clean(folder / INSERTS)
                _refuse_set_aside(client, name)
    except BaseException:
        client.close()
        raise
    _opened[key] = _opened.get(key, 0) + 1
    return ClientStore(
        client,
        name,
        database,
        create_database="CREATE DATABASE IF NOT EXISTS `{database}` ENGINE = Atomic",
        insert=partial(_insert, waiting),
        on_close=partial(_closed, key),
    )


def _look(folder: Path) -> None:
    """Say in one sentence what a path is that is no store, before the engine says it in sixty lines; changes nothing."""
    part = next(part for part in (folder, *folder.parents) if os.path.lexists(part))
    if not part.is_dir():
        raise BadStore(f"{part} is a file, and a store is a folder; name a folder.")
    with contextlib.suppress(OSError):  # not there, or not to be read: for _make to say
        entries = {entry.name for entry in folder.iterdir()}
        if entries - _HARMLESS and "metadata" not in entries:
            raise BadStore(f"{folder} holds other files and no store; name an empty folder, or one that does not exist yet.")


def _make(folder: Path, name: str) -> None:
    """Make the folder where it is missing, and see that it is ours to use."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except PermissionError:
        raise StoreUnavailable(f"The folder of the store {name} may not be made by this user; give it the permission.") from None
    except OSError as error:
        raise StoreUnavailable(f"The folder of the store {name} cannot be made ({error.strerror}); name another one.") from None
    if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        raise StoreUnavailable(f"The folder of the store {name} may not be used by this user; give it the permission.")
    holder = _holder(folder)
    if holder is not None:
        raise StoreUnavailable(f"The store {name} is open in another process{holder}; stop that one, or use another store.")


def _holder(folder: Path) -> str | None:
    """Who has the store open: None for nobody, else ` (pid 123)` or, when it cannot be read, an empty text."""
    try:
        with (folder / "status").open("rb") as status:
            try:
                fcntl.flock(status, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                found = re.search(rb"PID: (\d+)", status.read(200))
                return f" (pid {int(found[1])})" if found else ""
    except OSError:
        return None
    return None


@contextlib.contextmanager
def _neutral_folder() -> Iterator[None]:
    """Be in an empty folder meanwhile: chDB takes a `config.xml` of the working directory for its own."""
    with contextlib.ExitStack() as stack:
        try:
            before = os.open(".", os.O_RDONLY | os.O_DIRECTORY)
            stack.callback(os.close, before)
            empty = stack.enter_context(tempfile.TemporaryDirectory(prefix="yolometer-"))
            os.chdir(empty)
            stack.callback(os.fchdir, before)
        except OSError as error:
            raise StoreUnavailable(
                f"An embedded store needs a working directory and a temporary folder ({error.strerror or error}); "
                "change to a folder that exists and set TMPDIR to one with space."
            ) from None
        yield


@contextlib.contextmanager
def _silenced() -> Iterator[None]:
    """Keep what the engine itself prints on stderr when it cannot open a folder: our sentence says it."""
    sys.stderr.flush()
    kept = os.dup(2)
    try:
        with open(os.devnull, "wb") as nothing:  # noqa: PTH123 - a descriptor is needed
            os.dup2(nothing.fileno(), 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def _waiting_folder(folder: Path | None) -> str | None:
    """Where the rows of an insert wait: in the store, or on tmpfs for one in memory; None is the system's choice.

    The engine would take `*`, `?` and braces in the path for a pattern, so such a store has them elsewhere too.
    """
    if folder is not None and not set(str(folder)) & set("*?{}[]"):
        return str(folder / INSERTS)
    return TMPFS if os.access(TMPFS, os.W_OK) else None


def _clean(inserts: Path) -> None:
    """Remove what a killed process left; the engine's lock says that nobody else uses it."""
    inserts.mkdir(exist_ok=True)
    for leftover in inserts.glob("insert-*.arrow"):
        leftover.unlink(missing_ok=True)


def _refuse_set_aside(client: Any, name: str) -> None:
    """The engine sets unreadable parts aside without a word, and the rows in them are gone from every answer."""
    rows = client.query(
        "SELECT table, count(), any(path) FROM system.detached_parts WHERE reason LIKE 'broken%' GROUP BY table"
    ).result_rows
    for table, parts, path in rows:
        raise BadStore(
            f"{parts} damaged parts of the table {table} of the store {name} were set aside; replay into an empty folder, "
            f"or delete {Path(path).parent} to go on without their rows."
        )


def _insert(waiting: str | None, client: Any, table: str, batch: Any) -> None:
    """Insert one Arrow table by way of a file, the fastest way into chDB; the file is gone afterwards."""
    import pyarrow as pa  # type: ignore[import-untyped]  # ships no types

    from yolometer_sinks.stores._client import INSERT_SETTINGS

    with tempfile.NamedTemporaryFile(dir=waiting, prefix="insert-", suffix=".arrow") as file:
        with pa.ipc.new_file(file, batch.schema) as writer:
            writer.write_table(batch)
        file.flush()
        quoted = file.name.replace("\\", "\\\\").replace("'", "\\'")
        columns = ", ".join(f"`{column}`" for column in batch.column_names)
        settings = ", ".join(f"{setting} = {value}" for setting, value in INSERT_SETTINGS.items())
        client.command(
            f"INSERT INTO `{table}` ({columns}) FROM INFILE '{quoted}' COMPRESSION 'none' SETTINGS {settings} FORMAT Arrow"
        )


def _closed(key: str) -> None:
    with _guard:
        _opened[key] -= 1
        if not _opened[key]:
            del _opened[key]


SCHEME = Scheme(USAGE, open_chdb)
