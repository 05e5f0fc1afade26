"""The consoles of the Ultralytics line (Ultralytics, YOLOv5, YOLOv7, YOLOv9) as one machine; dialects differ in data only.

The trainers print no time and no epoch with a validation row, redraw one bar per epoch, print the banner again
before the final validation, and start epochs over after an OOM or a NaN. docs/formats.md says what counts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from yolometer_agent.formats import _yolo_lines as lines
from yolometer_agent.formats._base import Found, State
from yolometer_agent.formats._text import plain
from yolometer_agent.formats._yolo_bar import Redraw, giga, measure, version
from yolometer_agent.formats._yolo_settings import settings_in
from yolometer_core.events import Evaluation, Incident, Progress, Setting

_RESUMING = re.compile(r"^Resuming training .*from epoch (\d+) to (\d+) total epochs")
_TUNING = re.compile(r"has been trained for (\d+) epochs\. Fine-tuning for (\d+) more epochs")
_STARTING = re.compile(r"^Starting (?:\S+ )?training (?:on .* )?for ([\d.]+) (epochs|hours)")
_COMPLETED = re.compile(r"^(?:(\d+) epochs completed in ([\d.]+) hours\.|Training complete \(([\d.]+) hours\))")
_STOPPED = re.compile(r"(?:Training stopped early|Stopping training early) as no improvement")
_BEST = re.compile(r"Best results observed at epoch (\d+)")
_OOM = re.compile(r"CUDA out of memory with batch=\d+\. Reducing to batch=(\d+)")
_NAN = re.compile(r"Loss NaN/Inf detected \(attempt \d+/\d+\), recovering")
_ERROR = re.compile(r"^(?:[A-Za-z_]\w*\.)*([A-Z]\w*(?:Error|Exception|Interrupt|Exit))\b(?::\s?(.*))?$")
_FINISHED_ALREADY = re.compile(r"training to \d+ epochs is finished, nothing to resume")
_RANK = re.compile(r"^\[rank\d+\]:\s*")
_DRAWN = re.compile(rb"\d%[^/]*?\b(\d{1,9})/(\d{1,9})\b")
_FEWEST, _MOST = 8, 512
"""How many records are compared at once."""
_WHOLE = ("]", "s", *"0123456789")
"""What a frame ends with: before that it may be torn in the middle of a number."""
_TRACEBACK = "Traceback (most recent call last):"


@dataclass(frozen=True)
class YoloConsole:
    """One dialect: `epoch_base` is the number that the console gives the first epoch."""

    framework: str
    epoch_base: Literal[0, 1]
    recognised_by: Callable[[str], int]
    role: Literal["console"] = "console"
    whole_document: bool = False

    def recognise(self, head: str) -> int:
        return self.recognised_by(head)

    def start(self) -> State:
        return {"session": 0, "framework": self.framework, "version": [], "base": self.epoch_base, "phase": "head",
                "opened": False, "pending": {}, "bar": None, "headers": 0, "columns": None, "takes": [0, 0],
                "names": "", "val_s": None, "trace": "", "resume": None, "evaluated": False, "full": False,
                "unseen": False}  # fmt: skip

    def fold(self, state: State, records: Sequence[bytes]) -> list[tuple[int, Found]]:
        said: list[tuple[int, Found]] = []
        bar, width = self._same_bar(state), _FEWEST
        last: bytes | None = None
        index, many = 0, len(records)
        while index < many:
            if bar:
                # the hot path: redraws that move the bar but neither end it nor change the size of the batches
                count = bar.redraws(records[index : index + width])
                width = min(2 * width, _MOST) if count == width else count + _FEWEST
                if count:
                    index += count
                    last = records[index - 1]
                    continue
                if bar.again(records[index]):
                    last = records[index]
                    index += 1
                    continue
            record = records[index]
            said.extend((index, found) for found in self._record(state, plain(record), record, last))
            bar, last = self._same_bar(state), None
            index += 1
        if last is not None:
            self._frame(state, plain(last), last)
        return said + [(many - 1, found) for found in (self._left(state) if many else [])]

    def peek(self, state: State, record: bytes) -> list[Found]:
        text = plain(record)
        ended = _COMPLETED.match(text.strip())
        if ended:
            return [self._completed(state, ended)]
        frame = lines.frame_of(text, state["columns"]) if text.rstrip().endswith(_WHOLE) else None
        if frame is None or (frame.bar.elapsed_s is None and frame.bar.done == 0):
            return []
        again = {**state, "bar": None if state["bar"] is None else dict(state["bar"]), "takes": list(state["takes"])}
        return self._move(again, frame, text, record) or [self._progress(again)]

    def _same_bar(self, state: State) -> Redraw | None:
        """How to know the redraws of the bar that is under way; None when every record has to be read."""
        bar = state["bar"]
        if not bar or bar["complete"] or bar["width"] is None or state["phase"] != "train":
            return None
        lead, end = bar["lead"].encode("latin-1"), f" {bar['total']}/{bar['total']} ".encode()
        # an epoch may be called as a full bar is: then every redraw has to be read
        return None if not lead or end in lead else Redraw(lead, f" {bar['width']}:".encode(), end, bar.get("size_at", 0))

    def _record(self, state: State, text: str, record: bytes, before: bytes | None) -> list[Found]:
        """What a record says; `before` is the redraw before it, which was not read yet."""
        frame = self._frame(state, text, record, before)
        if "Exception in thread" in text:
            state["trace"] = "thread-head"
        if frame is not None:
            return frame
        stripped = text.strip()
        if not stripped:
            return []
        said = self._validation(state, text)
        if said is not None:
            return said
        return self._turn(state, stripped) or self._settings(state, stripped)

    # frames -----------------------------------------------------------------------------------------------------

    def _frame(self, state: State, text: str, record: bytes, before: bytes | None = None) -> list[Found] | None:
        """Move the bar; None when the text is no frame. Says Progress when the epoch is complete."""
        frame = lines.frame_of(text, state["columns"])
        if before is not None and not (frame and self._fills(state, frame, before)):
            self._frame(state, plain(before), before)
        return None if frame is None else self._move(state, frame, text, record)

    def _fills(self, state: State, frame: lines.Frame, before: bytes) -> bool:
        """Whether a frame fills the bar that is under way and the one before it only moved it on, so that it adds nothing."""
        bar, drawn = state["bar"], frame.bar
        same = frame.epoch + 1 - state["base"] == bar["epoch"] and frame.width_px == bar["width"] and not bar["varied"]
        if not same or bar["over"] or not drawn.done == drawn.total == bar["total"]:
            return False
        moved = _DRAWN.search(before)
        return bool(moved and int(moved[2]) == drawn.total and bar["done"] <= int(moved[1]) < drawn.total)

    def _move(self, state: State, frame: lines.Frame, text: str, record: bytes) -> list[Found]:
        epoch = frame.epoch + 1 - state["base"]
        bar = state["bar"]
        said: list[Found] = []
        if state["phase"] == "done" or (bar is not None and epoch < bar["epoch"]):
            said, bar = self._new_session(state), None
        state["phase"] = "train"
        if bar is None or bar["epoch"] != epoch or bar["over"] or frame.bar.done < bar["done"]:
            said += self._left(state)
            again = state["takes"][0] == epoch and (bar is not None or state["unseen"])
            state["unseen"] = False
            state["takes"] = [epoch, state["takes"][1] + 1 if again else 0]
            bar = {"epoch": epoch, "total": frame.bar.total, "complete": False, "over": False, "told": -1, "done": 0,
                   "width": None, "varied": False, "first": None, "upto": 0, "px2": 0}  # fmt: skip
            state["bar"], state["evaluated"], state["full"], state["val_s"], state["names"] = bar, False, False, None, ""
        if bar["complete"]:
            return said
        label = f"{frame.epoch}/{frame.last} ".encode()
        at = record.find(label)
        lead = record[: at + len(label)].decode("latin-1") if at >= 0 else ""
        bar |= {"lead": lead, "done": frame.bar.done, "total": frame.bar.total,
                "last": frame.last, "losses": list(frame.values), "memory": round(frame.memory_g * giga(state, text)) or None,
                "elapsed": frame.bar.elapsed_s, "resolution": frame.bar.resolution_s}  # fmt: skip
        if frame.width_px is not None:
            measure(bar, frame.width_px)
            bar["size_at"] = max(record.find(f" {frame.width_px}:".encode(), at), 0)
        if frame.bar.done != frame.bar.total or not frame.bar.total:
            return said
        bar["complete"] = True
        return [*said, self._progress(state)]

    def _left(self, state: State) -> list[Found]:
        """The progress of a bar that will not be finished: said once, however the records were cut."""
        bar = state["bar"]
        if not bar or bar["complete"] or bar["done"] == bar["told"]:
            return []
        bar["told"] = bar["done"]
        return [self._progress(state)]

    def _progress(self, state: State) -> Found:
        bar = state["bar"]
        width = None if bar["varied"] else bar["width"]
        fields: dict[str, Any] = {
            "epoch": bar["epoch"],
            "take": state["takes"][1],
            "epochs_total": bar["last"] + 1 - state["base"],
            "iterations_done": bar["done"],
            "iterations_total": bar["total"],
            "height_px": width,
            "width_px": width,
            "losses": tuple(bar["losses"]),
            "gpu_memory_bytes": bar["memory"],
            "train_s": bar["elapsed"],
            "resolution_s": bar["resolution"],
        }
        if bar["varied"]:
            fields["pixels_mean_px"] = bar["px2"] / bar["upto"] if bar["upto"] else float(bar["width"] ** 2)
        return Found(Progress, fields, state["session"])

    # validation -------------------------------------------------------------------------------------------------

    def _validation(self, state: State, text: str) -> list[Found] | None:
        """None when the text is no line of a validation, or one that says nothing."""
        found = lines.validation_bar(text)
        if found:
            names, bar = found
            state["names"] = names
            if bar.done == bar.total:
                # a time is told apart only by a clock that is ten times finer
                told = bar.elapsed_s is not None and bar.elapsed_s >= 10 * (bar.clock_resolution_s or 0)
                state["val_s"] = bar.elapsed_s if told else None
                return self._evaluated(state, {}) or None
            return None
        columns = lines.header_columns(text)
        if columns is not None:
            if "top1_acc" in text:
                # the classifier of YOLOv5 counts from 1, its detector from 0
                state["base"] = 1
            state["columns"], state["headers"] = columns, state["headers"] + 1
            if state["bar"] and state["bar"]["complete"]:
                state["bar"]["over"] = True
            state["evaluated"] = state["full"] = False
            return []
        values = lines.all_row(text)
        if values is None or state["phase"] != "train" or state["evaluated"]:
            return None
        state["evaluated"] = True
        return self._evaluated(state, lines.metrics_of(state["names"], values)) or None

    def _evaluated(self, state: State, metrics: dict[str, Any]) -> list[Found]:
        """A validation is over when its bar is full; its figures come a line later, or in another stream."""
        epoch, take = self._where(state)
        if epoch is None or state["phase"] != "train" or (not metrics and (state["evaluated"] or state["full"])):
            return []
        state["full"] = True
        return [Found(Evaluation, {"epoch": epoch, "take": take, "val_s": state["val_s"], **metrics}, state["session"])]

    def _where(self, state: State) -> tuple[int | None, int]:
        """Epoch and take that a line without a number belongs to: the last bar, else the number of headers so far."""
        if state["bar"]:
            return state["bar"]["epoch"], state["takes"][1]
        return (state["headers"] + (state["resume"] or 1) - 1 if state["headers"] else None), 0

    # turns of the session ---------------------------------------------------------------------------------------

    def _turn(self, state: State, text: str) -> list[Found]:
        """Lines that change what the session is doing."""
        text = _RANK.sub("", text)
        if text.startswith(_TRACEBACK):
            state["trace"] = "thread" if state["trace"] == "thread-head" else "main"
            return []
        error = _ERROR.match(text) if state["trace"] else None
        if error:
            return self._failed(state, text)
        oom, nan = _OOM.search(text), _NAN.search(text)
        if oom or nan:
            what, batch = ("oom_retry", int(oom[1])) if oom else ("nan_replay", None)
            return [*self._left(state), self._again(state, what, batch, text)]
        if _STOPPED.search(text):
            best = _BEST.search(text)
            best_epoch = int(best[1]) + 1 - state["base"] if best else None
            fields = {"what": "stopped_early", "best_epoch": best_epoch, "epoch": self._where(state)[0]}
            return [Found(Incident, fields, state["session"])]
        ended = _COMPLETED.match(text)
        if ended and state["phase"] == "train":
            state["phase"] = "done"
            return [*self._left(state), self._completed(state, ended)]
        starting = _STARTING.match(text)
        if starting:
            return self._starting(state, starting)
        resuming, tuning = _RESUMING.match(text), _TUNING.search(text)
        if resuming or tuning:
            return self._resuming(state, resuming, tuning)
        return []

    def _failed(self, state: State, text: str) -> list[Found]:
        """The last line of a traceback; one in a thread (plots) does not end the training."""
        main, state["trace"] = state["trace"] == "main", ""
        if not main:
            return []
        refused = _FINISHED_ALREADY.search(text)
        epoch, take = self._where(state)
        what = "resume_refused" if refused else "error"
        fields = {"what": what, "text": text[:500], "epoch": epoch, "take": take}
        return [*self._left(state), Found(Incident, fields, state["session"])]

    def _again(self, state: State, what: str, batch: int | None, text: str) -> Found:
        epoch, take = self._where(state)
        if state["bar"]:
            state["bar"]["over"] = True
        else:
            # the try that failed was never drawn
            state["takes"], state["unseen"] = [epoch or 1, take], True
        fields = {"what": what, "batch": batch, "epoch": epoch or 1, "take": take, "text": text[:200]}
        return Found(Incident, fields, state["session"])

    def _completed(self, state: State, found: re.Match[str]) -> Found:
        hours = found[2] or found[3]
        digits = len(hours.partition(".")[2])
        fields: dict[str, Any] = {"what": "completed", "epochs_completed": int(found[1]) if found[1] else None}
        fields |= {"loop_s": float(hours) * 3600, "resolution_s": 3600 / 10**digits}
        return Found(Incident, fields, state["session"])

    def _starting(self, state: State, found: re.Match[str]) -> list[Found]:
        said = [] if state["phase"] == "head" else self._new_session(state)
        state["phase"] = "train"
        fields: dict[str, Any] = {"started": True}
        if found[2] == "hours":
            fields["time_budget"] = True
        else:
            fields["epochs_planned"] = int(float(found[1]))
        return [*said, self._setting(state, fields)]

    def _resuming(self, state: State, resuming: re.Match[str] | None, tuning: re.Match[str] | None) -> list[Found]:
        if tuning:
            state["resume"] = int(tuning[1]) + 1
            planned = int(tuning[1]) + int(tuning[2])
        elif resuming is None:
            return []
        else:
            state["resume"] = int(resuming[1]) + 1 - state["base"]
            planned = int(resuming[2])
        return [self._setting(state, {"resumed": True, "resume_epoch": state["resume"], "epochs_planned": planned})]

    def _settings(self, state: State, text: str) -> list[Found]:
        fields, opens = settings_in(text)
        if opens:
            said = self._new_session(state) if state["opened"] or state["phase"] != "head" else []
            state["opened"] = True
            return [*said, self._setting(state, fields)]
        if not fields:
            return []
        if state["phase"] == "done":
            # a banner here may belong to the final validation or to the next process in the same file
            state["pending"] |= fields
            return []
        if state["phase"] == "train" and "images_per_epoch" not in fields:
            return []
        return [self._setting(state, fields)]

    def _setting(self, state: State, fields: dict[str, Any]) -> Found:
        state["framework"] = fields.get("framework") or state["framework"]
        if "framework_version" in fields:
            state["version"] = version(fields["framework_version"])
        return Found(Setting, {"role": "console", **fields, "framework": state["framework"]}, state["session"])

    def _new_session(self, state: State) -> list[Found]:
        pending, left = state["pending"], self._left(state)
        state |= {**self.start(), "session": state["session"] + 1}
        return [*left, *([self._setting(state, pending)] if pending else [])]
