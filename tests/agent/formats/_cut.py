"""How format tests read data: whole, cut anywhere with the state through JSON, and without the progress in between."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

from yolometer_agent.formats._base import Format, Found, State
from yolometer_core.events import Fact, Progress

CASES = Path(__file__).resolve().parents[2] / "cases" / "formats"


def records_of(fmt: Format, data: bytes) -> list[bytes]:
    """The complete records of a file; what follows the last line end is not complete."""
    return [data] if fmt.whole_document else re.split(rb"[\r\n]", data)[:-1]


def event_of(found: Found, seq: int = 0) -> Fact:
    """The event that an agent makes of a fact: it must be valid."""
    where = {"ts": datetime.now(UTC), "node": "n", "source": "s", "seq": seq, "place": "p", "session": found.session}
    return found.kind(**where, **found.fields)


def facts_of(fmt: Format, data: bytes, cuts: Sequence[int] = ()) -> list[Found]:
    """Every fact of a file whose records come in calls that end at `cuts`; the state goes through JSON between two."""
    return [found for _, found in indexed_of(fmt, data, cuts)]


def indexed_of(fmt: Format, data: bytes, cuts: Sequence[int] = ()) -> list[tuple[int, Found]]:
    """The same with the number of the record that says it. Every fact is checked to make an event."""
    records, state, out = records_of(fmt, data), fmt.start(), []
    bounds = [0, *sorted(cut for cut in set(cuts) if 0 < cut < len(records)), len(records)]
    for begin, end in pairwise(bounds):
        before = json.dumps(state, allow_nan=False)
        for record in records[begin:end][:1]:
            fmt.peek(state, record)
        assert json.dumps(state, allow_nan=False) == before, "peek changed the state"
        told = fmt.fold(state, records[begin:end])
        state = _through_json(state)
        assert [index for index, _ in told] == sorted(index for index, _ in told)
        assert all(0 <= index < end - begin for index, _ in told)
        out += [(begin + index, found) for index, found in told]
    for seq, (_, found) in enumerate(out):
        event_of(found, seq)
    return out


def essence(facts: Sequence[Found]) -> list[str]:
    """Facts as text, without progress that later progress of the same epoch overtakes."""
    last: dict[Any, int] = {}
    for number, found in enumerate(facts):
        if found.kind is Progress:
            last[_epoch(found)] = number
    kept = [
        found
        for number, found in enumerate(facts)
        if found.kind is not Progress or _complete(found) or last[_epoch(found)] == number
    ]
    return [f"{found.kind.__name__} {found.session} {sorted(found.fields.items())}" for found in kept]


def fields(facts: Sequence[Found], kind: type[Fact], session: int | None = None) -> list[dict[str, Any]]:
    """The fields of the facts of one kind, of one session or of all."""
    return [found.fields for found in facts if found.kind is kind and session in {None, found.session}]


def learned(facts: Sequence[Found], kind: type[Fact], session: int = 0) -> dict[str, Any]:
    """All that the settings of a session say together; what is said later holds."""
    together: dict[str, Any] = {}
    for found in fields(facts, kind, session):
        together.update(found)
    return together


def _epoch(found: Found) -> Any:
    return found.session, found.fields.get("epoch"), found.fields.get("take", 0)


def _complete(found: Found) -> bool:
    return bool(found.fields["iterations_done"] == found.fields.get("iterations_total"))


def _through_json(state: State) -> State:
    loaded: State = json.loads(json.dumps(state, allow_nan=False))
    return loaded
