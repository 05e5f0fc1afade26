"""What the operator `run` remembers: the facts of one place, by source and session, each once, in JSON.

Everything here is idempotent: the same fact again, or an older one, changes nothing.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from yolometer_core.events import Evaluation, Fact, Incident, Progress, ResultRow, Setting, SourceState

State = dict[str, Any]

_ENVELOPE = {"schema_version", "ts", "node", "source", "seq", "place", "session"}

LOOKED_BACK = 3
"""Among so many last tries of a session a Progress looks for the one it goes on with."""


def start() -> State:
    """Nothing known of a place: its sources, and the rows that were already said (by id, with a digest)."""
    return {"sources": {}, "said": {}, "work": {}, "touched": False}


def remember(state: State, event: Fact) -> None:
    """Add a fact. A `seq` that its source has passed is ignored."""
    source = state["sources"].setdefault(event.source, _source())
    fields = told(event)
    stamp = event.ts.timestamp()
    if isinstance(event, SourceState):
        if event.seq >= source["state_seq"]:
            source |= {"state_seq": event.seq, "role": event.role, "path": event.path, "format": event.format,
                       "open": event.open_for_writing, "size": event.size_bytes, "state_ts": stamp}  # fmt: skip
            state["touched"] = True
        return
    if event.seq <= source["seq"]:
        return
    source["seq"] = event.seq
    source["node"] = event.node
    state["touched"] = True
    session = source["sessions"].setdefault(str(event.session), _session(stamp))
    session["last_ts"] = max(session["last_ts"], stamp)
    if isinstance(event, Setting):
        session["settings"] |= {k: v for k, v in fields.items() if k != "role"}
        if "role" in fields:
            source["role"] = source["role"] or event.role
    elif isinstance(event, Progress):
        _progress(session, event, fields, stamp)
    elif isinstance(event, Evaluation):
        session["evaluations"].append([event.epoch, event.take, fields | {"ts": stamp}])
    elif isinstance(event, ResultRow):
        source["rows"].append(fields | {"losses": list(event.losses), "ts": stamp})
    elif isinstance(event, Incident):
        session["incidents"].append(fields | {"ts": stamp, "after": len(session["tries"])})


def told(event: Fact) -> dict[str, Any]:
    """What a fact says, apart from who said it and when; unknown fields are left out."""
    said = event.__dict__
    return {name: value for name in _names(type(event)) if (value := said[name]) is not None}


@cache
def _names(kind: type[Fact]) -> tuple[str, ...]:
    return tuple(name for name in kind.model_fields if name not in _ENVELOPE)


def _source() -> State:
    return {"seq": -1, "state_seq": -1, "role": None, "path": None, "format": None, "open": None, "size": None, "node": None,
            "state_ts": None, "sessions": {}, "rows": []}  # fmt: skip


def _session(stamp: float) -> State:
    return {"settings": {}, "tries": [], "evaluations": [], "incidents": [], "first_ts": stamp, "last_ts": stamp}


def _progress(session: State, event: Progress, fields: dict[str, Any], stamp: float) -> None:
    """A try is known by (epoch, take); a later fact of the same try replaces an earlier one."""
    tries: list[dict[str, Any]] = session["tries"]
    entry = {"epoch": event.epoch, "take": event.take, **fields, "ts": stamp}
    if "losses" in entry:
        entry["losses"] = list(entry["losses"])
    for at in range(len(tries) - 1, max(-1, len(tries) - 1 - LOOKED_BACK), -1):
        if tries[at]["epoch"] == event.epoch and tries[at]["take"] == event.take:
            entry["first_ts"] = tries[at]["first_ts"]
            tries[at] = entry
            return
    entry["first_ts"] = stamp
    tries.append(entry)
