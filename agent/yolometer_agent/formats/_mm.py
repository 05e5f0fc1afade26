"""What all trainers of OpenMMLab say: metric names, loss names, and settings inside the printed environment and config."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from yolometer_agent.formats import _text
from yolometer_agent.formats._base import State
from yolometer_agent.formats._periodic import ratio

_TOP = re.compile(r"([A-Za-z_]\w{0,60}) = (.*)")
_ITEM = re.compile(r"(?<![\w'\"])([A-Za-z_]\w{0,60})'?\s?[=:]\s?('[^']{0,300}'|[\w.+-]{1,60})")
_PIXELS = re.compile(r"[0-9]{1,5}")
_ENVIRONMENT = re.compile(r"\s*([A-Za-z][\w ]{1,40}|GPU [0-9,]+): (.{1,200}?)\s*")
_SIZES = frozenset({"img_scale", "input_size", "input_shape", "image_size"})
_NAMING = re.compile(r"_(?:syncbn|fast|mstrain|coco|voc|[0-9]+xb[0-9]+|[0-9]+x[0-9]*|[0-9]+e)(?:[_-].*|$)")
_STAMP = re.compile(r"_?[0-9]{8}_[0-9]{6}$")
_FAMILIES = {"mmyolo": "mmyolo", "mmdet": "mmdet", "mmdet3d": "mmdet"}


def start() -> State:
    """The state before the first line: which part of the config is being read, and what only together tells something."""
    return {"framework": "mmengine", "version": {}, "top": "", "pixels": None, "masks": False, "cuda": True,
            "per_gpu": None, "world": None}  # fmt: skip


def family(mm: State, scope: str) -> None:
    """Remember which of the trainers it is, by logger or by `default_scope`."""
    mm["framework"] = _FAMILIES.get(scope, mm["framework"])


def environment(mm: State, text: str) -> dict[str, Any]:
    """Setting fields of one line of the printed environment: `    GPU number: 8`."""
    match = _ENVIRONMENT.fullmatch(text)
    if match is None:
        return {}
    name, value = match[1].strip(), match[2]
    whole = _text.integer(value)
    if name in {"MMEngine", "MMDetection", "MMYOLO"}:
        mm["version"][{"MMDetection": "mmdet"}.get(name, name.lower())] = value.split("+")[0]
    elif name == "CUDA available":
        mm["cuda"] = value == "True"
    elif name == "GPU number" and whole and whole > 0:
        mm["world"] = whole
    elif name == "Distributed training" and value == "False":
        mm["world"] = 1
    elif name == "seed" and whole is not None:
        return {"seed": whole}
    elif name.startswith("GPU ") and name[4:5].isdigit():
        return {"gpu_model": value}
    return together(mm)


def together(mm: State) -> dict[str, Any]:
    """What follows from two lines: the batch is per GPU. On a CPU there is one process and no GPU."""
    world, per_gpu = mm["world"], mm["per_gpu"]
    return {"gpus": world if mm["cuda"] else None, "batch": world * per_gpu if world and per_gpu else None}


def config(mm: State, text: str) -> dict[str, Any]:
    """Setting fields of one line of the printed config, which is Python: `train_dataloader = dict(`, `    batch_size=16,`."""
    top = _TOP.match(text)
    if top:
        mm.update(top=top[1], pixels=[] if top[1] in _SIZES else None)
        text = top[2] if top[2].startswith(("dict(", "{")) else f"{top[1]}={top[2]}"
    fields: dict[str, Any] = {}
    if mm["pixels"] is not None:
        mm["pixels"] += [int(side) for side in _PIXELS.findall(text.partition("#")[0])]
        if ")" in text or text.rstrip().endswith("]") or len(mm["pixels"]) > 2:
            fields = _size(mm["pixels"])
            mm["pixels"] = None
        return fields
    mm["masks"] |= "with_mask=True" in text
    if text.startswith("gpu_ids=range("):
        ids = [int(number) for number in _PIXELS.findall(text)[:2]]
        mm["world"] = ids[-1] - ids[0] if len(ids) == 2 and ids[1] > ids[0] else mm["world"]
    for name, value in _ITEM.findall(text):
        fields.update(_item(mm, name, value.strip("'")))
    return {**fields, **together(mm)}


def _item(mm: State, name: str, value: str) -> dict[str, Any]:
    top, whole = mm["top"], _text.integer(value)
    positive = whole if whole is not None and 0 < whole < 2**31 else None
    if name == "default_scope":
        family(mm, value)
    elif (top, name) in {("train_dataloader", "batch_size"), ("data", "samples_per_gpu")} or (
        name == "train_batch_size_per_gpu" and mm["per_gpu"] is None
    ):
        mm["per_gpu"] = positive
    elif name in {"max_epochs", "total_epochs"} and top in {"train_cfg", "runner", "max_epochs", "total_epochs"}:
        return {"epochs_planned": positive}
    elif name in {"max_iters", "total_iters"} and top in {"train_cfg", "runner", "max_iters", "total_iters"}:
        return {"iterations_planned": positive}
    elif top == "work_dir" and name == "work_dir":
        return {"save_dir": value, **named(value.rstrip("/").rpartition("/")[2])}
    elif top == "fp16" or (top == "optim_wrapper" and value == "AmpOptimWrapper"):
        return {"precision": "amp"}
    elif top in {"optim_wrapper", "optimizer"} and name == "type" and not value.endswith(("Wrapper", "Constructor")):
        return {"optimizer": value}
    return {}


def _size(pixels: list[int]) -> dict[str, Any]:
    """OpenMMLab writes a scale as (width, height)."""
    if len(pixels) not in {1, 2} or not all(32 <= side <= 16384 for side in pixels):
        return {}
    return {"width_px": pixels[0], "height_px": pixels[-1]}


def named(name: str, certain: bool = False) -> dict[str, Any]:
    """`rtmdet_s_syncbn_fast_8xb32-300e_coco` is the name of a config and begins with the model; a folder may have any name."""
    name = _STAMP.sub("", name.removesuffix(".py"))
    model = _NAMING.sub("", name)
    return {"name": name, "model": model if certain or model != name else None} if model else {}


def losses(values: Mapping[str, float]) -> tuple[float, ...]:
    """`loss` first, then its parts in the order of the line."""
    parts = [value for name, value in values.items() if "loss" in name and name != "loss"]
    return (values["loss"], *parts) if "loss" in values else tuple(parts)


def metrics(values: Iterable[tuple[str, float]]) -> dict[str, float | None]:
    """The metrics of a validation; `coco/` and other prefixes do not matter. `top1` is in percent."""
    known: dict[str, float | None] = {}
    for name, value in values:
        if name == "bbox_mAP":
            known["map50_95"] = ratio(value)
        elif name in {"bbox_mAP_50", "AP50"}:
            known["map50"] = ratio(value)
        elif name == "top1":
            known["top1"] = ratio(value, 100)
    return known
