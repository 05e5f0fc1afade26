"""What can be wrong with a store, and the one sentence it says then: real engines, real files, real servers."""

from __future__ import annotations

import errno
import os
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from _clickhouse_server import PASSWORD, running

from yolometer_core.errors import BadInput, BadStore, BadUsage, StoreUnavailable, YolometerError
from yolometer_sinks.open_store import open_store, schemes
from yolometer_sinks.stores import chdb
from yolometer_sinks.stores._base import Scheme, Store
from yolometer_sinks.stores._errors import Doing, translate

# A chDB store is opened in a process of its own: another folder cannot be opened in this one while a store is open.
OPEN = """
import sys
from yolometer_core.errors import YolometerError
from yolometer_sinks.open_store import open_store
try:
    store = open_store(sys.argv[1])
    store.migrate()
    print("rows", store.query("SELECT count() FROM runs").rows[0][0])
    if len(sys.argv) > 2:
        exec(sys.argv[2])
    store.close()
except YolometerError as error:
    print(type(error).__name__, error)
"""
WRITE = """
from datetime import UTC, datetime
from yolometer_core.events import Run
store.write([Run(ts=datetime(2026, 3, 1, tzinfo=UTC), node="n", source="s", seq=1, run_id="r", version=1, place="/p")])
"""


