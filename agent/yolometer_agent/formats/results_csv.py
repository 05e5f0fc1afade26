"""results.csv of Ultralytics (8.0 and newer), YOLOv5 v6 and newer, YOLOv9: a header, then a row per epoch.

Columns are found by name, so padding, order and columns of other tasks do not matter. Whether epochs count
from 0 or 1 follows from the first row; where a file starts later, from the framework that its names betray.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, NamedTuple

from yolometer_agent.formats._base import Found, State
from yolometer_agent.formats._text import number, plain
from yolometer_core.events import ResultRow

_MAP50 = ("metrics/mAP50(B)", "metrics/mAP_0.5", "metrics/mAP50")
_MAP50_95 = ("metrics/mAP50-95(B)", "metrics/mAP_0.5:0.95", "metrics/mAP50-95")
_HEADER = re.compile(r"^\W*epoch\s*,")
_LONG_EXPONENT = re.compile(r"e[-+]?[0-9]{5}")


class _Columns(NamedTuple):
    """Where the columns that are used stand; -1 where a table has none."""

    width: int
    epoch: int
    time: int
    train: tuple[int, ...]
    val: tuple[int, ...]
    map50: int
    map50_95: int
    top1: int
    used: frozenset[int]
    from_zero: bool


@lru_cache(maxsize=64)
def _columns(names: tuple[str, ...]) -> _Columns:
    at = {name: index for index, name in enumerate(names)}

    def all_of(kind: str) -> tuple[int, ...]:
        return tuple(at[name] for name in names if name.startswith(kind))

    def first_of(some: Sequence[str]) -> int:
        return next((at[name] for name in some if name in at), -1)

    return _Columns(
        width=len(names),
        epoch=first_of(["epoch"]),
        time=first_of(["time"]),
        train=all_of("train/"),
        val=all_of("val/"),
        map50=first_of(_MAP50),
        map50_95=first_of(_MAP50_95),
        top1=first_of(["metrics/accuracy_top1"]),
        used=frozenset(
            index for name, index in at.items() if name in ("epoch", "time") or name.startswith(("train/", "val/", "metrics/"))
        ),
        from_zero="metrics/mAP_0.5" in at,
    )


def _values(text: str) -> tuple[list[float | None], list[int]]:
    """(the numbers of a row, null where a cell is empty or none; which cells are neither empty nor a number)."""
    # what `float` takes for a number and `number` does not goes the long way
    if text.isascii() and '"' not in text and "_" not in text and "E" not in text and not _LONG_EXPONENT.search(text):
        try:
            return list(map(float, text.split(","))), []
        except ValueError:
            pass  # an empty cell, or a number as C prints it: the long way tells
    cells = _cells(text)
    values = [number(cell) for cell in cells]
    return list(values), [index for index, cell in enumerate(cells) if cell and values[index] is None]


def _cells(text: str) -> list[str]:
    try:
        return [cell.strip() for cell in next(csv.reader([text]))]
    except (csv.Error, StopIteration):
        return []


@dataclass(frozen=True)
class ResultsCsv:
    """One row per epoch; `session` is always 0, the operator finds resumes and fresh starts by the epochs."""

    role: Literal["table"] = "table"
    whole_document: bool = False

    def recognise(self, head: str) -> int:
        first = next((line for line in head.splitlines() if line.strip()), "")
        if not _HEADER.match(first):
            return 0
        names = _cells(first)
        return 95 if any(name.startswith(("train/", "metrics/", "val/")) for name in names) else 0

    def start(self) -> State:
        return {"names": None, "base": None}

    def fold(self, state: State, records: Sequence[bytes]) -> list[tuple[int, Found]]:
        said: list[tuple[int, Found]] = []
        for index, record in enumerate(records):
            text = plain(record)
            if _HEADER.match(text):
                # a header in the middle belongs to another process that started the table over
                state["names"] = _cells(text)
                continue
            found = self._row(state, text)
            if found:
                said.append((index, found))
        return said

    def peek(self, state: State, record: bytes) -> list[Found]:
        names = state["names"]
        text = plain(record)
        # the last cell may be torn; a row whose other cells are all there is whole enough, for the last one is not read
        if not names or len(_cells(text)) != len(names) or not names[-1].startswith(("lr/", "x/lr")):
            return []
        found = self._row(dict(state), text)
        return [found] if found else []

    def _row(self, state: State, text: str) -> Found | None:
        if not state["names"]:
            return None
        at = _columns(tuple(state["names"]))
        values, words = _values(text)
        if len(values) != at.width or at.epoch < 0 or at.used.intersection(words):
            return None
        epoch = values[at.epoch]
        if epoch is None or not epoch >= 0 or epoch % 1:
            return None
        if state["base"] is None:
            state["base"] = int(epoch) if epoch in (0, 1) else (0 if at.from_zero else 1)
        if state["base"] == 1 and epoch == 0:
            state["base"] = 0
        fields: dict[str, Any] = {
            "epoch": int(epoch) + 1 - state["base"],
            "losses": tuple([values[index] for index in at.train]),
            "time_s": values[at.time] if at.time >= 0 else None,
        }
        # a row that was not validated carries zeros; a real validation has a loss
        if not at.val or any([values[index] != 0 for index in at.val]):  # noqa: C419 - hot, and short
            fields["map50"] = values[at.map50] if at.map50 >= 0 else None
            fields["map50_95"] = values[at.map50_95] if at.map50_95 >= 0 else None
            fields["top1"] = values[at.top1] if at.top1 >= 0 else None
        return Found(ResultRow, fields)


FORMAT = ResultsCsv()
