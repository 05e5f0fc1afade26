"""What the arguments of a training mean: Ultralytics `args`, and `opt` of YOLOv5, YOLOv7 and YOLOv9."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Any

_STRIDE = 32
_SUFFIX = re.compile(r"\.(?:yaml|yml|pt|pth|onnx|engine|torchscript|safetensors|weights|cfg)$", re.IGNORECASE)
_CHECKPOINT = re.compile(r"(?:last|best|epoch[-_]?[0-9]+|(?:last|best|init)_.*|.*_(?:last|best))", re.IGNORECASE)
_DEVICES = re.compile(r"(?:cuda:)?-?[0-9]{1,3}(?:\s*,\s*(?:cuda:)?-?[0-9]{1,3})*,?")
_PRECISIONS = {
    **dict.fromkeys(("bf16", "bfloat16"), "bf16"),
    **dict.fromkeys(("fp16", "half", "float16"), "fp16"),
    **dict.fromkeys(("fp32", "float32", "false"), "fp32"),
    **dict.fromkeys(("amp", "true"), "amp"),
}


def settings_of(mapping: Mapping[str, Any]) -> dict[str, Any]:
    """Return the Setting fields (without role) that parsed arguments tell; `{}` when they are not of a training.

    Values are Python scalars and lists, from YAML or from the args line of a console. What is unknown, not yet
    decided (batch -1, optimizer "auto") or of the wrong type is left out. `resumed` is only ever True.
    """
    if "task" in mapping and "mode" in mapping:
        fields = _ultralytics(mapping) if mapping["mode"] == "train" else {}
    elif ("weights" in mapping or "cfg" in mapping) and any(key in mapping for key in ("batch_size", "total_batch_size", "hyp")):
        fields = _opt(mapping)
    elif "cutoff" in mapping and "model" in mapping and "batch_size" in mapping:
        fields = {**_opt(mapping), "task": "classify", "model": _stem(mapping["model"])}
    else:
        fields = {}
    return {name: value for name, value in fields.items() if value is not None}


def _ultralytics(args: Mapping[str, Any]) -> dict[str, Any]:
    size = _side(args.get("imgsz"), max)
    budget = _positive(args.get("time")) is not None
    resumed = _truthy(args.get("resume")) or _own_checkpoint(args.get("model"), args.get("save_dir"))
    return {
        "framework": "ultralytics",
        "task": _string(args["task"]),
        "model": _stem(args.get("model")),
        "height_px": size,
        "width_px": size,
        "batch": _count(args.get("batch")),
        "epochs_planned": None if budget else _count(args.get("epochs")),
        "time_budget": budget or None,
        "optimizer": _optimizer(args.get("optimizer")),
        "precision": _precision(args.get("amp")),
        "fraction": _positive(args.get("fraction")),
        "multi_scale": _scales(args.get("multi_scale")),
        "resumed": resumed or None,
        **_common(args),
    }


def _opt(opt: Mapping[str, Any]) -> dict[str, Any]:
    size = _side(opt.get("imgsz", opt.get("img_size")), lambda sides: sides[0])
    adam = opt.get("adam")
    segment = "no_overlap" in opt and "mask_ratio" in opt
    return {
        "framework": _family(opt),
        "task": _string(opt.get("task")) or ("segment" if segment else "detect"),
        "model": _stem(opt.get("cfg")) or _stem(opt.get("weights")),
        "height_px": size,
        "width_px": size,
        "batch": _count(opt.get("total_batch_size", opt.get("batch_size"))),
        "epochs_planned": _count(opt.get("epochs")),
        "optimizer": _optimizer(opt.get("optimizer")) or ({True: "Adam", False: "SGD"}[adam] if isinstance(adam, bool) else None),
        "multi_scale": _scales(opt.get("multi_scale")),
        "resumed": _truthy(opt.get("resume")) or None,
        **_common(opt),
    }


def _common(args: Mapping[str, Any]) -> dict[str, Any]:
    seed, rect = args.get("seed"), args.get("rect")
    return {
        "save_dir": _string(args.get("save_dir")),
        "name": _string(args.get("name")),
        "seed": seed if type(seed) is int and abs(seed) < 2**63 else None,
        "rect": rect if isinstance(rect, bool) else None,
        "gpus": _gpus(args.get("device")),
    }


def _family(opt: Mapping[str, Any]) -> str:
    """YOLOv9 and YOLOv7 began as copies of YOLOv5: told by the options each added, else by the names of their files."""
    if "close_mosaic" in opt and ("min_items" in opt or "flat_cos_lr" in opt):
        return "yolov9"
    if "v5_metric" in opt:
        return "yolov7"
    names = " ".join(str(opt.get(key)).lower() for key in ("cfg", "weights"))
    if "yolov7" in names or "yolov5" in names:
        return "yolov7" if "yolov7" in names else "yolov5"
    return "yolov7" if "total_batch_size" in opt or isinstance(opt.get("img_size"), list | tuple) else "yolov5"


def _string(value: Any) -> str | None:
    return value.strip()[:1000] or None if isinstance(value, str) else None


def _truthy(value: Any) -> bool:
    return isinstance(value, bool | str) and value not in (False, "", "False", "false", "None", "null")


def _count(value: Any) -> int | None:
    """A whole number above 0; no boolean, no fraction."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 2**31:
        return None
    return int(value) if value == int(value) else None


