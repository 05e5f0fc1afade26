"""Migrations: numbered SQL files, applied in order, once each, and never changed afterwards.

A file is `NNNN_what.sql`, numbers from 0001 without gaps. The table `schema_migration` of the store remembers the number
and a checksum (blake2b) of every applied file. There are no transactions around DDL, so every statement must be able to
run again: a migration that was killed half-way is simply run again from its first statement.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

from yolometer_core.errors import BadStore

FOLDER = Path(__file__).parent / "migrations"
STATE_TABLE = """
CREATE TABLE IF NOT EXISTS schema_migration
(
    number UInt32,
    name String,
    checksum String,
    applied_ts DateTime64(3, 'UTC') DEFAULT now64(3, 'UTC')
)
ENGINE = ReplacingMergeTree(applied_ts)
ORDER BY number
""".strip()
_NAME = re.compile(r"(\d{4})_([a-z0-9_]+)\.sql")
# What a statement may hold that hides a semicolon: a comment, a string, a quoted name.
_TOKEN = re.compile(
    r"--[^\n]*|/\*.*?\*/|'(?:[^'\\]|\\.|'')*'|`(?:[^`\\]|\\.)*`|\"(?:[^\"\\]|\\.)*\"|;[ \t]*(?=\r?\n|\Z)|.",
    re.DOTALL,
)


class Rows(Protocol):
    """What a query answers; only its rows matter here."""

    @property
    def rows(self) -> Sequence[Sequence[Any]]: ...


class Runner(Protocol):
    """The two functions of a store that a migration needs. Both raise Unavailable or Bad, nothing else."""

    def command(self, sql: str, params: Mapping[str, Any] | None = None) -> None: ...

    def query(self, sql: str, params: Mapping[str, Any] | None = None) -> Rows: ...


@dataclass(frozen=True)
class Migration:
    """One file: its number, its name (without number and suffix), its checksum and its statements in order."""

    number: int
    name: str
    checksum: str
    statements: tuple[str, ...]

    @property
    def stem(self) -> str:
        """The file name without suffix, as a person knows it: `0001_first_tables`."""
        return f"{self.number:04d}_{self.name}"


@dataclass(frozen=True)
class Standing:
    """Where one migration stands: `pending`, `applied`, `edited` since it was applied, or `missing` from the folder."""

    number: int
    name: str
    state: Literal["pending", "applied", "edited", "missing"]


def split(text: str) -> tuple[str, ...]:
    """Return the statements of `text`: cut at a `;` that ends its line and lies outside quotes and comments.

    A statement that is nothing but comments and blanks is left out; comments inside a statement stay.
    """
    statements: list[str] = []
    current: list[str] = []
    says = False
    for match in _TOKEN.finditer(text):
        token = match.group()
        if token[0] == ";" and (len(token) > 1 or match.end() == len(text) or text[match.end()] in "\r\n"):
            if says:
                statements.append("".join(current).strip())
            current, says = [], False
            continue
        current.append(token)
        says = says or not (token.isspace() or token.startswith(("--", "/*")))
    if says:
        statements.append("".join(current).strip())
    return tuple(statements)


def checksum(text: str) -> str:
    """32 hex digits of the text; line ends count as `\\n`, so that a checkout on another system is the same file."""
    return hashlib.blake2b(text.replace("\r\n", "\n").encode(), digest_size=16).hexdigest()


def plan(folder: Path = FOLDER) -> list[Migration]:
    """Return the migrations of `folder` by number. A wrong name, a gap, a number used twice or no file at all is BadStore."""
    found: list[Migration] = []
    for path in sorted(folder.glob("*.sql")):
        match = _NAME.fullmatch(path.name)
        if match is None:
            raise BadStore(f"The migration {path.name} is not named NNNN_what.sql; rename it.")
        text = path.read_text(encoding="utf-8")
        found.append(Migration(int(match[1]), match[2], checksum(text), split(text.replace("\r\n", "\n"))))
    if not found:
        raise BadStore("There are no migrations in this installation; install yolometer again.")
    for expected, migration in enumerate(found, start=1):
        if migration.number != expected:
            raise BadStore(f"The migration {migration.stem} should have the number {expected:04d}; close the gap or the double.")
    return found


def status(store: Runner, folder: Path = FOLDER) -> list[Standing]:
    """Return where every migration stands, by number; changes nothing but the (empty) state table."""
    remembered = _remembered(store)
    standings = []
    for migration in plan(folder):
        known = remembered.pop(migration.number, None)
        if known is None:
            standings.append(Standing(migration.number, migration.name, "pending"))
        else:
            same = known == (migration.name, migration.checksum)
            standings.append(Standing(migration.number, migration.name, "applied" if same else "edited"))
    standings.extend(Standing(number, name, "missing") for number, (name, _) in remembered.items())
    return sorted(standings, key=lambda standing: standing.number)


def apply(store: Runner, folder: Path = FOLDER) -> list[Migration]:
    """Apply what is pending, in order, and return it. Running it again applies nothing.

    Refuses before the first statement (BadStore) when an applied file was edited or is missing, or when a pending
    file lies before an applied one. For each migration:

    1. its statements run, one after the other;
    2. its number and checksum are remembered.

    Killed between the two, the next call runs all of its statements again.
    """
    migrations = {migration.number: migration for migration in plan(folder)}
    standings = status(store, folder)
    for standing in standings:
        stem = f"{standing.number:04d}_{standing.name}"
        if standing.state == "edited":
            raise BadStore(f"The migration {stem} was edited after it was applied; restore its text and add a new file instead.")
        if standing.state == "missing":
            raise BadStore(f"The store knows the migration {stem} and this yolometer does not; use a version that has it.")
    highest = max((standing.number for standing in standings if standing.state == "applied"), default=0)
    pending = [migrations[standing.number] for standing in standings if standing.state == "pending"]
    for migration in pending:
        if migration.number < highest:
            raise BadStore(f"The migration {migration.stem} comes before one that is already applied; give it the next number.")
    for migration in pending:
        for statement in migration.statements:
            store.command(statement)
        store.command(
            "INSERT INTO schema_migration (number, name, checksum) SELECT {number:UInt32}, {name:String}, {checksum:String}",
            {"number": migration.number, "name": migration.name, "checksum": migration.checksum},
        )
    return pending


def _remembered(store: Runner) -> dict[int, tuple[str, str]]:
    store.command(STATE_TABLE)
    rows = store.query("SELECT number, name, checksum FROM schema_migration FINAL ORDER BY number").rows
    return {int(number): (str(name), str(sum_)) for number, name, sum_ in rows}
