"""Console of YOLOv7, and of YOLOR and YOLOv5 v1 to v5, which share its eight columns; epochs count from 0."""

from __future__ import annotations

import re

from yolometer_agent.formats._yolo_console import YoloConsole

_BANNER = re.compile(r"^(?:YOLOR 🚀|YOLOv7 🚀)", re.M)
_ARGUMENTS = re.compile(r"^Namespace\(.*\bimg_size=\[", re.M)
_HEADER = re.compile(
    r"^[ \t]*Epoch[ \t]+gpu_mem[ \t]+(?:box|GIoU)[ \t]+obj[ \t]+cls[ \t]+total[ \t]+(?:labels|targets)[ \t]+img_size[ \t]*$",
    re.M,
)


def _recognise(head: str) -> int:
    if _BANNER.search(head) or _ARGUMENTS.search(head):
        return 95
    return 80 if _HEADER.search(head) else 0


FORMAT = YoloConsole("yolov7", 0, _recognise)
