"""A real ClickHouse HTTP server for the tests, out of the chdb-core wheel, and stores on it and on chDB.

The wheel holds the whole engine; `chdb._chdb.query` runs one clickhouse-local whose listener lives as long as its
statements, so the last statement sleeps. That entry point is private: `test_server_is_real` says so when it goes.
It needs a process of its own (one call per process). One server per test process, started at first use; it dies with
its parent and its folder is in memory where the system has such a place (else fsync takes most of the time), removed at the end.

chDB itself opens one folder per process, so the tests here use `chdb://memory`, opened and closed again by each test,
and a subprocess where another folder matters.
"""

from __future__ import annotations

import atexit
import itertools
import os
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from urllib.parse import quote

import pytest

from yolometer_sinks.open_store import open_store
from yolometer_sinks.stores._base import Store

PASSWORD = "s3cret/p@ss:word"  # with the characters that break a careless URL
MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else tempfile.gettempdir()
_numbers = itertools.count()

_CHILD = """
import ctypes, os, sys
ctypes.CDLL(None).prctl(1, 15)  # PR_SET_PDEATHSIG: die with the test process
os.chdir(sys.argv[1])           # config.xml is looked up here
from chdb import _chdb
query = ("SYSTEM START LISTEN HTTP; "
         "SELECT getServerPort('http_port') INTO OUTFILE '" + sys.argv[1] + "/port' TRUNCATE FORMAT TSV; "
         "SELECT count() FROM system.numbers WHERE NOT ignore(sleepEachRow(1)) "
         "SETTINGS max_block_size=1, max_threads=1, function_sleep_max_microseconds_per_block=3000000")
answer = _chdb.query(query, "TSV", path=sys.argv[1] + "/data")
print("ended", answer.error_message() if answer is not None else None)
"""
_CONFIG = """<clickhouse>
 <http_port>0</http_port><listen_host>127.0.0.1</listen_host>
 <users_config>users.xml</users_config>
 <logger><level>warning</level><log>{folder}/server.log</log></logger>
 <mark_cache_size>67108864</mark_cache_size><max_server_memory_usage>3221225472</max_server_memory_usage>
</clickhouse>"""
_LOCAL = "<networks><ip>127.0.0.1</ip></networks><profile>default</profile><quota>default</quota>"
_USERS = f"""<clickhouse>
 <profiles><default></default></profiles><quotas><default></default></quotas>
 <users>
  <default><password></password>{_LOCAL}
   <grants><query>GRANT SYSTEM LISTEN ON *.*</query><query>GRANT SELECT ON system.numbers</query></grants></default>
  <app><password>{PASSWORD}</password>{_LOCAL}</app>
  <narrow><password>{PASSWORD}</password>{_LOCAL}<grants>
   <query>GRANT SELECT, INSERT, CREATE TABLE, ALTER ADD COLUMN, CREATE VIEW, DROP VIEW ON narrow.*</query>
   <query>GRANT TABLE ENGINE ON ReplacingMergeTree</query></grants></narrow>
  <reader><password>{PASSWORD}</password>{_LOCAL}<grants><query>GRANT SELECT ON *.*</query></grants></reader>
 </users></clickhouse>"""


@dataclass
class Server:
    """A running server: where it listens, and the process to stop."""

    folder: Path
    port: int
    process: subprocess.Popen[bytes]

    def url(self, database: str = "yolometer", user: str = "app", password: str = PASSWORD) -> str:
        return f"clickhouse://{user}:{quote(password, safe='')}@127.0.0.1:{self.port}/{database}"

    def stop(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


def start(folder: Path | None = None) -> Server:
    """Start a server and wait until it answers; the port file proves that it is ours that does.

    With the `folder` of one that was killed it is that one again, with its data and another port.
    """
    folder = folder or Path(tempfile.mkdtemp(prefix="yolometer-clickhouse-", dir=MEMORY))
    (folder / "port").unlink(missing_ok=True)
    (folder / "config.xml").write_text(_CONFIG.format(folder=folder))
    (folder / "users.xml").write_text(_USERS)
    with (folder / "output").open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-c", _CHILD, str(folder)],
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=folder,
            start_new_session=True,
        )
    port_file = folder / "port"
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise RuntimeError((folder / "output").read_text())
        try:
            port = int(port_file.read_text())
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/ping", timeout=1) as answer:
                if answer.read() == b"Ok.\n":
                    return Server(folder, port, process)
        except (OSError, ValueError):
            time.sleep(0.02)
    process.kill()
    raise TimeoutError("the ClickHouse server did not answer within 30 s")


@lru_cache(maxsize=1)
def running() -> Server:
    """The server of this test process."""
    server = start()
    atexit.register(server.stop)
    return server


KINDS = ["chdb", "clickhouse"]


def fresh(kind: str) -> Store:
    """A store on a database of its own, without tables."""
    database = f"test_{next(_numbers)}"
    if kind == "clickhouse":
        return open_store(running().url(database))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", MEMORY)  # where the engine keeps a store "in memory"
        return open_store(f"chdb://memory?database={database}")


@pytest.fixture(params=KINDS)
def empty_store(request: pytest.FixtureRequest) -> Iterator[Store]:
    """A store without tables, on chDB and on a server."""
    store = fresh(request.param)
    yield store
    store.close()


@pytest.fixture(scope="module", params=KINDS)
def kept_store(request: pytest.FixtureRequest) -> Iterator[Store]:
    """A store with its tables, for the tests of one file; take `store`, which is this one without rows."""
    store = fresh(request.param)
    store.migrate()
    yield store
    store.close()


@pytest.fixture
def store(kept_store: Store) -> Store:
    """A store with its tables and no rows, on chDB and on a server."""
    return emptied(kept_store)


@pytest.fixture(scope="module")
def kept_chdb_store() -> Iterator[Store]:
    """As kept_store, on chDB only."""
    store = fresh("chdb")
    store.migrate()
    yield store
    store.close()


@pytest.fixture
def chdb_store(kept_chdb_store: Store) -> Store:
    """A store with its tables and no rows on chDB, for what does not depend on the kind of store."""
    return emptied(kept_chdb_store)


def emptied(store: Store) -> Store:
    """The store, with the rows of all tables taken out."""
    tables = "SELECT name FROM system.tables WHERE database = currentDatabase() AND total_rows > 0 AND name != 'schema_migration'"
    for (name,) in store.query(tables).rows:
        store.command(f"TRUNCATE TABLE `{name}`")
    return store
