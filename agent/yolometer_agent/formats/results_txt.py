"""results.txt of YOLOv7 and YOLOv5 v1 to v5: no header, 15 columns parted by blanks, epochs counted from 0.

`epoch/last mem box obj cls total labels size P R mAP50 mAP50-95 box obj cls` (the last three of the validation).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from yolometer_agent.formats import _text
from yolometer_agent.formats._base import Found, State
from yolometer_core.events import ResultRow

_COLUMNS = 15
_WIDTH = 10
_EPOCH = re.compile(r"([0-9]{1,7})/([0-9]{1,7})")
_MEMORY = re.compile(r"[0-9][0-9.e+-]*[KMGT]?")


@dataclass(frozen=True)
class ResultsTxt:
    """One row, one epoch. A row cut short, or glued to another, says nothing."""

    role: Literal["table"] = "table"
    whole_document: bool = False

    def recognise(self, head: str) -> int:
        """Certain when every complete line is such a row."""
        lines = [line for line in head[:65536].splitlines() if line.strip()]
        if not lines:
            return 0
        complete = lines if head.endswith(("\n", "\r")) or len(lines) == 1 else lines[:-1]
        return 95 if all(_row(line) for line in complete) else 0

    def start(self) -> State:
        """Rows need no memory: the operator finds restarts by the epoch numbers."""
        return {}

    def fold(self, state: State, records: Sequence[bytes]) -> list[tuple[int, Found]]:
        """A ResultRow for each complete row."""
        rows = ((index, _row(_text.plain(record))) for index, record in enumerate(records))
        return [(index, Found(ResultRow, row)) for index, row in rows if row]

    def peek(self, state: State, record: bytes) -> list[Found]:
        """A row without its line end may be torn inside its last number."""
        return []


def _row(line: str) -> dict[str, Any] | None:
    cells = line.split()
    if len(cells) != _COLUMNS and len(line.rstrip()) == _COLUMNS * _WIDTH:
        cells = [line[at : at + _WIDTH].strip() for at in range(0, _COLUMNS * _WIDTH, _WIDTH)]
    if len(cells) != _COLUMNS:
        return None
    epoch = _EPOCH.fullmatch(cells[0])
    values = [_text.number(cell) for cell in cells[2:]]
    if epoch is None or int(epoch[1]) > int(epoch[2]) or not _MEMORY.fullmatch(cells[1]) or None in values:
        return None
    width = values[5] or 0.0
    return {
        "epoch": int(epoch[1]) + 1,
        "epochs_total": int(epoch[2]) + 1,
        "losses": tuple(values[:3]),
        "gpu_memory_bytes": _text.size_bytes(cells[1], 1000),
        "width_px": int(width) if 0 < width < 1e6 else None,
        "map50": _ratio(values[8]),
        "map50_95": _ratio(values[9]),
    }


def _ratio(value: float | None) -> float | None:
    return value if value is not None and 0 <= value <= 1 else None


FORMAT = ResultsTxt()
