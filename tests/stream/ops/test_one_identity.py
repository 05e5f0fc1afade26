"""No two rows that are said together have the same identity: of such two, chance would decide which one a table keeps."""

from __future__ import annotations

import sys
from collections import Counter
from datetime import UTC, datetime
from itertools import combinations
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from _replayed import NODE, facts_of  # needs the line above

from yolometer_core.events import Epoch, Row, Settle
from yolometer_stream.ops.run import OPERATOR

CASES = Path(__file__).parents[2] / "cases" / "replay"


def said_of(folder: Path, names: tuple[str, ...]) -> list[Row]:
    """What is said of some of the files of a training, read as a whole."""
    state = OPERATOR.start()
    facts = [fact for name, said in sorted(facts_of(folder).items()) if name in names for fact in said]
    for fact in facts:
        state, _ = OPERATOR.step(state, fact)
    settle = Settle(ts=datetime.now(UTC), node=NODE, source="test", seq=0, place=facts[0].place)
    return [event for event in OPERATOR.step(state, settle)[1] if isinstance(event, Row)]


def test_an_epoch_that_was_killed_and_a_row_of_its_resume() -> None:
    """Where the log of the resume is not at hand, its row in the table is a try after the one that the first log tells."""
    folder = CASES / "ultralytics-8.0.40-resume-after-kill"
    names = tuple(sorted(facts_of(folder)))
    beside = 0
    for some in (some for count in range(1, len(names) + 1) for some in combinations(names, count)):
        rows = said_of(folder, some)
        assert not [name for name, count in Counter(row.event_id for row in rows).items() if count > 1], some
        beside += sum(isinstance(row, Epoch) and row.take == 1 and row.kept for row in rows)
    assert beside
