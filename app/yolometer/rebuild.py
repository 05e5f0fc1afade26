"""Rebuild: the state of a place from the facts that a store holds, for a worker of the stream that lost it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from yolometer.box import told_by
from yolometer_core.events import Evaluation, Fact, Incident, Progress, ResultRow, Setting, Settle, SourceState
from yolometer_sinks.stores._base import Store
from yolometer_stream.advance import States, advance, has_no_topic
from yolometer_stream.operator import Operator

KINDS: tuple[type[Fact], ...] = (Setting, Progress, Evaluation, ResultRow, Incident, SourceState)
_VIEWS = {kind: f"{kind.table}s" if not kind.table.endswith("s") else f"{kind.table}es" for kind in KINDS}


def rebuild_from(store: Store, operators: Mapping[str, Operator]) -> Callable[[str, str], States | None]:
    """A function of (topic, key) that makes the state of a place again; None for what no store can tell.

    The facts are folded in the order (source, seq) and what follows is thrown away, for it was said before. Then all rows
    that the store holds of the place count as said with unknown content: with the next message the operator says them all
    again, and takes back those that do not follow. Progress inside an epoch is in no store; the next one brings it again.
    StoreUnavailable when the store is away; call it again.
    """

    def rebuild(topic: str, key: str) -> States | None:
        if topic != Fact.topic:
            return None
        bundle: States = {}
        found = False
        for fact in facts_of(store, key):
            found = True
            advance(operators, bundle, fact, goes_on=has_no_topic)
        if not found:
            return None
        settle = Settle(ts=datetime.now(UTC), node="", source="rebuild", seq=0, place=key)
        advance(operators, bundle, settle, goes_on=has_no_topic)
        run = bundle["run"][key]
        told = told_by(store)(key)
        run["said"] = {name: ["", *line[1:]] for name, line in {**told, **run["said"]}.items()}
        run["touched"] = True
        states: States = json.loads(json.dumps(bundle))
        return states

    return rebuild


def facts_of(store: Store, place: str) -> Iterator[Fact]:
    """The facts of a place that a store holds, in the order (source, seq)."""
    facts: list[Fact] = []
    for kind in KINDS:
        names = list(kind.model_fields)
        sql = f"SELECT {', '.join(names)} FROM {_VIEWS[kind]} WHERE place = {{place:String}}"  # noqa: S608  # names of our own
        for row in store.query(sql, {"place": place}).rows:
            fields: dict[str, Any] = dict(zip(names, row, strict=True))
            facts.append(kind.model_validate({name: _value(value) for name, value in fields.items()}))
    yield from sorted(facts, key=lambda fact: (fact.source, fact.seq))


def _value(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value
    return tuple(value) if isinstance(value, list) else value
