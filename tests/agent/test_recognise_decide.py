"""The format of a head is that of its shortest sure beginning, however it is looked for."""

from __future__ import annotations

import re
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from yolometer.box import formats
from yolometer_agent.formats._text import plain
from yolometer_agent.recognise import best_format, decide

CAPTURES = Path(__file__).resolve().parents[1] / "cases" / "replay"
LOGS = sorted(path for path in CAPTURES.rglob("*") if path.suffix in {".log", ".txt", ".csv", ".json"})
FORMATS = formats()


@given(st.sampled_from(LOGS), st.integers(0, 60), st.integers(0, 80))
def test_it_is_the_format_of_the_shortest_sure_beginning(path: Path, begin: int, many: int) -> None:
    records = [record for record in re.split(rb"[\r\n]", path.read_bytes()[:65536]) if record][begin : begin + many]
    heads = ("\n".join(map(plain, records[:end])) for end in range(1, len(records) + 1))
    first = next((found[0] for head in heads if (found := best_format(FORMATS, head, whole=False))), None)
    assert decide(FORMATS, records) == first
