"""Which format a file has: decided once, by the first records that leave no doubt, so how they arrived does not matter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from yolometer_agent.formats._base import Format
from yolometer_agent.formats._text import plain

SURE = 50
HEAD_BYTES = 65_536


def best_format(formats: Mapping[str, Format], head: str, *, whole: bool) -> tuple[str, int] | None:
    """The most certain format of a head among those for whole documents (or among the others); None when none is sure."""
    scores = [(fmt.recognise(head), name) for name, fmt in formats.items() if fmt.whole_document == whole]
    score, name = max(scores, default=(0, ""))
    return (name, score) if score >= SURE else None


def decide(formats: Mapping[str, Format], records: Sequence[bytes]) -> str | None:
    """The format that the shortest beginning of `records` is sure of; None when even all of them leave it open."""
    texts: list[str] = []
    found, low, high = None, 1, 1
    while found is None and len(texts) < len(records):
        low, high = len(texts) + 1, min(max(2 * len(texts), 1), len(records))
        texts += map(plain, records[len(texts) : high])
        found = best_format(formats, "\n".join(texts), whole=False)
    while found is not None and low < high:
        middle = (low + high) // 2
        sooner = best_format(formats, "\n".join(texts[:middle]), whole=False)
        low, high, found = (middle + 1, high, found) if sooner is None else (low, middle, sooner)
    return found[0] if found else None
