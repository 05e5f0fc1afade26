"""results.csv of Ultralytics (8.0 and newer), YOLOv5 v6 and newer, YOLOv9: a header, then a row per epoch.

Columns are found by name, so padding, order and columns of other tasks do not matter. Whether epochs count
from 0 or 1 follows from the first row; where a file starts later, from the framework that its names betray.
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from yolometer_agent.formats._base import Found, State
from yolometer_agent.formats._text import number, plain
from yolometer_core.events import ResultRow

_MAP50 = ("metrics/mAP50(B)", "metrics/mAP_0.5", "metrics/mAP50")
_MAP50_95 = ("metrics/mAP50-95(B)", "metrics/mAP_0.5:0.95", "metrics/mAP50-95")
_HEADER = re.compile(r"^\W*epoch\s*,")


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
        names: list[str] | None = state["names"]
        cells = _cells(text)
        if not names or len(cells) != len(names):
            return None
        row = {name: number(cell) for name, cell in zip(names, cells, strict=True)}
        epoch = row.get("epoch")
        if epoch is None or math.isnan(epoch) or epoch < 0 or epoch != int(epoch) or any(_broken(c) for c in cells):
            return None
        if state["base"] is None:
            state["base"] = int(epoch) if epoch in (0, 1) else (0 if "metrics/mAP_0.5" in names else 1)
        if state["base"] == 1 and epoch == 0:
            state["base"] = 0
        train = [row[name] for name in names if name.startswith("train/")]
        val = [row[name] for name in names if name.startswith("val/")]
        fields: dict[str, Any] = {"epoch": int(epoch) + 1 - state["base"], "losses": tuple(train), "time_s": row.get("time")}
        # a row that was not validated carries zeros; a real validation has a loss
        evaluated = not val or any(value != 0 for value in val)
        if evaluated:
            fields |= {"map50": _first(row, _MAP50), "map50_95": _first(row, _MAP50_95), "top1": row.get("metrics/accuracy_top1")}
        return Found(ResultRow, fields)


def _broken(cell: str) -> bool:
    return bool(cell) and number(cell) is None


def _first(row: dict[str, float | None], names: Sequence[str]) -> float | None:
    return next((row[name] for name in names if name in row), None)


FORMAT = ResultsCsv()
