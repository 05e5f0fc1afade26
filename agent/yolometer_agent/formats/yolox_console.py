"""The console and train_log.txt of YOLOX (loguru): a line every `print_interval` iterations, epochs from 1.

`2021-07-20 12:00:00 | INFO | yolox.core.trainer:261 - epoch: 1/300, iter: 10/1000, gpu mem: 4000Mb, ..., size: 640`

The size changes every 10 iterations and holds for the iterations a line is about; `-b` is the batch over all GPUs.
"Training of experiment is done" is printed after a crash as well, so it counts only in the last epoch.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from yolometer_agent.formats import _periodic, _text
from yolometer_agent.formats._base import Found, State
from yolometer_core.events import Incident

_HEAD = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9:.]{8,15}\s*\|\s*[A-Z]{4,8}\s*\|\s*[\w.]{0,80}:(?:[\w<>]{1,60}:)?[0-9]{1,6} - (.*)",
    re.DOTALL,
)
_TRAIN = re.compile(r"epoch: ([0-9]{1,9})/([0-9]{1,9}), iter: ([0-9]{1,12})/([0-9]{1,12}), (.*)")
_PAIR = re.compile(r"([\w ]{1,40}): ([^,]{1,40})(?:,\s|$)")
_BEGINS = re.compile(r"---> ?start train epoch ?([0-9]{1,9})")
_DONE = re.compile(r"Training of experiment is done and the best AP is ([0-9.]{1,10})")
_RESUMED = re.compile(r"loaded checkpoint '.{0,500}' \(epoch ([0-9]{1,9})\)")
_SUMMARY = re.compile(r"Model Summary: Params: ([0-9.]{1,12})M, Gflops: ([0-9.]{1,15})")
_ARGUMENT = re.compile(r"(\w{1,40})=('[^']{0,500}'|\[[^\]]{0,500}\]|[^,()\[\]]{1,100})")
_ROW = re.compile(r"\s*[|│]\s*(\w{1,40})\s*[|│]\s*(.{0,300}?)\s*[|│]\s*")
_PIXELS = re.compile(r"\(([0-9]{2,5}), ([0-9]{2,5})\)")
_FRAMEWORK = "yolox"


@dataclass(frozen=True)
class YoloxConsole:
    """The arguments that a process prints first, or an epoch that goes back, begin a session."""

    role: Literal["console"] = "console"
    whole_document: bool = False

    def recognise(self, head: str) -> int:
        """By a loguru line of the trainer."""
        lines = (_text.plain(line.encode()) for line in head[:65536].splitlines())
        heads = [match[1] for line in lines if "yolox" in line.lower() and (match := _HEAD.match(line))]
        return 95 if heads else 0

    def start(self) -> State:
        """`shape` is the input size of the experiment, whose sides keep their ratio; `interval` iterations lie between lines."""
        return {**_periodic.start(), "shape": None, "interval": 0, "ap": {}}

    def fold(self, state: State, records: Sequence[bytes]) -> list[tuple[int, Found]]:
        """Progress, settings, evaluations, the end and failures."""
        out: list[tuple[int, Found]] = []
        for index, record in enumerate(records):
            text = _text.plain(record)
            head = _HEAD.match(text)
            found = self._message(state, head[1].strip()) if head else self._other(state, text)
            out += [(index, fact) for fact in found]
        return _periodic.thin(out)

    def peek(self, state: State, record: bytes) -> list[Found]:
        """A line without its end may be torn."""
        return []

    def _message(self, state: State, text: str) -> list[Found]:
        if match := _TRAIN.match(text):
            return self._trained(state, match)
        if text.startswith("args: Namespace("):
            _periodic.begin(state)
            state.update(shape=None, ap={})
            return _periodic.learn(state, _FRAMEWORK, {"task": "detect", **_arguments(text)})
        if match := _BEGINS.match(text):
            over = state["active"] and state["epoch"] is not None and int(match[1]) > state["epoch"]
            return _periodic.close(state) if over else []
        if text.startswith("Save weights to "):
            folder = text.removeprefix("Save weights to ")
            return [*_periodic.close(state), *_periodic.learn(state, _FRAMEWORK, {"save_dir": folder})]
        if match := _RESUMED.match(text):
            return _periodic.learn(state, _FRAMEWORK, {"resumed": True, "resume_epoch": int(match[1]) + 1})
        if match := _SUMMARY.match(text):
            millions, gflops = _text.number(match[1]), _text.number(match[2])
            return _periodic.learn(state, _FRAMEWORK, {"params": millions and round(millions * 1e6), "gflops": gflops})
        return self._done(state, text) if _DONE.match(text) else self._other(state, text)

    def _other(self, state: State, text: str) -> list[Found]:
        score = _periodic.average_precision(text)
        if score and state["active"] and score[0] not in state["ap"]:
            state["ap"][score[0]] = score[1]
            over = _periodic.close(state)
            both = len(state["ap"]) == 2
            return [*over, _periodic.evaluation(state, state["epoch"], **state["ap"])] if both else over
        row = _ROW.fullmatch(text)
        return self._experiment(state, row[1], row[2]) if row else _periodic.failure(state, text)

    def _experiment(self, state: State, key: str, value: str) -> list[Found]:
        """A row of the table of the experiment."""
        known: dict[str, Any] = {}
        if key == "max_epoch":
            known["epochs_planned"] = _text.integer(value) or None
        elif key == "input_size" and (match := _PIXELS.search(value)):
            state["shape"] = [int(match[1]), int(match[2])]
            known.update(height_px=state["shape"][0], width_px=state["shape"][1])
        elif key == "multiscale_range":
            known["multi_scale"] = (_text.integer(value) or 0) > 0
        elif key == "seed":
            known["seed"] = _text.integer(value)
        elif key == "exp_name" and "model" not in state["said"]:
            known["model"] = value.strip("'\"") or None
        return _periodic.learn(state, _FRAMEWORK, known)

    def _trained(self, state: State, match: re.Match[str]) -> list[Found]:
        epoch, epochs, done, total = (int(part) for part in match.group(1, 2, 3, 4))
        pairs = {name.strip(): value for name, value in _PAIR.findall(match[5])}
        if not 0 < done <= total or not 0 < epoch <= epochs:
            return []
        losses = [(name, value) for name, text in pairs.items() if "loss" in name and (value := _text.number(text)) is not None]
        losses.sort(key=lambda pair: pair[0] != "total_loss")
        more = {"losses": tuple(value for _, value in losses), "epochs_total": epochs}
        more["gpu_memory_bytes"] = _text.size_bytes(pairs.get("gpu mem", ""), 1024)
        spent = pairs.get("iter_time", "")
        size = _text.integer(pairs.get("size", "")) or 0
        height, width = self._sides(state, size) if 0 < size < 65536 else (None, None)
        line = _periodic.Line(epoch, done, total, _text.clock_s(spent), _text.unit(spent.rstrip("s")), height, width, more=more)
        found = _periodic.step(state, line, _FRAMEWORK, ends=True)
        state.update(interval=state["interval"] or done, ap={})
        return [*_periodic.learn(state, _FRAMEWORK, {"epochs_planned": epochs}), *found]

    def _sides(self, state: State, height: int) -> tuple[int, int]:
        if not state["shape"]:
            return height, height
        return height, int(height / 32 * state["shape"][1] / state["shape"][0]) * 32

    def _done(self, state: State, text: str) -> list[Found]:
        planned = state["said"].get("epochs_planned")
        if not state["active"] or state["epoch"] != planned or state["total"] - state["done"] >= max(1, state["interval"]):
            return []
        fields = {"epoch": state["epoch"], "what": "completed", "text": text[:500]}
        return [*_periodic.close(state), Found(Incident, fields, state["session"])]


def _arguments(text: str) -> dict[str, Any]:
    args = {name: value.strip("'") for name, value in _ARGUMENT.findall(text[16:])}
    devices, machines = _text.integer(args.get("devices", "")), _text.integer(args.get("num_machines", "1"))
    stem = args.get("exp_file", "None").replace("\\", "/").rpartition("/")[2].removesuffix(".py")
    names = [args.get("name", "None"), stem]
    return {
        "batch": _text.integer(args.get("batch_size", "")) or None,
        "gpus": devices * (machines or 1) if devices else None,
        "precision": {"True": "amp", "False": "fp32"}.get(args.get("fp16", "")),
        "name": None if args.get("experiment_name", "None") == "None" else args["experiment_name"],
        "model": next((name for name in names if name not in {"None", ""}), None),
        "resumed": True if args.get("resume") == "True" else None,
    }


FORMAT = YoloxConsole()
