"""The lines that the YOLO trainers of the Ultralytics line print: frames of a bar, rows of a validation, settings.

Pure text to values; what the lines mean for an epoch is in _yolo_console. Shapes: docs/formats.md.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from yolometer_agent.formats._text import clock_s, number

_VALUE = r"[-+]?(?:nan|inf|\d+\.?\d*(?:e[-+]?\d+)?)"
# one class for all the numbers: a pattern of numbers here could be split in many ways, and take for ever to fail
_FRAME = re.compile(
    r"^\s*(?P<epoch>\d+)/(?P<last>\d+)\s*(?P<mem>\d[\d.]*(?:e\+\d+)?)(?P<unit>[GMK])i?B?"
    r"(?P<values>[-+\d.einfa\s]*)(?P<cut>…?):\s",
    re.I,
)
_BAR = re.compile(r"\d+%(?:\|.*?\||[^\d\[\]|]*?)\s*(?P<done>\d+)/(?P<total>\d+)(?=[\s\[]|$)(?P<rest>.*)")
_TQDM = re.compile(r"\[(?P<elapsed>[\d:]+)<[^,\]]*(?:,\s*(?P<rate>[\d.]+)(?P<unit>it/s|s/it))?")
_OWN = re.compile(
    r"(?:(?P<rate>[\d.]+)(?P<scale>[KMG]?)(?P<unit>it/s|s/it))?\s*(?P<elapsed>\d+:\d\d(?::\d\d)?|[\d.]+s)(?:<|\s|$)"
)
_PLAIN = re.compile(r"^\s*(?P<elapsed>\d\d:\d\d(?::\d\d)?)\b")
_WIDTHS = (11, 10, 12)
LONGEST_LINE = 1000
"""No bar is longer; what follows is something else that was printed into the line."""
_UNITS = {"K": 1e3, "M": 1e6, "G": 1e9}


class Bar(NamedTuple):
    """The right half of a frame: how many of how many, how long so far (s), how coarse that is, how coarse the clock is (s)."""

    done: int
    total: int
    elapsed_s: float | None = None
    resolution_s: float | None = None
    clock_resolution_s: float | None = None


class Frame(NamedTuple):
    """One redraw of a training bar: epoch numbers as printed, running losses, size of the last batch (px)."""

    epoch: int
    last: int
    memory_g: float
    values: tuple[float | None, ...]
    width_px: int | None
    bar: Bar


def _plain_number(text: str) -> float | None:
    """A number of nothing but digits and a point, sooner than by a pattern."""
    return float(text) if text.isascii() and text.replace(".", "", 1).isdigit() else None


def _loss(text: str) -> float | None:
    plain = _plain_number(text)
    return number(text) if plain is None else plain


def bar_of(text: str) -> Bar | None:
    """Read `33% ━━─ 1/3 2.7it/s 0.3s<0.7s`, `33%|███ | 1/3 [00:00<00:00, 3.1it/s]` or `33%|███ | 1/3 00:00`."""
    found = _BAR.search(text[:LONGEST_LINE])
    if not found:
        return None
    done, total, rest = int(found["done"]), int(found["total"]), found["rest"]
    timed = ("[" in rest and _TQDM.search(rest)) or _PLAIN.match(rest) or _OWN.search(rest)
    if not timed:
        return Bar(done, total)
    printed = timed["elapsed"]
    elapsed = _plain_number(printed[:-1]) if printed.endswith("s") else None
    elapsed = clock_s(printed) if elapsed is None else elapsed
    if elapsed is None:
        return Bar(done, total)
    resolution = 0.1 if printed.endswith("s") else 1.0
    if not done or done != total:
        return Bar(done, total, elapsed, resolution, resolution)
    groups = timed.groupdict()
    rate = number(groups.get("rate") or "")
    if rate:
        # the average rate of a complete bar is finer than its clock; it counts only where both agree
        rate *= _UNITS.get(groups.get("scale") or "", 1.0)
        finer = done / rate if groups["unit"] == "it/s" else done * rate
        if abs(finer - elapsed) <= resolution and printed.endswith("s"):
            return Bar(done, total, finer, min(resolution, finer * 0.05), resolution)
    return Bar(done, total, elapsed, resolution, resolution)


def _split(values: str, columns: int | None) -> list[str]:
    """Columns by blanks; where a wide number ate the blank between two columns, by their width."""
    parts = values.split()
    if columns is None or len(parts) >= columns:
        return parts
    for width in _WIDTHS:
        if len(values) == width * columns:
            return [values[at : at + width].strip() for at in range(0, len(values), width)]
    return parts


def frame_of(text: str, columns: int | None = None) -> Frame | None:
    """Read a frame of a training bar; `columns` is how many numbers follow the memory (from the header), if known."""
    found = _FRAME.match(text[:LONGEST_LINE])
    if not found:
        return None
    bar = bar_of(text[found.end() - 1 :])
    if bar is None:
        return None
    parts = _split(found["values"], columns)
    memory = float(found["mem"]) * _UNITS[found["unit"].upper()] / 1e9
    whole = not found["cut"] and len(parts) >= 3 and parts[-1].isdigit() and (columns is None or len(parts) == columns)
    if not whole:
        losses = tuple([_loss(part) for part in parts[: (columns or 2) - 2]])
        return Frame(int(found["epoch"]), int(found["last"]), memory, losses, None, bar)
    losses = tuple([_loss(part) for part in parts[:-2]])
    return Frame(int(found["epoch"]), int(found["last"]), memory, losses, int(parts[-1]), bar)


_HEADER = re.compile(r"^\s*Epoch\s+gpu_mem\s+(?P<names>.*\S)\s*$", re.I)


def header_columns(text: str) -> int | None:
    """How many numbers follow epoch and memory, from a header line `Epoch GPU_mem box_loss ... Instances Size`."""
    found = _HEADER.match(text)
    return len(found["names"].split()) if found else None


_VALIDATION = re.compile(r"^\s*(?P<names>(?:Class\s+Images\s+\S+|classes\s+top1_acc)\b.*?)\s*(?:…\s*)?:\s+(?=\d+%)")


def validation_bar(text: str) -> tuple[str, Bar] | None:
    """Read a validation bar: (its column names, the bar)."""
    found = _VALIDATION.match(text[:LONGEST_LINE])
    if not found:
        return None
    bar = bar_of(text[found.end() :])
    return (found["names"], bar) if bar else None


_ALL = re.compile(r"^\s*all((?:\s+" + _VALUE + r")+)\s*$", re.I)


def all_row(text: str) -> list[float | None] | None:
    """The numbers of an `all` row, from left to right."""
    found = _ALL.match(text)
    return [number(part) for part in found[1].split()] if found else None


def metrics_of(names: str, values: list[float | None]) -> dict[str, Any]:
    """Metrics of an `all` row under the column names of its bar: images, map50, map50_95, top1 (ratios)."""
    if names.lstrip().startswith("classes") or (not names and len(values) == 2):
        return {"top1": values[0]} if len(values) == 2 else {}
    images = values[0] if values else None
    said: dict[str, Any] = {"images": int(images)} if images is not None and images == int(images) else {}
    if ("mAP" in names or not names) and len(values) in (6, 10):
        said |= {"map50": values[4], "map50_95": values[5]}
    return said


_SCAN = re.compile(r"^\s*(?P<split>train|val):\s*Scanning\b(?P<said>.*)$")
_CORRUPT = re.compile(r"(\d+) corrupt(?:ed)?\b")
_FOR_IMAGES = re.compile(r"for (\d+) images\)")
_CLASS_FOLDER = re.compile(r"^\s*(?P<split>train|val):.*\bfound (?P<images>\d+) images in \d+ classes")


def scanned_images(text: str) -> tuple[str, int] | None:
    """("train" or "val", usable images) from a finished scan of a data set: all files less the corrupt ones."""
    folder = _CLASS_FOLDER.match(text)
    if folder:
        return folder["split"], int(folder["images"])
    found = _SCAN.match(text)
    if not found:
        return None
    corrupt = _CORRUPT.search(found["said"])
    lost = int(corrupt[1]) if corrupt else 0
    bar = bar_of(found["said"])
    if bar and bar.done == bar.total and bar.total:
        return found["split"], bar.total - lost
    old = _FOR_IMAGES.search(found["said"])
    return (found["split"], int(old[1]) - lost) if old else None


_PAIR = re.compile(r",\s+(?=[A-Za-z_]\w*=)")
_NAMESPACE = re.compile(r"(\w+)=('[^']*'|\"[^\"]*\"|\[[^\]]*\]|\([^)]*\)|[^,()]*)")


def scalar(text: str) -> Any:
    """A printed Python value: None, booleans, numbers, quoted text, short lists; everything else stays text."""
    text = text.strip()
    if text in ("None", "True", "False"):
        return {"None": None, "True": True, "False": False}[text]
    if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"":
        return text[1:-1]
    if text.startswith("[") and text.endswith("]"):
        inner = text[1:-1].strip()
        return [scalar(part) for part in inner.split(",")] if inner else []
    if re.fullmatch(r"[-+]?\d+", text):
        return int(text)
    value = number(text)
    return text if value is None else value


def arguments(text: str) -> dict[str, Any]:
    """`key=value, key=value` as Ultralytics and YOLOv5 print it, or `Namespace(key='value', ...)` as YOLOv7 does."""
    inner = text[text.index("(") + 1 : -1] if text.startswith("Namespace(") and text.endswith(")") else None
    if inner is not None:
        return {key: scalar(value) for key, value in _NAMESPACE.findall(inner)}
    pairs = (part.partition("=") for part in _PAIR.split(text))
    return {key.strip(): scalar(value) for key, sign, value in pairs if sign}
