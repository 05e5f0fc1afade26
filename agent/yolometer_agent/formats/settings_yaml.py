"""args.yaml (Ultralytics), opt.yaml (YOLOv5, YOLOv7, YOLOv9) and hyp.yaml: what a training was asked to do.

The meaning of the arguments is in `settings_of`, which the console formats use as well.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import yaml

from yolometer_agent.formats._arguments import settings_of
from yolometer_agent.formats._base import Found, State
from yolometer_core.events import Setting

__all__ = ["FORMAT", "settings_of"]

_LARGEST = 1024 * 1024
_DEEPEST = 16
_KEY = re.compile(r"^([A-Za-z_]\w{0,40}):(?: |$)", re.MULTILINE)
_ARGS = frozenset({"task", "mode", "model", "data", "epochs", "imgsz", "batch"})
_OPT = frozenset({"data", "epochs", "batch_size", "device"})
_HYP = frozenset({"lr0", "lrf", "momentum", "weight_decay", "warmup_epochs"})


_C = hasattr(yaml, "CSafeLoader")
"""Whether PyYAML has libyaml: ten times faster. It is a Python module all the same, so both ways stay."""


class _Loader(yaml.CSafeLoader if _C else yaml.SafeLoader):  # type: ignore[misc]
    """Plain YAML without dates (a name may look like one)."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def _load(text: str) -> Any:
    """The document, if it is of limited depth and has no aliases (they multiply): its events are looked at first."""
    depth = 0
    for event in yaml.parse(text, Loader=_Loader):
        if isinstance(event, yaml.AliasEvent):
            raise yaml.YAMLError("aliases are not read")
        if isinstance(event, yaml.NodeEvent) and depth == _DEEPEST:
            raise yaml.YAMLError("nested too deep")
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
    return yaml.load(text, Loader=_Loader)  # noqa: S506 (a safe loader)


@dataclass(frozen=True)
class SettingsYaml:
    """The whole file is one record. What is not a flat mapping of known arguments says nothing."""

    role: Literal["settings"] = "settings"
    whole_document: bool = True

    def recognise(self, head: str) -> int:
        """By the names at the top level."""
        lines = [line for line in head[:65536].splitlines()[:200] if line[:1].strip() and line[0] not in "#-"]
        keys = set(_KEY.findall("\n".join(lines)))
        if len(keys) < 4 or len(keys) < 0.8 * len(lines):
            return 0
        if len(keys & _ARGS) >= 5 and {"task", "mode"} <= keys:
            return 95
        if keys >= _OPT and keys & {"weights", "cfg", "cutoff"}:
            return 95
        return 80 if len(keys & _HYP) >= 4 else 0

    def start(self) -> State:
        """A document stands for itself."""
        return {}

    def fold(self, state: State, records: Sequence[bytes]) -> list[tuple[int, Found]]:
        """One Setting for each document that is about a training."""
        out = []
        for index, record in enumerate(records):
            fields = settings_of(_mapping(record))
            if fields:
                out.append((index, Found(Setting, {"role": self.role, **fields})))
        return out

    def peek(self, state: State, record: bytes) -> list[Found]:
        """A document is read when it is whole."""
        return []


def _mapping(document: bytes) -> Mapping[str, Any]:
    if len(document) > _LARGEST:
        return {}
    try:
        loaded = _load(document.decode("utf-8-sig", "replace"))
    except (yaml.YAMLError, ValueError, TypeError, KeyError, RecursionError, AttributeError, OverflowError):
        return {}
    return loaded if isinstance(loaded, Mapping) else {}


FORMAT = SettingsYaml()
