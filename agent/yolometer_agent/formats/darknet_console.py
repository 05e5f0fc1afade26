"""The console of darknet (AlexeyAB and its heirs): one line an iteration, no epochs, no size of the training set.

` 39: 1.2, 1.4 avg loss, 0.000026 rate, 0.805386 seconds, 312 images, 0.007636 hours left`

`images` is counted from iteration 0 over all GPUs; `seconds` is training alone, loading stands in its own line.
A tuned network (`random=1`) prints the size it goes on with: `Resizing`, then `416 x 416` (width x height).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from yolometer_agent.formats import _periodic, _text
from yolometer_agent.formats._base import Found, State
from yolometer_core.events import Incident

_VALUE = r"([-+]?(?:nan|inf|[0-9][0-9.e+-]{0,30})(?:\(\w*\))?)"
_ITERATION = re.compile(
    rf"(?:^|[^\w.])([0-9]{{1,9}}): (?:loss=)?{_VALUE}, (?:avg loss=)?{_VALUE}(?: avg(?: loss)?)?, (?:rate=)?{_VALUE}(?: rate)?, "
    rf"(?:load [^,]{{1,30}}, )?(?:train=)?([0-9.]{{1,20}}) ?(seconds|milliseconds|ms), ([0-9]{{1,15}}) images"
)
_OF = re.compile(r"([0-9]{1,9})/([0-9]{1,9}): loss=")
_INPUT = re.compile(r"^\s*0 \w+\s.*?([0-9]{1,5}) x\s*([0-9]{1,5}) x\s*[0-9]{1,4}\s*->")
_BATCH = re.compile(r"mini_batch = [0-9]{1,9}, batch = ([0-9]{1,9}),.*\btrain = 1\b")
_RESIZED = re.compile(r"([0-9]{2,5})(?: x ([0-9]{2,5}))?")
_RESET = re.compile(r"Resizing to initial size:\s*([0-9]{2,5}) x ([0-9]{2,5})")
_GPU = re.compile(r"compute_capability = .{1,60}, GPU: (\S.{0,100})")
_FLOPS = re.compile(r"Total BFLOPS ([0-9.]{1,15})")
_MAP = re.compile(r"mean[ _]average[ _]precision \(mAP@0?\.50?\) = ([0-9.]{1,12})")
_SAVED = re.compile(r"Saving weights to (?:.*[/\\])?(.{1,200})_(final|last|best|[0-9]+)\.weights")
_NAME = re.compile(r"(?=.*[A-Za-z])[\w][\w.+-]{0,100}")
_BROKEN = re.compile(r"CUDA (?:status )?Error|cuDNN (?:status )?Error|(?:^|: )out of memory|Couldn't open file|Error in line: ")
_FRAMEWORK = "darknet"


@dataclass(frozen=True)
class DarknetConsole:
    """An iteration number that falls, or a new layer table after training, begins a session."""

    role: Literal["console"] = "console"
    whole_document: bool = False

    def recognise(self, head: str) -> int:
        """By an iteration line, or by the layer table that comes before the first of them."""
        lines = [_text.plain(line.encode()) for line in head[:65536].splitlines()]
        if any(_ITERATION.search(line) for line in lines):
            return 95
        table = any(_is_table(line) for line in lines)
        return 90 if table and any(_INPUT.match(line) for line in lines) else 0

    def start(self) -> State:
        """What is known of the network under way, besides the position."""
        return {**_periodic.start(), "net": {}}

    def fold(self, state: State, records: Sequence[bytes]) -> list[tuple[int, Found]]:
        """Progress by iteration, settings from the network, evaluations of `-map`, the end or the failure."""
        out: list[tuple[int, Found]] = []
        for index, record in enumerate(records):
            if record.startswith((b"v3 (", b"v4 (", b" Region ", b"Can't open label")):
                continue
            text = _text.plain(record)
            match = _ITERATION.search(text) if " images" in text else None
            found = self._iteration(state, match) if match else self._other(state, text)
            out += [(index, fact) for fact in found]
        return _periodic.thin(out)

    def peek(self, state: State, record: bytes) -> list[Found]:
        """A line without its end may be torn."""
        return []

    def _iteration(self, state: State, match: re.Match[str]) -> list[Found]:
        iteration, images = int(match[1]), int(match[7])
        spent, loss = _text.number(match[5]), _text.number(match[2])
        if not iteration or spent is None or loss is None:
            return []
        net = state["net"]
        if state["active"] and iteration <= state["done"]:
            _periodic.begin(state)
            state["net"] = net = {key: net[key] for key in ("height", "width", "batch", "of") if key in net}
        fresh = not state["active"]
        if fresh:
            state["base"] = iteration - 1
        of = net.get("of", 0)
        line = _periodic.Line(
            None, iteration, of if of >= iteration else None, spent / (1 if match[6] == "seconds" else 1000), 1e-6,
            net.get("height"), net.get("width"), images, {"losses": (loss,)},
        )  # fmt: skip
        found = _periodic.step(state, line, _FRAMEWORK, ends=True)
        found[-1].fields["resolution_s"] = 1e-6
        net["evaluated"] = False
        total, rest = divmod(images, iteration)
        known: dict[str, Any] = {"batch": total if total and not rest else None, "iterations_planned": of or None}
        if known["batch"] and net.get("batch") and total % net["batch"] == 0 and not net.get("cpu"):
            known["gpus"] = total // net["batch"]
        if fresh:
            known["resumed"] = True if iteration > 1 and "width" in net else None
        return [*_periodic.learn(state, _FRAMEWORK, known), *found]

    def _other(self, state: State, text: str) -> list[Found]:
        net = state["net"]
        if match := _OF.search(text):
            net["of"] = int(match[2])
        elif _is_table(text):
            self._network(state)
        elif "GPU isn't used" in text:
            net["cpu"] = True
        elif match := _BATCH.search(text):
            self._network(state)
            state["net"]["batch"] = int(match[1])
            return _periodic.learn(state, _FRAMEWORK, {"model": net.get("name"), "gpu_model": net.get("gpu"), "task": "detect"})
        elif (match := _INPUT.match(text)) and not state["active"]:
            net.update(width=int(match[1]), height=int(match[2]))
            return _periodic.learn(state, _FRAMEWORK, {"height_px": net["height"], "width_px": net["width"]})
        elif match := _FLOPS.search(text):
            return _periodic.learn(state, _FRAMEWORK, {"gflops": _text.number(match[1])})
        elif match := _MAP.search(text):
            again, net["evaluated"] = net.get("evaluated") or not state["active"], True
            return [] if again else [_periodic.evaluation(state, None, map50=_periodic.ratio(_text.number(match[1])))]
        elif match := _SAVED.search(text):
            return self._saved(state, match[1], match[2])
        elif _BROKEN.search(text):
            return [Found(Incident, {"what": "error", "text": text.strip()[:500]}, state["session"])]
        else:
            self._size_or_name(net, text.strip())
        return []

    def _network(self, state: State) -> None:
        """A network is built: after training that is the next process."""
        if state["active"]:
            _periodic.begin(state)
            state["net"] = {key: state["net"][key] for key in ("name", "gpu", "cpu") if key in state["net"]}

    def _saved(self, state: State, model: str, which: str) -> list[Found]:
        learned = [] if "model" in state["said"] else _periodic.learn(state, _FRAMEWORK, {"model": model})
        if which != "final" or not state["active"]:
            return learned
        return [*learned, Found(Incident, {"what": "completed"}, state["session"])]

    def _size_or_name(self, net: State, text: str) -> None:
        if (reset := _RESET.match(text)) is not None:
            net.update(width=int(reset[1]), height=int(reset[2]), resizing=0)
            return
        if gpu := _GPU.search(text):
            net["gpu"] = gpu[1].strip()
        if text.startswith("Resizing"):
            net["resizing"] = 3
        match = _RESIZED.fullmatch(text) if net.get("resizing") else None
        if match:
            net.update(width=int(match[1]), height=int(match[2] or match[1]), resizing=0)
        elif text:
            net["resizing"] = max(0, net.get("resizing", 0) - 1)
            if len(text) < 100 and _NAME.fullmatch(text):
                net["name"] = text


def _is_table(line: str) -> bool:
    words = line.split()
    return words[:2] == ["layer", "filters"] and "input" in words


FORMAT = DarknetConsole()
