"""Console of YOLOv5 (repository and package) and of YOLOv9, which kept its shape; epochs count from 0."""

from __future__ import annotations

import re

from yolometer_agent.formats._yolo_console import YoloConsole

_ARGUMENTS = re.compile(r"^(?:\w+/)?train(?:_\w+)?: (?:weights|model)=.*\bbatch_size=", re.M)
_BANNER = re.compile(r"^YOLO(?:v[359])? 🚀 \S+", re.M)
_FRAME_ZERO = re.compile(r"^[ \t]*0/\d+[ \t]+[\d.e+]+[GM][ \t].*:[ \t]+\d+%", re.M)
_FRAME = re.compile(r"^[ \t]*\d+/\d+[ \t]+[\d.e+]+[GM][ \t].*:[ \t]+\d+%", re.M)
_HEADER = re.compile(r"^[ \t]*Epoch[ \t]+gpu_mem[ \t]+.*\b(?:obj_loss|obj|top1_acc)\b", re.M | re.I)


def _recognise(head: str) -> int:
    if "YOLOR 🚀" in head or "Namespace(" in head:
        return 0
    if _ARGUMENTS.search(head):
        return 95
    if _BANNER.search(head):
        return 85
    header = _HEADER.search(head)
    if header and "total" in header[0]:
        return 55
    if header:
        return 75
    return 65 if _FRAME_ZERO.search(head) else 0


FORMAT = YoloConsole("yolov5", 0, _recognise)
