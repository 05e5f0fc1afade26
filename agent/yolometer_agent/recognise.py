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
    texts = [plain(record) for record in records]
    if best_format(formats, "\n".join(texts), whole=False) is None:
        return None
    low, high = 1, len(texts)
    while low < high:
        middle = (low + high) // 2
        if best_format(formats, "\n".join(texts[:middle]), whole=False) is None:
            low = middle + 1
        else:
            high = middle
    found = best_format(formats, "\n".join(texts[:high]), whole=False)
    return found[0] if found else None