def opened(url: str, then: str = "", cwd: Path | None = None) -> str:
    """What a process says that opens the store; its stderr must hold no traceback, and warnings are errors."""
    command = [sys.executable, "-W", "error", "-c", OPEN, url, *([then] if then else [])]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=cwd, check=False)
    assert "Traceback" not in done.stderr, done.stderr
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A closed store with one run; copy it before damaging it."""
    folder = tmp_path_factory.mktemp("store") / "filled"
    assert opened(f"chdb://{folder}", WRITE) == "rows 0"
    return folder


@pytest.fixture
def copy(filled: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(filled, tmp_path / "copy", symlinks=True))


def part(folder: Path) -> Path:
    """The folder of the one part of the table `run`."""
    with_runs = [path.parent for path in folder.glob("store/*/*/all_*/columns.txt") if "best_map50_95" in path.read_text()]
    assert len(with_runs) == 1
    return with_runs[0]


def test_a_store_keeps_its_rows_and_leaves_no_insert_behind(copy: Path) -> None:
    (copy / "inserts" / "insert-left-by-a-killed-process.arrow").write_bytes(b"x")
    assert opened(f"chdb://{copy}") == "rows 1"
    assert list((copy / "inserts").iterdir()) == []


def test_another_process_has_it_open(copy: Path) -> None:
    also = f"r = subprocess.run([sys.executable, '-c', {OPEN!r}, sys.argv[1]], capture_output=True, text=True)"
    said = opened(f"chdb://{copy}", f"import os, subprocess\n{also}\nprint(os.getpid(), r.stdout)").splitlines()
    assert said[0] == "rows 1"
    pid = said[1].split()[0]
    sentence = f"The store chdb://{copy} is open in another process (pid {pid}); stop that one, or use another store."
    assert said[1] == f"{pid} StoreUnavailable {sentence}"
    assert "".join(said[2:]).strip() == ""


def test_a_config_of_the_working_directory_is_not_ours(copy: Path, tmp_path: Path) -> None:
    (tmp_path / "config.xml").write_text("<clickhouse><max_server_memory_usage>1</broken")
    assert opened(f"chdb://{copy}", "import os; print(os.getcwd())", cwd=tmp_path).splitlines() == ["rows 1", str(tmp_path)]


def test_the_engine_is_capped(copy: Path) -> None:
    names = "('max_server_memory_usage', 'mark_cache_size')"
    ask = f'print(dict(store.query("SELECT name, toInt64(value) FROM system.server_settings WHERE name IN {names}").rows))'
    said = opened(f"chdb://{copy}?memory_mib=500", ask)
    assert said.splitlines()[1] in (f"{{'max_server_memory_usage': {500 << 20}, 'mark_cache_size': {64 << 20}}}",
                                    f"{{'mark_cache_size': {64 << 20}, 'max_server_memory_usage': {500 << 20}}}")  # fmt: skip


def test_paths_of_every_kind(filled: Path, tmp_path: Path) -> None:
    for name in ("it's ünï", "back\\slash 100%", "{a,b}*[x]"):
        copied = shutil.copytree(filled, tmp_path / name, symlinks=True)
        url = "chdb://" + str(copied).replace("%", "%25")
        again = WRITE + "print(store.query('SELECT count() FROM run').rows)"
        assert opened(url, again) == "rows 1\n[(2,)]", name


def test_a_forked_process_may_not_use_it(chdb_store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """A real fork with the engine open can hang before our code runs, so only the guard is tested."""
    with monkeypatch.context() as patch:
        patch.setattr(os, "getpid", lambda: -1)
        with pytest.raises(BadUsage, match="forked"):
            chdb_store.query("SELECT 1")
    assert chdb_store.query("SELECT 1").rows == [(1,)]


@pytest.mark.parametrize("what", ["database", "table"])
def test_damaged_metadata_is_not_taken_for_a_lock(copy: Path, what: str) -> None:
    for file in [copy / "metadata" / "yolometer.sql"] if what == "database" else copy.glob("store/*/*/run.sql"):
        file.write_text("garbage")
    assert opened(f"chdb://{copy}").startswith(f"BadStore The data of the store chdb://{copy} is damaged")


@pytest.mark.parametrize("damage", ["noise", "gone"])
def test_damaged_rows_are_not_left_out_in_silence(copy: Path, damage: str) -> None:
    data = part(copy) / "data.bin"
    data.unlink() if damage == "gone" else data.write_bytes(os.urandom(data.stat().st_size + 1))
    for _ in range(2):
        said = opened(f"chdb://{copy}")
        assert said.startswith("BadStore 1 damaged parts of the table run") and "detached" in said
    shutil.rmtree(next(copy.glob("store/*/*/detached/*")).parent)
    assert opened(f"chdb://{copy}") == "rows 0"


def test_a_file_is_not_a_store(tmp_path: Path) -> None:
    file = tmp_path / "results.csv"
    file.write_text("epoch")
    with pytest.raises(BadStore, match="is a file, and a store is a folder"):
        open_store(f"chdb://{file}")
    with pytest.raises(BadStore, match=r"results\.csv is a file"):
        open_store(f"chdb://{file}/store")
    assert file.read_text() == "epoch"


def test_a_folder_with_other_things_is_not_a_store(tmp_path: Path) -> None:
    (tmp_path / "results.csv").write_text("epoch")
    with pytest.raises(BadStore, match="holds other files and no store"):
        open_store(f"chdb://{tmp_path}")
    assert [path.name for path in tmp_path.iterdir()] == ["results.csv"]


def test_a_folder_that_cannot_be_made() -> None:
    said = opened("chdb:///proc/no/store")
    assert said.startswith("StoreUnavailable The folder of the store chdb:///proc/no/store ") and "Traceback" not in said


def test_only_one_folder_in_a_process(chdb_store: Store, tmp_path: Path) -> None:
    assert chdb_store.name == "chdb://memory"
    with pytest.raises(BadUsage, match="has the chDB store :memory: open"):
        open_store(f"chdb://{tmp_path}/other")


@pytest.mark.parametrize("url", ["chdb://", "chdb:///", "chdb://folder", "chdb://folder/store", "chdb:///a%3Fb", "chdb://memory/x",
                                 "chdb://memory?database=a'b", "chdb://memory?memory_mib=0", "chdb://memory?memory=1",
                                 "clickhouse://", "clickhouse:///db", "clickhouse://h/a-b", "clickhouse://h/db?secure=maybe",
                                 "clickhouse://h/db?timeout_s=x", "clickhouse://h/db?x=1"])  # fmt: skip
def test_a_url_that_cannot_be_meant(url: str) -> None:
    with pytest.raises(BadUsage) as caught:
        open_store(url)
    assert str(caught.value).endswith(".") and "\n" not in str(caught.value)


# --- servers -----------------------------------------------------------------------------------------------------


def test_server_is_real() -> None:
    """The listener of the chdb-core wheel is a private entry point: this says so when a new version closes it."""
    store = open_store(running().url("default"))
    assert store.query("SELECT version()").rows[0][0].startswith("26.")
    assert store.query("SELECT getServerPort('http_port')").rows == [(running().port,)]
    store.close()


def said_of(url: str, kind: type[YolometerError]) -> str:
    def use() -> None:
        store = open_store(url)
        try:
            store.migrate()
        finally:
            store.close()

    with pytest.raises(kind) as caught:
        use()
    text = f"{caught.value} {caught.value!r} {caught.value.__cause__!r}"
    assert caught.value.__suppress_context__ and "\n" not in str(caught.value)
    for secret in ("hunter2", PASSWORD, "s3cret"):
        assert secret not in text
    return str(caught.value)


def test_a_server_that_is_away() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound, and nobody listens
        said = said_of(f"clickhouse://app:hunter2@127.0.0.1:{taken.getsockname()[1]}/db", StoreUnavailable)
    assert "does not answer" in said and "clickhouse://app@127.0.0.1" in said
    assert "does not answer" in said_of("clickhouse://app:hunter2@no-such-host.invalid/db", StoreUnavailable)


@pytest.fixture
def other_server() -> Iterator[int]:
    """Something that listens and is no ClickHouse."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection:
                connection.recv(65536)
                connection.sendall(b"HTTP/1.1 404 Not Found\r\nContent-Length: 7\r\nConnection: close\r\n\r\nhunter2")

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    yield listener.getsockname()[1]
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    thread.join(5)


def test_a_server_of_another_kind(other_server: int) -> None:
    assert said_of(f"clickhouse://app:hunter2@127.0.0.1:{other_server}/db", StoreUnavailable)


