"""Migrations: in order, once each, never edited, and killed half-way they are simply run again."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from yolometer_core.errors import BadStore, StoreUnavailable
from yolometer_sinks.stores._base import Store, Table
from yolometer_sql import migrate

FIRST = "-- one\nCREATE TABLE IF NOT EXISTS extra_a (x Int64) ENGINE = MergeTree ORDER BY x;\n"
SECOND = FIRST.replace("extra_a", "extra_b") + "ALTER TABLE extra_b ADD COLUMN IF NOT EXISTS y Int64;\n"


class Breaks:
    """A store whose n-th command fails, as if the process was killed there."""

    def __init__(self, store: Store, at: int) -> None:
        self.store, self.left = store, at

    def command(self, sql: str, params: Mapping[str, Any] | None = None) -> None:
        if self.left == 0:
            raise StoreUnavailable("killed here")
        self.left -= 1
        self.store.command(sql, params)

    def query(self, sql: str, params: Mapping[str, Any] | None = None) -> Table:
        return self.store.query(sql, params)


@pytest.fixture
def bare(empty_store: Store) -> Store:
    """A store in which no migration of the tests' own folder was applied."""
    empty_store.migrate()
    empty_store.command("TRUNCATE TABLE schema_migration")
    return empty_store


def folder_of(path: Path, **files: str) -> Path:
    for name, text in files.items():
        (path / f"{name.lstrip('_')}.sql").write_text(text, encoding="utf-8")
    return path


def states(store: Store, folder: Path) -> list[tuple[int, str]]:
    return [(standing.number, standing.state) for standing in migrate.status(store, folder)]


def test_they_are_applied_once_in_order(bare: Store, tmp_path: Path) -> None:
    folder = folder_of(tmp_path, _0001_one=FIRST)
    assert states(bare, folder) == [(1, "pending")]
    assert [migration.stem for migration in migrate.apply(bare, folder)] == ["0001_one"]
    folder_of(folder, _0002_two=SECOND)
    assert states(bare, folder) == [(1, "applied"), (2, "pending")]
    assert [migration.stem for migration in migrate.apply(bare, folder)] == ["0002_two"]
    assert migrate.apply(bare, folder) == []
    assert bare.query("SELECT count(y) FROM extra_b").rows == [(0,)]


def test_an_edited_file_is_refused(bare: Store, tmp_path: Path) -> None:
    folder = folder_of(tmp_path, _0001_one=FIRST, _0002_two=SECOND)
    migrate.apply(bare, folder)
    folder_of(folder, _0001_one=FIRST + "-- one more word\n", _0003_three="SELECT 1;\n")
    assert states(bare, folder) == [(1, "edited"), (2, "applied"), (3, "pending")]
    with pytest.raises(BadStore, match="0001_one was edited"):
        migrate.apply(bare, folder)
    folder_of(folder, _0001_one=FIRST.replace("\n", "\r\n"))
    assert [migration.number for migration in migrate.apply(bare, folder)] == [3]


def test_a_missing_file_is_refused(bare: Store, tmp_path: Path) -> None:
    folder = folder_of(tmp_path, _0001_one=FIRST, _0002_two=SECOND)
    migrate.apply(bare, folder)
    (folder / "0002_two.sql").unlink()
    assert states(bare, folder) == [(1, "applied"), (2, "missing")]
    with pytest.raises(BadStore, match="0002_two and this yolometer does not"):
        migrate.apply(bare, folder)


def test_a_pending_file_before_an_applied_one_is_refused(bare: Store, tmp_path: Path) -> None:
    folder = folder_of(tmp_path, _0001_one=FIRST, _0002_two=SECOND)
    migrate.apply(bare, folder)
    bare.command("ALTER TABLE schema_migration DELETE WHERE number = 1 SETTINGS mutations_sync = 1")
    with pytest.raises(BadStore, match="0001_one comes before"):
        migrate.apply(bare, folder)


@pytest.mark.parametrize("files", [{"one": FIRST}, {"_0002_two": SECOND}, {"_0001_one": FIRST, "_0001_two": SECOND},
                                   {"_0001_one": FIRST, "_0003_three": SECOND}, {"_01_one": FIRST}, {}])  # fmt: skip
def test_a_folder_that_is_not_in_order_is_refused(tmp_path: Path, files: dict[str, str]) -> None:
    with pytest.raises(BadStore):
        migrate.plan(folder_of(tmp_path, **files))


def test_killed_at_any_statement_it_is_run_again(chdb_store: Store) -> None:
    """Our own migrations: fail at every command once, then go on."""
    commands = sum(len(migration.statements) for migration in migrate.plan()) + 2
    for at in range(commands):
        chdb_store.command("TRUNCATE TABLE schema_migration")
        with pytest.raises(StoreUnavailable):
            migrate.apply(Breaks(chdb_store, at))
        if at % 7 == 0:
            migrate.apply(chdb_store)
            assert {standing.state for standing in migrate.status(chdb_store)} == {"applied"}
    migrate.apply(chdb_store)
    assert migrate.apply(chdb_store) == []


def test_statements_are_cut_only_where_they_end() -> None:
    text = """-- a comment; with a semicolon;
SELECT ';
', "a;
b", `c;
d`, 'it''s; \\'
;', /* e;
*/ 1;\t
-- only a comment;
SELECT 2; SELECT 3
;
SELECT 4"""
    statements = migrate.split(text)
    assert len(statements) == 3
    assert statements[0].startswith("-- a comment") and statements[0].endswith("*/ 1")
    assert statements[1].endswith("SELECT 2; SELECT 3") and statements[2] == "SELECT 4"
    assert migrate.split("-- nothing;\n;\n ;\n") == ()


def test_our_own_statements_can_run_again_by_their_words() -> None:
    for migration in migrate.plan():
        for statement in migration.statements:
            words = " ".join(line for line in statement.splitlines() if not line.startswith("--"))
            assert any(mark in words for mark in ("IF NOT EXISTS", "OR REPLACE", "IF EXISTS")), words[:80]
