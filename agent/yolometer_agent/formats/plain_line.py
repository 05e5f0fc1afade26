"""One line per epoch of `key: value` pairs, as articles and small training scripts print it.

`Epoch 49/99 GPU_mem: 7.23G loss: 1.245 box_loss: 0.789 cls_loss: 0.321 dfl_loss: 0.135 ips: 142.5`

Such a line says neither images nor sizes, so it counts epochs and no tokens. Whether epochs count from 0 is decided
at the first line of a session: 0 says yes, 1 says no. A log that begins later is decided by its total: 99 is the
last of 100 epochs from 0, 100 (any multiple of 5) a number of epochs; else from 0.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from yolometer_agent.formats import _periodic, _text
from yolometer_agent.formats._base import Found, State
from yolometer_core.events import Evaluation, Progress

_STAMP = r"(?:\[?[0-9]{2,4}[-/][0-9]{2}[-/0-9]{0,3}[ T][0-9:.,]{5,15}Z?\]?[\s:|-]{1,4}(?:[A-Z]{4,8}[\s:|-]{1,4})?)?"
_LINE = re.compile(_STAMP + r"\s{0,20}Epoch:?\s{0,8}[\[(]?\s{0,8}([0-9]{1,7})\s?/\s?([0-9]{1,7})[\])]?[\s,;:|-]{1,8}(\S.*)")
_PAIR = re.compile(r"([A-Za-z][\w./()@-]{0,40})\s?[:=]\s{0,8}([^\s,;|]{1,30})")
_RATE = frozenset({"ips", "images/s", "img/s", "imgs/s", "images_per_s", "images_per_sec"})
_MAP50 = frozenset({"map50", "map_50", "map_0.5", "map@0.5", "map@.5", "map50(b)", "bbox_map_50"})
_MAP50_95 = frozenset({"map50-95", "map50_95", "map_50_95", "map50-95(b)", "bbox_map"})
_MEMORY = frozenset({"gpu_mem", "mem", "memory", "gpu_memory"})


@dataclass(frozen=True)
class PlainLine:
    """Each line is a whole epoch: its one and only step. Losses in the order of the line, `loss` first."""

    role: Literal["console"] = "console"
    whole_document: bool = False

    def recognise(self, head: str) -> int:
        """Never very sure: a format that knows its trainer goes first."""
        return 60 if any(_read(_text.plain(line.encode())) for line in head[:65536].splitlines()) else 0

    def start(self) -> State:
        """`base` is what makes the number of an epoch count from 1 (1 or 0), null before the first line."""
        return {"session": 0, "base": None, "last": None, "total": None}

    def fold(self, state: State, records: Sequence[bytes]) -> list[tuple[int, Found]]:
        """A complete Progress for each epoch, a Setting at the first of a session, an error for a traceback."""
        out: list[tuple[int, Found]] = []
        for index, record in enumerate(records):
            text = _text.plain(record)
            line = _read(text)
            found = self._epoch(state, *line) if line else []
            if not line and text:
                found = _periodic.failure({"epoch": state["last"], "session": state["session"]}, text)
            out += [(index, fact) for fact in found]
        return out

    def peek(self, state: State, record: bytes) -> list[Found]:
        """A line without its end may be torn."""
        return []

    def _epoch(self, state: State, number: int, of: int, fields: dict[str, Any]) -> list[Found]:
        base = state["base"]
        begins = base is None or number + base <= state["last"]
        if begins:
            state["session"] += base is not None
            base = state["base"] = _base(number, of)
        epoch, total = number + base, of + base
        out = []
        if begins or total != state["total"]:
            asked = {"epochs_planned": total, "started": True, "end_line": False}
            out.append(_periodic.learn({"said": {}, "session": state["session"]}, "plain", asked)[0])
        state.update(last=epoch, total=total)
        done = {"epoch": epoch, "epochs_total": total, "iterations_done": 1, "iterations_total": 1}
        scores: dict[str, Any] = {name: fields.pop(name) for name in ("map50", "map50_95") if name in fields}
        out.append(Found(Progress, {**done, **fields}, state["session"]))
        return [*out, Found(Evaluation, {"epoch": epoch, **scores}, state["session"])] if scores else out


def _base(number: int, of: int) -> int:
    if number <= 1:
        return 1 - number
    return 0 if number == of + 1 or (of % 5 == 0 and (of + 1) % 5) else 1


def _read(text: str) -> tuple[int, int, dict[str, Any]] | None:
    match = _LINE.match(text) if "Epoch" in text else None
    if match is None or int(match[1]) > int(match[2]):
        return None
    pairs = [(key.lower(), value.rstrip(")]")) for key, value in _PAIR.findall(match[3][:4000])]
    losses = [(key, _text.number(value)) for key, value in pairs if "loss" in key and not key.startswith("val")]
    losses.sort(key=lambda pair: pair[0] not in {"loss", "total_loss", "train_loss"})
    if len(pairs) < 2 or not losses or any(key in {"iter", "step", "batch"} for key, _ in pairs):
        return None
    fields: dict[str, Any] = {"losses": tuple(value for _, value in losses)}
    for key, value in pairs:
        if key in _RATE and (rate := _text.number(value)) is not None and 0 < rate < 1e9:
            fields["images_per_s"] = rate
        score = key.removeprefix("metrics/")
        if score in _MAP50 | _MAP50_95 and (metric := _periodic.ratio(_text.number(value))) is not None:
            fields["map50" if score in _MAP50 else "map50_95"] = metric
        if key in _MEMORY and (memory := _text.size_bytes(value, 1000)) and not value[-1].isdigit():
            fields["gpu_memory_bytes"] = memory
    return int(match[1]), int(match[2]), fields


FORMAT = PlainLine()