def test_a_wrong_password_or_user() -> None:
    wrong = "hunter2"
    for user in ("app", "nobody"):
        said = said_of(running().url(user=user, password=wrong), StoreUnavailable)
        assert "refuses this user and password" in said


def test_a_missing_grant() -> None:
    said = said_of(running().url(database="not_there", user="reader"), StoreUnavailable)
    assert "CREATE DATABASE" in said and "grant" in said


def test_a_user_with_grants_on_its_own_database_only() -> None:
    owner = open_store(running().url("narrow"))
    owner.migrate()
    owner.command("DROP TABLE schema_migration")
    store = open_store(running().url("narrow", user="narrow"))
    assert store.migrate() == ["0001_first_tables", "0002_fleet", "0003_gpus"]
    assert store.query("SELECT count() FROM runs").rows == [(0,)]
    store.close()
    owner.command("DROP DATABASE narrow")
    owner.close()


def test_a_password_with_odd_characters_works_and_is_never_shown() -> None:
    store = open_store(running().url("odd"))
    assert store.migrate() == ["0001_first_tables", "0002_fleet", "0003_gpus"]
    assert PASSWORD not in repr(store) + store.name and "s3cret" not in repr(store) + store.name
    with pytest.raises(BadStore) as caught:
        store.query(f"SELECT '{PASSWORD}' FROM nowhere")
    assert PASSWORD not in str(caught.value)
    store.command("DROP DATABASE odd")
    store.close()


def test_a_url_that_cannot_be_read_does_not_show_its_password() -> None:
    for url in ("clickhouse://app:hunter2/x@host/db", "clickhouse://app:pw@host:hunter2/db", "clickhouse://[hunter2/db"):
        with pytest.raises(BadUsage) as caught:
            open_store(url)
        assert "hunter2" not in f"{caught.value} {caught.value.__cause__!r}" and caught.value.__suppress_context__


# --- the map of foreign errors -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("error", "during", "kind", "words"), [
    (OSError(errno.ENOSPC, "No space left on device"), "write", StoreUnavailable, "full"),
    (RuntimeError("Code: 243. DB::Exception: Cannot reserve 1.00 MiB, not enough space."), "write", StoreUnavailable, "full"),
    (OSError(errno.EACCES, "Permission denied"), "write", StoreUnavailable, "permission"),
    (RuntimeError("Code: 76. DB::Exception: Cannot lock file /x/status."), "open", StoreUnavailable, "another process"),
    (RuntimeError("Code: 516. DB::Exception: app: Authentication failed"), "open", StoreUnavailable, "password"),
    (RuntimeError("Code: 497. DB::Exception: app: Not enough privileges."), "query", StoreUnavailable, "grant"),
    (RuntimeError("Code: 164. DB::Exception: readonly"), "write", StoreUnavailable, "only be read"),
    (RuntimeError("Code: 241. DB::Exception: memory limit exceeded"), "query", StoreUnavailable, "busy"),
    (RuntimeError("Code: 252. DB::Exception: Too many parts"), "write", StoreUnavailable, "busy"),
    (RuntimeError("Code: 60. DB::Exception: Unknown table"), "query", BadStore, "migrate"),
    (RuntimeError("Code: 16. DB::Exception: No such column"), "write", BadStore, "migrate"),
    (RuntimeError("Code: 40. DB::Exception: Checksum doesn't match"), "query", BadStore, "damaged"),
    (RuntimeError("Code: 349. DB::Exception: Cannot convert NULL"), "write", BadInput, "rows"),
    (RuntimeError("Code: 457. DB::Exception: Value cannot be parsed"), "query", BadUsage, "fit"),
    (RuntimeError("Code: 62. DB::Exception: Syntax error\nStack trace: 0. ?"), "query", BadStore, "refuses"),
    (TimeoutError("timed out"), "write", StoreUnavailable, "does not answer"),
    (ConnectionResetError(errno.ECONNRESET, "reset"), "write", StoreUnavailable, "does not answer"),
])  # fmt: skip
def test_each_foreign_error_is_one_sentence(error: Exception, during: Doing, kind: type[YolometerError], words: str) -> None:
    ours = translate(error, "chdb:///x", ("hunter2",), during)
    assert isinstance(ours, kind) and words in str(ours)
    assert "\n" not in str(ours) and "Stack trace" not in str(ours)


def test_every_store_is_found_by_its_scheme() -> None:
    assert set(schemes()) == {"chdb", "clickhouse"}
    assert all(isinstance(scheme, Scheme) and f"{name}://" in scheme.usage for name, scheme in schemes().items())


def test_finding_the_stores_loads_no_engine() -> None:
    loaded = (
        "import sys; from yolometer_sinks.open_store import schemes; schemes(); "
        "print({'chdb', 'pyarrow', 'clickhouse_connect'} & set(sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", loaded], capture_output=True, text=True, check=True).stdout.strip() == "set()"
    assert chdb.SCHEME.usage.startswith("chdb://")