def _positive(value: Any) -> float | None:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if number and 0 < value < 1e12 else None


def _side(value: Any, choose: Callable[[list[int]], int]) -> int | None:
    """The side of the square that is trained on, rounded up to the stride as trainers do.

    Of a list Ultralytics trains on the larger (and warns); `opt` writes [train, test].
    """
    sides = [_count(side) for side in value] if isinstance(value, list | tuple) else [_count(value)]
    known = [side for side in sides if side is not None]
    if not 1 <= len(sides) <= 2 or len(known) != len(sides):
        return None
    return math.ceil(choose(known) / _STRIDE) * _STRIDE


def _stem(value: Any) -> str | None:
    """The architecture in `yolo11n.yaml`, `weights/yolov5s.pt`. Null for `last.pt`, `best.pt`: it is gone from the name."""
    if isinstance(value, list | tuple) and value:
        value = value[0]
    name = re.split(r"[/\\]", value.strip())[-1] if isinstance(value, str) else ""
    stem = _SUFFIX.sub("", name)
    return stem[:200] if stem and not _CHECKPOINT.fullmatch(stem) else None


def _own_checkpoint(model: Any, save_dir: Any) -> bool:
    """Whether the model is `<save_dir>/weights/last.pt`; one of the two may be relative."""
    if not isinstance(model, str) or not isinstance(save_dir, str):
        return False
    home, _, rest = model.replace("\\", "/").rpartition("/weights/")
    folder = save_dir.replace("\\", "/").rstrip("/")
    if rest != "last.pt" or not home or not folder:
        return False
    return f"/{folder}".endswith(f"/{home}") or f"/{home}".endswith(f"/{folder}")


def _optimizer(value: Any) -> str | None:
    name = _string(value)
    return None if name is None or name.lower() == "auto" else name


def _precision(value: Any) -> str | None:
    if isinstance(value, bool):
        return "amp" if value else "fp32"
    return _PRECISIONS.get(value.strip().lower()) if isinstance(value, str) else None


def _scales(value: Any) -> bool | None:
    """Booleans up to 8.3, since then a float (0.0 is off)."""
    return value if isinstance(value, bool) else bool(value > 0) if isinstance(value, int | float) else None


def _gpus(value: Any) -> int | None:
    """`0` is one GPU, `"0,1,2,3"` and `[0, 1, 2, 3]` are four; the CPU and what is left to the trainer are null."""
    if isinstance(value, list | tuple):
        value = ",".join(str(item) for item in value)
    if type(value) is int:
        return 1 if -1 <= value < 1000 else None
    text = value.strip().strip("()[]") if isinstance(value, str) else ""
    return len([part for part in text.split(",") if part.strip()]) if _DEVICES.fullmatch(text) else None
