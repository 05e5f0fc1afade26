"""Console of the package `ultralytics` 8.0 and newer (YOLOv8, 11, 12, 26, RT-DETR), any task; epochs count from 1."""

from __future__ import annotations

import re

from yolometer_agent.formats._yolo_console import YoloConsole

_STRONG = re.compile(r"(?:yolo/)?engine/trainer: .*\bmode=train\b|^[ \t]*Ultralytics (?:YOLOv)?\d+\.\d+\.\d+ ", re.M)
_FRAME = re.compile(r"^[ \t]*[1-9]\d*/\d+[ \t]+[\d.e+]+[GM][ \t].*:[ \t]+\d+%", re.M)
_FRAME_ZERO = re.compile(r"^[ \t]*0/\d+[ \t]+[\d.e+]+[GM][ \t].*:[ \t]+\d+%", re.M)
_HEADER = re.compile(r"^[ \t]*Epoch[ \t]+GPU_mem[ \t]+(?:\S*_loss|loss)\b.*\bInstances[ \t]+Size[ \t]*$", re.M)


def _recognise(head: str) -> int:
    if _STRONG.search(head):
        return 95
    if _FRAME_ZERO.search(head) or "obj_loss" in head or "YOLOv5" in head:
        return 0
    if _FRAME.search(head):
        return 70
    return 40 if _HEADER.search(head) else 0


FORMAT = YoloConsole("ultralytics", 1, _recognise)
