"""Audit: is everything there? Asks the store what is missing from agents to rollups, and Kafka what waits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from yolometer.box import operators
from yolometer_core.kafka import KafkaConfig
from yolometer_sinks.stores._base import Store, Table
from yolometer_sql.catalog import AUDIT, Query, catalog
from yolometer_stream.handle import topics_of
from yolometer_stream.runs.rows import Terms

MOST_ROWS = 20


@dataclass(frozen=True)
class Check:
    """The answer to one question: all rows, and how much of it is missing."""

    name: str
    question: str
    table: Table
    missing: int
    units: Mapping[str, str] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        return self.missing == 0

    def worst(self) -> Table:
        """The rows with something missing, or those of a total; not more than a person reads."""
        at = self.table.columns.index("missing")
        bad = [row for row in self.table.rows if row[at]]
        return Table(self.table.columns, (bad or self.table.rows)[:MOST_ROWS])


def audit(store: Store, since: datetime, until: datetime, kafka: KafkaConfig | None = None) -> list[Check]:
    """Ask every question for a time (UTC); with `kafka` also what waits there. Nothing is changed.

    Raises StoreUnavailable or Unavailable when one of them cannot be asked: an audit that saw half says nothing.
    """
    params = {"since": _text(since), "until": _text(until)}
    checks = [_asked(store, query, params) for query in catalog(AUDIT).values()]
    return [*checks, *([backlog(kafka)] if kafka else [])]


def _asked(store: Store, query: Query, params: Mapping[str, str]) -> Check:
    table = store.query(*query.bind(params))
    at = table.columns.index("missing")
    units = {column.name: column.unit for column in query.columns}
    return Check(query.name, query.question, table, sum(int(row[at]) for row in table.rows), units)


def reads() -> dict[str, Sequence[str]]:
    """The topics that each service reads, without the prefix."""
    from yolometer_sinks.service import topics  # brings the client of Kafka

    return {"stream": topics_of(operators(Terms())), "sink": topics()}


def backlog(kafka: KafkaConfig) -> Check:
    """How far the services are behind, and what Kafka removed before they had read it: only the latter is missing."""
    from yolometer.admin import positions

    rows: list[tuple[Any, ...]] = []
    for service, topic, partition, done, first, end in positions(kafka, reads()):
        position = first if done is None else done
        rows.append((service, topic, partition, max(0, end - position), max(0, first - position)))
    columns = ("source", "topic", "partition", "waiting", "missing")
    return Check(
        "backlog",
        "What waits in Kafka, and what did it remove before it was read?",
        Table(columns, sorted(rows, key=lambda row: (-row[4], -row[3], row))),
        sum(row[4] for row in rows),
        {"waiting": "messages", "missing": "messages"},
    )


def _text(time: datetime) -> str:
    return time.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")
