"""The console and the .log file of MMEngine, MMYOLO and MMDetection 3, and of the older MMDetection 2 (mmcv).

`2026/11/30 10:39:12 - mmengine - INFO - Epoch(train)  [1][ 50/7393]  lr: 1.0e-03  eta: 1:02:03  time: 0.31  ...  loss: 2.1`
`2021-07-20 12:00:00,123 - mmdet - INFO - Epoch [1][50/7330]\\tlr: 1.978e-02, eta: ..., time: 0.555, ..., loss: 1.2`

No line says how many epochs there are, or that the training ended. The batch is per GPU.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from yolometer_agent.formats import _mm, _periodic, _text
from yolometer_agent.formats._base import Found, State

_HEAD = re.compile(
    r"(?:[0-9]{4}[-/])?[0-9]{2}[-/][0-9]{2} [0-9:]{8}(?:,[0-9]{1,6})? - (mm\w{1,30}) - (?:INFO|WARNING|ERROR) - ?(.*)", re.DOTALL
)
_NUMBERS = r"\s{0,12}(?:\[\s{0,8}([0-9]{1,9})\s?\])?\[\s{0,12}([0-9]{1,12})(?:/([0-9]{1,12}))?\s?\](.*)"
_TRAIN = re.compile(r"(?:Epoch|Iter)(?:\(train\))?" + _NUMBERS, re.DOTALL)
_VAL = re.compile(r"(Epoch|Iter)\(val\)" + _NUMBERS, re.DOTALL)
_PAIR = re.compile(r"([\w./-]{1,80}): (-?(?:nan|inf|[0-9][0-9.e+-]{0,30}))(?=[,\s]|$)")
_RESUMED = re.compile(r"[Rr]esumed? epoch:? ([0-9]{1,9}), iter:? ([0-9]{1,12})")
_SAVED = re.compile(r"Saving checkpoint at ([0-9]{1,9}) epochs")
_MAX_MEMORY = 2**24


@dataclass(frozen=True)
class MmengineConsole:
    """The environment that is printed first, or an epoch that goes back, begins a session."""

    role: Literal["console"] = "console"
    whole_document: bool = False

    def recognise(self, head: str) -> int:
        """By the head of the log lines."""
        return 95 if any(_HEAD.match(_text.plain(line.encode())) for line in head[:65536].splitlines()) else 0

    def start(self) -> State:
        """Where the training is, what of the settings was read, and in which printed block (env, config) the log is."""
        return {**_periodic.start(), "mm": _mm.start(), "block": "env"}

    def fold(self, state: State, records: Sequence[bytes]) -> list[tuple[int, Found]]:
        """Progress and evaluations of log lines, settings of the blocks between them."""
        out: list[tuple[int, Found]] = []
        for index, record in enumerate(records):
            text = _text.plain(record)
            head = _HEAD.match(text)
            found = self._message(state, head[1], head[2].strip()) if head else self._between(state, text)
            out += [(index, fact) for fact in found]
        return _periodic.thin(out)

    def peek(self, state: State, record: bytes) -> list[Found]:
        """A line without its end may be torn."""
        return []

    def _between(self, state: State, text: str) -> list[Found]:
        mm = state["mm"]
        if text.strip() in {"System environment:", "Environment info:"}:
            return self._environment(state)
        if state["block"] == "config":
            return self._learn(state, _mm.config(mm, text))
        return [*self._learn(state, _mm.environment(mm, text)), *_periodic.failure(state, text)] if text else []

    def _environment(self, state: State) -> list[Found]:
        if state["active"]:
            _periodic.begin(state)
            state["mm"] = _mm.start()
        state["block"] = "env"
        return []

    def _message(self, state: State, logger: str, text: str) -> list[Found]:
        mm = state["mm"]
        _mm.family(mm, logger)
        state["block"] = "config" if text.startswith("Config:") else "env"
        if text.startswith("Environment info:"):
            return self._environment(state)
        if match := _VAL.match(text):
            return self._validated(state, match)
        if match := _TRAIN.match(text):
            return self._trained(state, match)
        if match := _RESUMED.search(text):
            state["base"] = int(match[2])
            return self._learn(state, {"resumed": True, "resume_epoch": int(match[1]) + 1 if int(match[1]) else None})
        if (match := _SAVED.search(text)) and int(match[1]) == state["epoch"]:
            return _periodic.close(state)
        if text.startswith("Checkpoints will be saved to "):
            folder = text.removeprefix("Checkpoints will be saved to ").split(" by ")[0].rstrip(" .")
            return self._learn(state, {"save_dir": folder, **_mm.named(folder.rpartition("/")[2])})
        if text.startswith("Exp name: "):
            return self._learn(state, _mm.named(text.removeprefix("Exp name: ").strip(), certain=True))
        return []

    def _learn(self, state: State, fields: dict[str, Any]) -> list[Found]:
        return _periodic.learn(state, state["mm"]["framework"], fields)

    def _trained(self, state: State, match: re.Match[str]) -> list[Found]:
        epoch, done, total = (int(part) if part else None for part in match.group(1, 2, 3))
        pairs = [(name.rpartition("/")[2], value) for name, value in _PAIR.findall(match[4])]
        values = {name: number for name, value in pairs if (number := _text.number(value)) is not None}
        if not done or not total or done > total or epoch == 0:
            return []
        mm, memory = state["mm"], values.get("memory", 0)
        more: dict[str, Any] = {"losses": _mm.losses(values)}
        if 0 < memory < _MAX_MEMORY:
            more["gpu_memory_bytes"] = int(memory) * 2**20
        seconds = values.get("time")
        unit = _text.unit(dict(pairs)["time"]) if seconds is not None else 1e-3
        seconds = seconds if seconds is not None and 0 <= seconds < 1e6 else None
        known = {"framework_version": mm["version"].get(mm["framework"])}
        if mm["framework"] != "mmengine":
            known["task"] = "segment" if mm["masks"] else "detect"
        if epoch is None:
            known["iterations_planned"] = total
        found = _periodic.step(state, _periodic.Line(epoch, done, total, seconds, unit, more=more), mm["framework"])
        return [*self._learn(state, known), *found]

    def _validated(self, state: State, match: re.Match[str]) -> list[Found]:
        """A line with `eta` is on its way; the one without has the metrics."""
        epoch, count, total = (int(part) if part else None for part in match.group(2, 3, 4))
        over = _periodic.close(state) if epoch is not None and epoch == state["epoch"] else []
        if " eta: " in f" {match[5]}" or not state["active"]:
            return over
        pairs = [(name.rpartition("/")[2], _text.number(value)) for name, value in _PAIR.findall(match[5])]
        values = [(name, value) for name, value in pairs if value is not None]
        seconds = dict(values).get("time", -1.0) * (total or count or 0)
        val_s = round(seconds, 9) if 0 <= seconds < 1e9 else None
        return [*over, _periodic.evaluation(state, epoch, val_s=val_s, **_mm.metrics(values))]


FORMAT = MmengineConsole()
