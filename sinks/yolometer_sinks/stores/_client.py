"""The part that all ClickHouse stores share: events through Arrow into tables, SQL out, over one clickhouse-connect client."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]  # ships no types

from yolometer_core.errors import BadUsage, EmptyStore
from yolometer_core.events import Event
from yolometer_sinks.stores._arrow import tables
from yolometer_sinks.stores._base import Table
from yolometer_sinks.stores._errors import foreign
from yolometer_sql import migrate

# An insert returns when its rows are in the table, not when they are in a queue of the server.
INSERT_SETTINGS = {"async_insert": "0"}
PARTITIONED = frozenset({"coverage", "gpu", "message", "rate"})
"""The tables whose rows lie in partitions, by the day or the month of their ts."""
MOST_DAYS = 50
"""An insert reaches no more partitions: a server refuses one with more than 100."""
_DAY_MS = 86_400_000


def insert_arrow(client: Any, table: str, batch: Any) -> None:
    """Insert one Arrow table over HTTP."""
    client.insert_arrow(table, batch, settings=INSERT_SETTINGS)


def sliced(table: str, batch: Any) -> list[Any]:
    """The rows in pieces of at most MOST_DAYS different days each, in order of the days; one piece where they are fewer."""
    if table not in PARTITIONED or not batch.num_rows:
        return [batch]
    days = batch["ts"].cast(pa.int64()).to_numpy() // _DAY_MS
    if days.max() - days.min() < MOST_DAYS:
        return [batch]
    found = np.unique(days)
    pieces = [(found[at], found[min(at + MOST_DAYS, len(found)) - 1]) for at in range(0, len(found), MOST_DAYS)]
    return [batch.filter(pa.array((days >= first) & (days <= last))) for first, last in pieces]


def _nothing() -> None:
    pass


class ClientStore:
    """A store behind a clickhouse-connect client; how rows get in and what closing means is given to it.

    `secrets` are never shown. `insert(client, table, batch)` puts one Arrow table into one table.
    """

    def __init__(
        self,
        client: Any,
        name: str,
        database: str,
        *,
        secrets: Sequence[str] = (),
        create_database: str = "CREATE DATABASE IF NOT EXISTS `{database}`",
        insert: Callable[[Any, str, Any], None] = insert_arrow,
        on_close: Callable[[], None] = _nothing,
    ) -> None:
        self._client = client
        self._name = name
        self._database = database
        self._secrets = tuple(secrets)
        self._create_database = create_database
        self._insert = insert
        self._on_close = on_close
        self._process = os.getpid()
        self._ready = False

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._name}>"

    @property
    def name(self) -> str:
        return self._name

    def migrate(self) -> list[str]:
        client = self._usable()
        with foreign(self._name, self._secrets):
            if not self._exists(client):
                client.command(self._create_database.format(database=self._database))
            self._enter(client)
        return [migration.stem for migration in migrate.apply(self)]

    def write(self, events: Sequence[Event]) -> None:
        """Keep the events; see Store.write. In order:

        1. all events become Arrow tables, so that a bad one is found before anything is written;
        2. each table is inserted and on the disk before the next one.

        A failure in 2 leaves some tables written; the same events again give the same rows.
        """
        self._entered()
        self.write_tables(tables(events))

    def write_tables(self, built: Mapping[str, Any]) -> None:
        for table, batch in built.items():
            self.write_arrow(table, batch)

    def write_arrow(self, table: str, batch: Any) -> None:
        """Insert rows that are already a pyarrow.Table with the columns of the table; on the disk when it returns."""
        client = self._entered()
        for piece in sliced(table, batch):
            with foreign(self._name, self._secrets, "write"):
                self._insert(client, table, piece)

    def query(self, sql: str, params: Mapping[str, Any] | None = None) -> Table:
        client = self._entered()
        bound = dict(params or {})
        with foreign(self._name, self._secrets):
            answer = client.query(sql, parameters=bound)
            columns = tuple(answer.column_names)
            if not columns:  # an answer without rows has no names either
                columns = tuple(row[0] for row in client.query(f"DESCRIBE (\n{sql}\n)", parameters=bound).result_rows)
            return Table(columns, [tuple(row) for row in answer.result_rows])

    def command(self, sql: str, params: Mapping[str, Any] | None = None) -> None:
        client = self._entered()
        with foreign(self._name, self._secrets):
            client.command(sql, parameters=dict(params or {}))

    def close(self) -> None:
        client, self._client = self._client, None
        if client is None or os.getpid() != self._process:
            return
        with foreign(self._name, self._secrets):
            client.close()
        self._on_close()

    def _usable(self) -> Any:
        if self._client is None:
            raise BadUsage(f"The store {self._name} is closed; open it again.")
        if os.getpid() != self._process:
            raise BadUsage(f"The store {self._name} was opened before this process was forked; open it in the new process.")
        return self._client

    def _entered(self) -> Any:
        """The client, inside its database. Without the database nothing may run: the names would mean other tables."""
        client = self._usable()
        if not self._ready:
            with foreign(self._name, self._secrets):
                if not self._exists(client):
                    raise EmptyStore(f"The store {self._name} has no tables yet; run `yolometer sql migrate`.")
                self._enter(client)
        return client

    def _exists(self, client: Any) -> bool:
        sql = "SELECT count() FROM system.databases WHERE name = {name:String}"
        found = client.query(sql, parameters={"name": self._database})
        return bool(found.result_rows[0][0])

    def _enter(self, client: Any) -> None:
        client.database = self._database
        self._ready = True
