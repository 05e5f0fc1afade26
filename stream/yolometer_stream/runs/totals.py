"""Totals: what a run adds up over its lines, one line after the other, so that closed lines need not be added again."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

from yolometer_stream.runs.account import Line


def plus(total: float | None, value: float | None) -> float | None:
    """The sum; null when any part is unknown."""
    return None if total is None or value is None else total + value


@dataclass(frozen=True)
class Best:
    """The highest value of a metric so far, and the first line that has it."""

    score: float
    epoch: int
    holders: int = 1
    vague: bool = False
    """Whether a holder shows a rounded figure, so that equals may not be equal."""


def _better(best: Best | None, score: float, line: Line) -> Best:
    vague = line.row is None and not (line.evaluation or {}).get("exact")
    if best is None or score > best.score:
        return Best(score, line.epoch, 1, vague)
    if score == best.score:
        return replace(best, holders=best.holders + 1, vague=best.vague or vague)
    return best


@dataclass
class Totals:
    """Sums over lines in the order of the books. Tokens, images; null is unknown."""

    kept: int = 0
    kept_from: int | None = None
    kept_to: int | None = None
    tokens: float | None = 0.0
    images: float | None = 0.0
    first_pixels: float | None = None
    """Pixels of an image in the first kept line, where they are exact."""
    estimated: bool = False
    wasted: float | None = 0.0
    wasted_by: dict[str, float | None] = field(default_factory=lambda: {"oom_retry": 0.0, "nan_replay": 0.0, "killed": 0.0})
    validated: float | None = 0.0
    map50_95: Best | None = None
    top1: Best | None = None
    endless: bool = False
    size: tuple[int | None, int | None] = (None, None)
    """(height, width) of the images as the last bar that shows them does."""
    memory_bytes: int = 0

    def copy(self) -> Totals:
        """The same again, to go on with."""
        return replace(self, wasted_by=dict(self.wasted_by))

    def add(self, line: Line, val_tokens: float | None) -> None:
        """Add the next line, which is judged and measured; `val_tokens` are those of its validation."""
        progress = line.progress
        if progress:
            self.memory_bytes = max(self.memory_bytes, progress.get("gpu_memory_bytes") or 0)
            if progress.get("width_px"):
                self.size = (progress.get("height_px"), progress["width_px"])
        if line.evaluation is not None:
            self.validated = plus(self.validated, val_tokens)
        self.endless = self.endless or line.epoch == 0
        if line.kept:
            self._keep(line)
        elif line.why_wasted is not None:
            why = "killed" if line.why_wasted == "redone" else line.why_wasted
            self.wasted = plus(self.wasted, line.tokens)
            self.wasted_by[why] = plus(self.wasted_by[why], line.tokens)

    def _keep(self, line: Line) -> None:
        if not self.kept:
            self.first_pixels = None if line.estimated else line.pixels
        self.kept += 1
        self.kept_from = line.epoch if self.kept_from is None else min(self.kept_from, line.epoch)
        self.kept_to = line.epoch if self.kept_to is None else max(self.kept_to, line.epoch)
        self.tokens = plus(self.tokens, line.tokens)
        self.images = plus(self.images, line.images)
        self.estimated = self.estimated or line.estimated
        score, top = line.metric("map50_95"), line.metric("top1")
        if score is not None and not math.isnan(score):
            self.map50_95 = _better(self.map50_95, score, line)
        if top is not None:
            self.top1 = _better(self.top1, top, line)
