"""What the lines before the first epoch say about a training of the Ultralytics line: banner, arguments, model, data, devices."""

from __future__ import annotations

import re
from typing import Any

from yolometer_agent.formats import _yolo_lines as lines
from yolometer_agent.formats.settings_yaml import settings_of

_BANNER = re.compile(r"^(?P<who>Ultralytics|YOLOR|YOLO(?:v\d+)?) .*\btorch[- ]\d")
_FAMILIES = {"Ultralytics": "ultralytics", "YOLOR": "yolov7", "YOLO": "yolov9"}
_VERSION = re.compile(r"^(?:Ultralytics (?:YOLOv)?|YOLO\w* (?:🚀 )?v?)(?P<version>\d[\w.\-]*)")
_DEVICE = re.compile(r"\bCUDA:(\d+) \(([^,()]+(?:\([^)]*\)[^,()]*)*),\s*[\d.]+\s*M(?:i?B)?\)")
_TRAINER = re.compile(r"^(?:yolo/)?engine/trainer:\s*(?P<arguments>\w+=.*)$")
_V5_ARGUMENTS = re.compile(r"^(?:classify/|segment/|panoptic/)?train(?:_dual|_triple)?:\s*(?P<arguments>(?:weights|model)=.*)$")
_NAMESPACE = re.compile(r"^Namespace\(.*\)$")
_SUMMARY = re.compile(
    r"^(?P<name>[\w.\-]+|Model)\s+[Ss]ummary:?\s*(?P<fused>\(fused\))?:?\s*\d+ layers,\s*(?P<params>[\d,]+) parameters,"
    r"\s*[\d,]+ gradients(?:,\s*(?P<gflops>[\d.]+) GFLOP[sS])?"
)
_BATCH = re.compile(r"AutoBatch: (?:Using (?:colorstr\()?batch-size (\d+)|.*using default batch-size (\d+))")
_USING = re.compile(r"^Using (\d+) train, (\d+) val images for fraction=[\d.]+ at imgsz=(\d+)")
_SIZES = re.compile(r"^Image sizes (\d+) train, \d+ (?:val|test)")
_RESULTS = re.compile(r"^Logging results to (?P<dir>\S.*)$")
_OPTIMIZER = re.compile(r"^optimizer:\s*([A-Za-z]\w*)\(")
_PROCESSES = re.compile(r"--nproc[_-]per[_-]node[= ](\d+)")


def settings_in(text: str) -> tuple[dict[str, Any], bool]:
    """(Setting fields that a line says, whether the line opens a new training process). The text has no colours."""
    opening = _TRAINER.match(text)
    if opening:
        return settings_of(lines.arguments(opening["arguments"])), True
    older = _V5_ARGUMENTS.match(text)
    if older or _NAMESPACE.match(text):
        fields = settings_of(lines.arguments(older["arguments"] if older else text))
        if fields.get("resumed"):
            # these trainers print the defaults here and take the true arguments from the checkpoint afterwards
            fields = {name: fields[name] for name in ("framework", "resumed") if name in fields}
        return fields, True
    return _of_line(text), False


def _of_line(text: str) -> dict[str, Any]:
    scanned = lines.scanned_images(text)
    if scanned is not None:
        return {"images_per_epoch" if scanned[0] == "train" else "val_images": scanned[1]}
    summary = _SUMMARY.match(text)
    if summary:
        return _of_summary(summary)
    devices = _DEVICE.findall(text)
    banner = _BANNER.match(text)
    if banner or devices:
        return _of_banner(text, banner, devices)
    batch = _BATCH.search(text)
    if batch:
        return {"batch": int(batch[1] or batch[2])}
    using = _USING.match(text)
    if using:
        size = int(using[3])
        return {"images_per_epoch": int(using[1]), "val_images": int(using[2]), "height_px": size, "width_px": size}
    sizes = _SIZES.match(text)
    if sizes:
        return {"height_px": int(sizes[1]), "width_px": int(sizes[1])}
    results = _RESULTS.match(text)
    if results:
        return {"save_dir": results["dir"].strip()}
    optimizer = _OPTIMIZER.match(text)
    if optimizer:
        return {"optimizer": optimizer[1]}
    if text.startswith("AMP: checks failed"):
        return {"precision": "fp32"}
    processes = _PROCESSES.search(text) if text.startswith(("DDP:", "Running DDP")) else None
    return {"gpus": int(processes[1])} if processes else {}


def _of_summary(found: re.Match[str]) -> dict[str, Any]:
    if found["fused"]:
        return {}
    fields: dict[str, Any] = {"params": int(found["params"].replace(",", ""))}
    if found["gflops"]:
        fields["gflops"] = float(found["gflops"])
    if found["name"].lower() not in ("model",):
        fields["model"] = found["name"].lower()
    return fields


def _of_banner(text: str, banner: re.Match[str] | None, devices: list[tuple[str, str]]) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    if banner:
        fields["framework"] = _FAMILIES.get(banner["who"], banner["who"].lower())
        version = _VERSION.match(text)
        if version:
            fields["framework_version"] = version["version"]
    if devices:
        # the other GPUs follow on lines of their own, each with its number
        fields |= {"gpu_model": devices[0][1].strip(), "gpus": int(devices[-1][0]) + 1 if len(devices) == 1 else len(devices)}
    return fields
