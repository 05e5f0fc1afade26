"""What trainers have in common that print a line every N iterations: position, training time, sessions, settings.

A line says the mean seconds per iteration since the line before it, so training time is the sum of
`seconds x iterations since the line before`. The last line of an epoch often stands before its last iteration
(7350 of 7393). The rest is added, at the last known speed, when something proves that the epoch is over: the
next epoch, its validation or its checkpoint.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, NamedTuple

from yolometer_agent.formats._base import Found, State
from yolometer_core.events import Evaluation, Incident, Progress, Setting

_FAILURE = re.compile(r"(?:[A-Za-z_]\w*\.){0,6}([A-Z]\w{0,60}(?:Error|Exception))(?::|$)")
_AP = re.compile(
    r"Average Precision\s+\(AP\)\s*@\[\s*IoU=0\.50(:0\.95)?\s*\|\s*area=\s*all\s*\|.{0,40}?\]\s*=\s*(-?[0-9.]{1,10})"
)


class Line(NamedTuple):
    """One progress line. `epoch` counts from 1 (null: a run without epochs); `seconds` per iteration, told to `unit_s`."""

    epoch: int | None
    done: int
    total: int | None
    seconds: float | None
    unit_s: float = 1e-3
    height_px: int | None = None
    width_px: int | None = None
    images: int | None = None
    more: dict[str, Any] = {}  # noqa: RUF012 (never changed: the other fields of the Progress)


def start() -> State:
    """The state before the first line."""
    return {"session": 0, "active": False, "said": {}, "base": 0, **_epoch(None)}


def _epoch(epoch: int | None) -> State:
    """The state at the beginning of an epoch. `last` is null until its first line."""
    return {"epoch": epoch, "done": 0, "total": None, "train_s": 0.0, "seconds": None, "unit_s": 1e-3,
            "height": None, "width": None, "area": 0, "sized": 0, "varied": False, "last": None}  # fmt: skip


def begin(state: State) -> None:
    """A new process begins to write. Counts a session only if the one before it trained."""
    if state["active"]:
        state["session"] += 1
    state.update(active=False, said={}, base=0, **_epoch(None))


def learn(state: State, framework: str, fields: dict[str, Any], **more: Any) -> list[Found]:
    """A Setting with what of `fields` is new to this session, or nothing."""
    said = state["said"]
    new = {name: value for name, value in {**fields, **more}.items() if value is not None and said.get(name) != value}
    said.update(new)
    return [Found(Setting, {"role": "console", "framework": framework, **new}, state["session"])] if new else []


def step(state: State, line: Line, framework: str, *, ends: bool = False) -> list[Found]:
    """Fold one progress line: what it proves about the epoch before, that training has begun, and the line itself.

    `ends` says whether the logs of this framework tell when the training is over.
    """
    out: list[Found] = []
    if state["active"] and state["epoch"] != line.epoch:
        if state["epoch"] is None or line.epoch is None or line.epoch < state["epoch"]:
            begin(state)
        else:
            out += close(state)
            state.update(_epoch(line.epoch))
    elif state["active"] and line.done <= state["done"]:
        begin(state)
    if not state["active"]:
        state.update(_epoch(line.epoch), active=True)
        if line.epoch is None and state["base"] < line.done:
            state["done"] = state["base"]
        out += learn(state, framework, {"started": True, "end_line": ends})
    _add(state, line.done - state["done"], line)
    state["total"] = line.total
    return [*out, _progress(state)]


def _add(state: State, steps: int, line: Line) -> None:
    state["done"] += steps
    state.update(seconds=line.seconds, unit_s=line.unit_s)
    if line.seconds is None or state["train_s"] is None:
        state["train_s"] = None
    else:
        state["train_s"] += line.seconds * steps
    if line.height_px and line.width_px:
        state["varied"] |= state["sized"] > 0 and [state["height"], state["width"]] != [line.height_px, line.width_px]
        state["area"] += line.height_px * line.width_px * steps
        state["sized"] += steps
    state.update(height=line.height_px, width=line.width_px)
    losses = [repr(loss) for loss in line.more.get("losses", ())]  # text, since JSON knows no NaN
    state["last"] = {**line.more, "losses": losses, "images": line.images}


def _progress(state: State) -> Found:
    more = {name: value for name, value in state["last"].items() if value is not None}
    more["losses"] = tuple(float(loss) for loss in more["losses"])
    if state["height"]:
        more.update(height_px=state["height"], width_px=state["width"])
    if state["varied"]:
        more["pixels_mean_px"] = state["area"] / state["sized"]
    if state["train_s"] is not None:
        more.update(train_s=round(state["train_s"], 9), resolution_s=round(state["unit_s"] * max(1, state["done"]), 9))
    where = {"epoch": state["epoch"], "iterations_done": state["done"], "iterations_total": state["total"]}
    return Found(Progress, {**where, **more}, state["session"])


def close(state: State, total: int | None = None) -> list[Found]:
    """The epoch under way is over: it has `total` iterations (default: what its lines say). Says so once."""
    total = total or state["total"]
    if state["epoch"] is None or state["last"] is None or not total or total < state["done"]:
        return []
    if state["done"] == total == state["total"]:
        return []
    rest = Line(state["epoch"], total, total, state["seconds"], state["unit_s"], state["height"], state["width"])
    losses = tuple(float(loss) for loss in state["last"]["losses"])
    _add(state, total - state["done"], rest._replace(more={**state["last"], "losses": losses}))
    state["total"] = total
    return [_progress(state)]


def evaluation(state: State, epoch: int | None, **metrics: Any) -> Found:
    """An Evaluation with those metrics that are known."""
    known = {name: value for name, value in metrics.items() if value is not None}
    return Found(Evaluation, {"epoch": epoch, **known}, state["session"])


def failure(state: State, text: str) -> list[Found]:
    """An Incident for the last line of a traceback: `RuntimeError: CUDA out of memory. ...`."""
    if ("Error" not in text and "Exception" not in text) or not _FAILURE.match(text):
        return []
    return [Found(Incident, {"epoch": state["epoch"], "what": "error", "text": text[:500]}, state["session"])]


def ratio(value: float | None, scale: float = 1.0) -> float | None:
    """A metric from 0 to 1, or null: COCO writes -1 where there is nothing to measure."""
    return value / scale if value is not None and 0 <= value / scale <= 1 else None


def average_precision(text: str) -> tuple[str, float | None] | None:
    """`("map50_95" or "map50", value)` of a line of the summary that pycocotools prints."""
    match = _AP.search(text) if "(AP)" in text else None
    if match is None:
        return None
    try:
        return ("map50_95" if match[1] else "map50", ratio(float(match[2])))
    except ValueError:
        return None


def thin(found: Iterable[tuple[int, Found]]) -> list[tuple[int, Found]]:
    """Drop the progress that later progress of the same epoch and call overtakes; the first, the last and the complete stay."""
    out: list[tuple[int, Found]] = []
    for index, fact in found:
        if fact.kind is Progress and len(out) > 1 and _overtaken(out[-1][1], fact) and _overtaken(out[-2][1], fact, anyway=True):
            out[-1] = (index, fact)
        else:
            out.append((index, fact))
    return out


def _overtaken(old: Found, new: Found, anyway: bool = False) -> bool:
    if old.kind is not Progress or (old.session, old.fields["epoch"]) != (new.session, new.fields["epoch"]):
        return False
    return anyway or old.fields["iterations_done"] != old.fields["iterations_total"]
