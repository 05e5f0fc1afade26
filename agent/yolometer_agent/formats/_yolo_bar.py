"""The bar of an epoch in the consoles of the Ultralytics line: telling its redraws apart quickly, and measuring what it shows."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import compress, count, repeat
from operator import itemgetter, ne
from typing import Any, NamedTuple

from yolometer_agent.formats._base import State


class Redraw(NamedTuple):
    """A bar as bytes: what its redraws begin with, the size of the batches, how a full one ends, where the size stood last."""

    lead: bytes
    size: bytes
    end: bytes
    at: int

    def redraws(self, records: Sequence[bytes]) -> int:
        """How many of the records, from the first on, redraw the bar with the size at the same place and do not fill it.

        A call in Python for each record costs more than all else, so the records are compared as a whole.
        """
        lead, size = self.lead, self.size
        heads = list(map(itemgetter(slice(len(lead))), records))
        if heads.count(lead) < len(heads):
            records = records[: next(compress(count(), map(ne, heads, repeat(lead))))]
        sizes = list(map(itemgetter(slice(self.at, self.at + len(size))), records))
        if sizes.count(size) < len(sizes):
            records = records[: next(compress(count(), map(ne, sizes, repeat(size))))]
        together = b"\n".join(records)
        full = together.find(self.end)
        return len(records) if full < 0 else together.count(b"\n", 0, full)

    def again(self, record: bytes) -> bool:
        """Whether the record redraws the bar with the size at any place, and does not fill it."""
        return record.startswith(self.lead) and self.size in record and self.end not in record


def giga(state: State, text: str) -> float:
    """Bytes of the G that the memory column counts in: Ultralytics prints GiB from 8.3.76 on, everything else GB."""
    drawn_by_itself = "━" in text or "─" in text
    return 2.0**30 if drawn_by_itself or (state["framework"] == "ultralytics" and state["version"] >= [8, 3, 76]) else 1e9


def version(text: str) -> list[int]:
    """The first numbers of a version: [8, 3, 76] of `8.3.76`."""
    return [int(part) for part in text.split(".")[:3] if part.isdigit()]


def measure(bar: dict[str, Any], width_px: int) -> None:
    """Keep the sum of W x W over the iterations so far. Not every batch is drawn, so with varying sizes it is an estimate:
    the iterations since the last redraw count as the size it shows, but the first, whose size the bar shows at 0."""
    if bar["width"] is not None and bar["width"] != width_px:
        bar["varied"] = True
    bar["width"] = width_px
    passed = bar["done"] - bar["upto"]
    if bar["done"] == 0:
        bar["first"] = width_px
    elif passed > 0:
        ahead = bar["first"] if bar["upto"] == 0 and bar["first"] else width_px
        bar["px2"] += ahead * ahead + (passed - 1) * width_px * width_px
        bar["upto"] = bar["done"]
