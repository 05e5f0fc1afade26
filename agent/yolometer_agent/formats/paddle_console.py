"""The console of PaddleDetection: a line every `log_iter` iterations, epochs and iterations counted from 0.

`[09/24 10:52:30] ppdet.engine INFO: Epoch: [0] [1600/1832] ... loss: 3.70 ... batch_cost: 0.2671 ... ips: 29.95 images/s`

`ips` and the batch that follows from it are of one GPU; how many there are only the launcher says. No line says how
many epochs there are, nor that the training ended: an epoch is over when it is evaluated or saved, or the next begins.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from yolometer_agent.formats import _periodic, _text
from yolometer_agent.formats._base import Found, State

_HEAD = re.compile(
    r"(?:\[[0-9]{2}/[0-9]{2} [0-9:]{8}\]|[0-9-]{10} [0-9:,]{8,12} ?-?) (ppdet[\w.]{0,60}) (?:- )?[A-Z]{4,8}: ?(.*)", re.DOTALL
)
_TRAIN = re.compile(r"Epoch: \[([0-9]{1,9})\] \[\s{0,12}([0-9]{1,12})/([0-9]{1,12})\] (.*)", re.DOTALL)
_PAIR = re.compile(r"([\w./-]{1,60}): (-?(?:nan|inf|[0-9][0-9.e+-]{0,30}))(?=[,\s]|$)")
_SAMPLES = re.compile(r"Total sample number: ([0-9]{1,9}),")
_VOC = re.compile(r"mAP\(0\.50?, \w{1,20}\) = ([0-9.]{1,12})%")
_SAVED = re.compile(r"Save checkpoint: (\S.{0,500})")
_DEVICES = re.compile(r"LAUNCH INFO .*\bdevices: ?([0-9]+(?:,[0-9]+)*)")
_MODEL = re.compile(r"_(?:[0-9]+e|[0-9]x|coco|voc)(?:_.*|$)")
_FRAMEWORK = "paddledetection"


@dataclass(frozen=True)
class PaddleConsole:
    """An epoch that goes back begins a session."""

    role: Literal["console"] = "console"
    whole_document: bool = False

    def recognise(self, head: str) -> int:
        """By the name of the logger."""
        return 95 if any(_HEAD.match(_text.plain(line.encode())) for line in head[:65536].splitlines()) else 0

    def start(self) -> State:
        """`ap` collects the summary of one evaluation: its first two lines are of the boxes, later ones of masks."""
        return {**_periodic.start(), "gpus": None, "ap": {}, "per_gpu": None}

    def fold(self, state: State, records: Sequence[bytes]) -> list[tuple[int, Found]]:
        """Progress, settings, evaluations and failures."""
        out: list[tuple[int, Found]] = []
        for index, record in enumerate(records):
            text = _text.plain(record)
            head = _HEAD.match(text)
            found = self._message(state, head[2].strip()) if head else self._other(state, text)
            out += [(index, fact) for fact in found]
        return _periodic.thin(out)

    def peek(self, state: State, record: bytes) -> list[Found]:
        """A line without its end may be torn."""
        return []

    def _message(self, state: State, text: str) -> list[Found]:
        if match := _TRAIN.match(text):
            return self._trained(state, match)
        if match := _SAMPLES.match(text):
            return _periodic.learn(state, _FRAMEWORK, {"val_images": int(match[1])})
        if text.startswith("Eval iter: "):
            return _periodic.close(state) if state["active"] else []
        if match := _VOC.search(text):
            value = _periodic.ratio(_text.number(match[1]), 100)
            return [*_periodic.close(state), _periodic.evaluation(state, state["epoch"], map50=value)] if state["active"] else []
        if match := _SAVED.match(text):
            folder = match[1].strip()
            name = folder.rstrip("/").rpartition("/")[2]
            known = {"save_dir": folder, "name": name or None, "model": _MODEL.sub("", name) or None}
            return [*_periodic.close(state), *_periodic.learn(state, _FRAMEWORK, known)]
        return []

    def _other(self, state: State, text: str) -> list[Found]:
        score = _periodic.average_precision(text)
        if score:
            return self._scored(state, *score)
        if match := _DEVICES.search(text) if "devices:" in text else None:
            if state["active"]:
                _periodic.begin(state)
            state["gpus"] = len(match[1].split(","))
            return _periodic.learn(state, _FRAMEWORK, {"gpus": state["gpus"]})
        return _periodic.failure(state, text)

    def _scored(self, state: State, name: str, value: float | None) -> list[Found]:
        if not state["active"] or name in state["ap"]:
            return []
        state["ap"][name] = value
        over = _periodic.close(state)
        return [*over, _periodic.evaluation(state, state["epoch"], **state["ap"])] if len(state["ap"]) == 2 else over

    def _trained(self, state: State, match: re.Match[str]) -> list[Found]:
        epoch, done, total = int(match[1]) + 1, int(match[2]) + 1, int(match[3])
        pairs = [(name, value, _text.number(value)) for name, value in _PAIR.findall(match[4])]
        values = {name: number for name, _, number in pairs if number is not None}
        if done > total:
            return []
        losses = [(name, value) for name, value in values.items() if "loss" in name]
        losses.sort(key=lambda pair: pair[0] not in {"loss", "total_loss"})
        more: dict[str, Any] = {"losses": tuple(value for _, value in losses)}
        cost, ips, memory = values.get("batch_cost"), values.get("ips"), values.get("max_mem_reserved", 0)
        world = state["gpus"] or 1
        if ips is not None and 0 < ips < 1e9:
            more["images_per_s"] = ips * world
        if 0 < memory < 2**24:
            more["gpu_memory_bytes"] = int(memory) * 2**20
        cost = cost if cost is not None and 0 <= cost < 1e6 else None
        unit = _text.unit(next((value for name, value, _ in pairs if name == "batch_cost"), "0.0001"))
        found = _periodic.step(state, _periodic.Line(epoch, done, total, cost, unit, more=more), _FRAMEWORK)
        state["ap"] = {}
        if state["per_gpu"] is None and cost and ips is not None:
            state["per_gpu"] = _per_gpu(ips, cost, unit)
        batch = state["per_gpu"] and state["per_gpu"] * world
        return [*_periodic.learn(state, _FRAMEWORK, {"batch": batch, "task": "detect"}), *found]


def _per_gpu(ips: float, cost: float, unit: float) -> int | None:
    """The whole number that images/s x seconds rounds to, where the printed digits leave no doubt."""
    batch = ips * cost
    doubt = batch * unit / (2 * cost)
    return round(batch) if 0.5 < batch < 1e6 and abs(batch - round(batch)) <= doubt + 0.05 and doubt < 0.4 else None


FORMAT = PaddleConsole()
