"""Demo: captured trainings of several families, played at speed in front of `up`, and what they cost in the end."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from yolometer.feed import Feed, captures
from yolometer.up import Beat, run
from yolometer_core.service.stopping import Stop
from yolometer_sinks.stores._base import Store
from yolometer_sql.catalog import find
from yolometer_stream.runs.rows import Terms


def play(store: Store, terms: Terms, *, seconds: float, stop: Stop, beat: Callable[[Beat], None]) -> None:
    """Play the captures within about `seconds` while the box watches; ends when all is stored."""
    with tempfile.TemporaryDirectory(prefix="yolometer-demo-") as folder:
        runs = Path(folder) / "runs"
        runs.mkdir()
        feed = Feed(captures(), runs, seconds)
        feed.start()

        def tell(seen: Beat) -> None:
            beat(seen)
            if feed.done and not seen.changed:
                stop.set()

        run(store, terms, watch=[str(runs)], node="demo", stop=stop, checkpoint=None, processes=False,
            seconds=seconds + 60, beat=tell)  # fmt: skip
        feed.join(5)


def answers(store: Store) -> dict[str, list[dict[str, Any]]]:
    """The answers that the demo ends with, by query."""
    found = {}
    for name in ("runs", "wasted_tokens"):
        text, bound = find(name).bind({})
        found[name] = store.query(text, bound).dicts()
    return found
