"""The ROI queries: one SQL file a question, found at start. The header of a file is its documentation, and is checked.

A file starts with

    -- Question: what a person asks
    -- One row is: what one row means
    -- Columns:
    --   name (unit): meaning
    -- Parameters:
    --   name Type = default: meaning

Values reach the engine as bound parameters (`{name:Type}` in the SQL), never as text of the statement.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from yolometer_core.errors import BadUsage

FOLDER = Path(__file__).parent / "roi"
AUDIT = Path(__file__).parent / "audit"
"""The questions of `yolometer audit`: in the same form, each with a column `missing`."""
_COLUMN = re.compile(r"  (\w+) \(([^)]+)\): (.+)")
_PARAMETER = re.compile(r"  (\w+) ([A-Z]\w*) = (\S*|'[^']*'): (.+)")
_PLACEHOLDER = re.compile(r"\{(\w+):\s*(\w+)\}")
_INTEGER = re.compile(r"(U?)Int(8|16|32|64)")


@dataclass(frozen=True)
class Column:
    """A column of the answer: its unit (or `text`, `count`, ...) and what it means."""

    name: str
    unit: str
    meaning: str


@dataclass(frozen=True)
class Parameter:
    """A value the query takes, as text: its ClickHouse type, what holds when it is not given, and what it means."""

    name: str
    type: str
    default: str
    meaning: str


@dataclass(frozen=True)
class Query:
    """One question: its header, taken apart, and its SQL without the header."""

    name: str
    question: str
    row: str
    columns: tuple[Column, ...]
    parameters: tuple[Parameter, ...]
    sql: str

    def bind(self, params: Mapping[str, str]) -> tuple[str, dict[str, str]]:
        """Return the SQL and every bound parameter, with defaults filled in: what `Store.query` takes.

        An unknown parameter (with the nearest right name) or a value that does not fit its type is BadUsage.
        """
        known = {parameter.name: parameter for parameter in self.parameters}
        for name in params:
            if name not in known:
                raise BadUsage(f"The query {self.name} has no parameter {name}; {_nearest(name, known)}.")
        bound = {name: params.get(name, parameter.default) for name, parameter in known.items()}
        for name, parameter in known.items():
            if not _fits(bound[name], parameter.type):
                raise BadUsage(f"The parameter {name} of the query {self.name} must be a {_words(parameter.type)}; correct it.")
        return self.sql, bound


def catalog(folder: Path = FOLDER) -> dict[str, Query]:
    """Return the queries by name. A file whose header cannot be read is a ValueError: it is a bug, found by the tests."""
    return {path.stem: parse(path.stem, path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.sql"))}


def find(name: str, queries: Mapping[str, Query] | None = None) -> Query:
    """Return the query of that name. An unknown one is BadUsage, with the nearest right name."""
    known = catalog() if queries is None else queries
    if name not in known:
        raise BadUsage(f"There is no query {name}; {_nearest(name, known)}.")
    return known[name]


def parse(name: str, text: str) -> Query:
    """Take a query file apart: the comment lines at its start are the header, the rest is the SQL."""
    lines = text.splitlines()
    header = []
    while lines and lines[0].startswith("--"):
        header.append(lines.pop(0)[2:].removeprefix(" ").rstrip())
    question, row, section = "", "", ""
    columns: list[Column] = []
    parameters: list[Parameter] = []
    for line in header:
        if line.startswith("Question: "):
            question = line.removeprefix("Question: ")
        elif line.startswith("One row is: "):
            row = line.removeprefix("One row is: ")
        elif line in ("Columns:", "Parameters:"):
            section = line
        elif section == "Columns:" and (match := _COLUMN.fullmatch(line)):
            columns.append(Column(match[1], match[2], match[3]))
        elif section == "Parameters:" and (match := _PARAMETER.fullmatch(line)):
            parameters.append(Parameter(match[1], match[2], match[3].strip("'"), match[4]))
        else:
            raise ValueError(f"the header of the query {name} has a line that is not understood: {line!r}")
    sql = "\n".join(lines).strip().rstrip(";")
    if not (question and row and columns and sql):
        raise ValueError(f"the query {name} lacks its question, its row, its columns or its SQL")
    if set(_PLACEHOLDER.findall(sql)) != {(parameter.name, parameter.type) for parameter in parameters}:
        raise ValueError(f"the parameters of the query {name} are not those that its SQL uses")
    return Query(name, question, row, tuple(columns), tuple(parameters), sql)


def _nearest(name: str, known: Mapping[str, object]) -> str:
    if not known:
        return "it takes none"
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    return f"did you mean {near[0]}?" if near else f"known are {', '.join(known)}"


def _fits(value: str, kind: str) -> bool:
    integer = _INTEGER.fullmatch(kind)
    if "\0" in value:
        return False
    if integer is not None:
        if not re.fullmatch(r"-?[0-9]{1,20}", value):
            return False
        bits = int(integer[2])
        low, high = (0, 2**bits - 1) if integer[1] else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
        return bool(low <= int(value) <= high)
    if kind == "Float64":
        return re.fullmatch(r"-?[0-9]+(\.[0-9]+)?([eE][-+]?[0-9]{1,3})?", value) is not None
    if kind == "Date":
        try:
            return value == date.fromisoformat(value).isoformat()
        except ValueError:
            return False
    if kind == "DateTime":
        return re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", value) is not None
    return True


def _words(kind: str) -> str:
    if kind == "Date":
        return "date such as 2026-03-01"
    if kind == "DateTime":
        return "time in UTC such as 2026-03-01 12:00:00"
    if kind == "Float64":
        return "number"
    return "whole number in its range" if _INTEGER.fullmatch(kind) else kind
