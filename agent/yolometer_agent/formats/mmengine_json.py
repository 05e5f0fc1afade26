"""scalars.json of MMEngine (vis_data) and the older .log.json of mmcv: one JSON object a line.

MMEngine counts `iter` over the whole run, so the length of an epoch shows only when the next one begins; a line of
metrics has no `iter`. mmcv counts `iter` inside the epoch and says `mode`. Neither says how many iterations an
epoch has: after the validation of the first epoch its last line is taken for its end, and put right by the next.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from yolometer_agent.formats import _mm, _periodic, _text
from yolometer_agent.formats._base import Found, State

_TIMES = frozenset({"time", "data_time"})


@dataclass(frozen=True)
class MmengineJson:
    """`length` is iterations per epoch, `held` a first line that the next one has to explain (a resumed run)."""

    role: Literal["console"] = "console"
    whole_document: bool = False

    def recognise(self, head: str) -> int:
        """Every line is an object, and one of the first is of training."""
        lines = [line for line in head[:65536].splitlines()[:50] if line.strip()]
        objects = [_object(line) for line in lines]
        if not objects or any(found is None for found in objects[: len(objects) - (len(objects) > 1)]):
            return 0
        training = [found for found in objects if found and _whole(found.get("iter")) and _losses(found)]
        if any(_TIMES & found.keys() and {"step", "mode", "lr"} & found.keys() for found in training):
            return 95
        return 70 if objects[0] and {"env_info", "exp_name"} <= objects[0].keys() else 0

    def start(self) -> State:
        """Before the first line nothing is known about the length of an epoch."""
        return {**_periodic.start(), "mm": _mm.start(), "length": None, "first": None, "held": None}

    def fold(self, state: State, records: Sequence[bytes]) -> list[tuple[int, Found]]:
        """Progress of training lines, evaluations of metric lines, settings of the first line of mmcv."""
        out: list[tuple[int, Found]] = []
        for index, record in enumerate(records):
            line = _object(_text.plain(record))
            if line is not None:
                out += [(index, fact) for fact in self._line(state, line)]
        return _periodic.thin(out)

    def peek(self, state: State, record: bytes) -> list[Found]:
        """A line without its end is no JSON yet."""
        return []

    def _line(self, state: State, line: dict[str, Any]) -> list[Found]:
        if isinstance(line.get("env_info"), str) or isinstance(line.get("config"), str):
            return self._settings(state, line)
        iteration, epoch = _whole(line.get("iter")), _whole(line.get("epoch"))
        if "mode" in line and iteration:
            state["mm"]["framework"] = "mmdet"
            if line["mode"] != "train":
                return self._metrics(state, epoch, line)
            over = state["active"] and epoch is not None and epoch > (state["epoch"] or epoch)
            out = _periodic.close(state, state["done"]) if over else []
            return [*out, *self._train(state, epoch, iteration, line)]
        if iteration and _losses(line):
            return self._global(state, epoch, iteration, line)
        known = "step" in line and (state["active"] or state["held"] is not None)
        return self._metrics(state, _whole(line.get("step")), line) if known else []

    def _settings(self, state: State, line: dict[str, Any]) -> list[Found]:
        mm = _mm.start()
        if state["active"]:
            _periodic.begin(state)
        mm["framework"] = "mmdet"
        state.update(mm=mm, length=None, first=None)
        fields: dict[str, Any] = {}
        for name, read in (("env_info", _mm.environment), ("config", _mm.config)):
            text = line.get(name) if isinstance(line.get(name), str) else ""
            for part in str(text)[:200_000].splitlines():
                fields.update({key: value for key, value in read(mm, part).items() if value is not None})
        if isinstance(line.get("exp_name"), str):
            fields.update(_mm.named(line["exp_name"], certain=True))
        fields["seed"] = _whole(line.get("seed"))
        fields["framework_version"] = mm["version"].get(mm["framework"])
        return _periodic.learn(state, mm["framework"], fields)

    def _global(self, state: State, epoch: int | None, iteration: int, line: dict[str, Any]) -> list[Found]:
        """A line whose `iter` counts over the run: find the place inside its epoch."""
        if epoch is None:
            return self._train(state, None, iteration, line)
        held = state["held"]
        if state["first"] and (epoch < state["first"][0] or iteration <= state["first"][1]):
            state.update(length=None, first=None, held=None)
        first = state["first"]
        out: list[Found] = []
        if first is None:
            state["first"] = [epoch, iteration]
            if epoch > 1:
                state["held"] = line
                return []
        elif held is not None:
            out = self._explain(state, iteration - first[1], epoch > first[0])
        elif epoch > first[0]:
            state["length"] = length = (iteration - first[1]) // (epoch - first[0])
            if state["active"] and state["epoch"] == epoch - 1 and (state["total"] or 0) <= length:
                out = _periodic.close(state, length)
        if first is not None and epoch > first[0]:
            state["first"] = [epoch, iteration]
        base = (epoch - 1) * (state["length"] or 0)
        inside = iteration - base
        return [*out, *self._train(state, epoch, inside, line)] if inside > 0 and (base or epoch == 1) else out

    def _explain(self, state: State, apart: int, next_epoch: bool) -> list[Found]:
        """The held line stands one interval into its epoch: `iter = (epoch - 1) x length + interval`."""
        held, (epoch, iteration) = state["held"], state["first"]
        rest = (epoch - 1) * apart if next_epoch else iteration - apart
        state["held"] = None
        if apart <= 0 or rest <= 0 or rest >= iteration + (next_epoch and apart):
            return []
        state["length"] = apart if next_epoch else rest // (epoch - 1)
        return self._train(state, epoch, iteration - (epoch - 1) * state["length"], held)

    def _train(self, state: State, epoch: int | None, done: int, line: dict[str, Any]) -> list[Found]:
        if done <= 0:
            return []
        length = state["length"] if epoch is not None else None
        seconds, memory = _number(line.get("time")), _number(line.get("memory")) or 0
        more: dict[str, Any] = {"losses": _losses(line)}
        if 0 < memory < 2**24:
            more["gpu_memory_bytes"] = int(memory) * 2**20
        seconds = seconds if seconds is not None and 0 <= seconds < 1e6 else None
        total = length if length and length >= done else None
        return _periodic.step(state, _periodic.Line(epoch, done, total, seconds, 1e-9, more=more), state["mm"]["framework"])

    def _metrics(self, state: State, epoch: int | None, line: dict[str, Any]) -> list[Found]:
        out: list[Found] = []
        if state["held"] is not None:  # one line in the epoch: it stands at the end
            epoch_held, iteration = state["first"]
            state["length"] = iteration // epoch_held
            out = self._train(state, epoch_held, state["length"], state["held"])
            state["held"] = None
        if not state["active"]:
            return out
        epoch = epoch if state["epoch"] is not None else None
        if epoch is not None and epoch == state["epoch"]:
            out += _periodic.close(state, max(state["length"] or 0, state["done"]))
        values = [(name.rpartition("/")[2], value) for name in line if (value := _number(line[name])) is not None]
        return [*out, _periodic.evaluation(state, epoch, exact=True, **_mm.metrics(values))]


def _object(line: str) -> dict[str, Any] | None:
    if not line.lstrip().startswith("{"):
        return None
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if isinstance(value, float) or abs(value) < 2**63 else None


def _whole(value: Any) -> int | None:
    return value if type(value) is int and 0 < value < 2**53 else None


def _losses(line: dict[str, Any]) -> tuple[float, ...]:
    values = {name.rpartition("/")[2]: value for name in line if "loss" in name and (value := _number(line[name])) is not None}
    return _mm.losses(values)


FORMAT = MmengineJson()
