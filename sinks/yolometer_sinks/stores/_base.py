"""What a store is: it keeps events, durable when `write` returns, and answers SQL."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable
from urllib.parse import SplitResult, urlsplit

from yolometer_core.errors import BadUsage
from yolometer_core.events import Event

DATABASE = "yolometer"


@dataclass(frozen=True)
class Table:
    """The answer to a query: names of the columns, and the rows in order.

    NULL is None, NaN is NaN, a DateTime64 is a datetime in UTC, a Decimal a Decimal, an array a list, a map a dict.
    """

    columns: tuple[str, ...]
    rows: list[tuple[Any, ...]]

    def dicts(self) -> list[dict[str, Any]]:
        """Return the rows as `{column: value}`."""
        return [dict(zip(self.columns, row, strict=True)) for row in self.rows]


@runtime_checkable
class Store(Protocol):
    """Keeps events and answers SQL. Every method raises Unavailable (try again) or Bad (do not), and nothing else.

    Several threads may use one store; the embedded engine serves them one after the other. A forked process may not.
    """

    @property
    def name(self) -> str:
        """The store as a person knows it: its URL without the password."""
        ...

    def migrate(self) -> list[str]:
        """Create the database and bring its tables up to date; return the migrations that were applied now."""
        ...

    def write(self, events: Sequence[Event]) -> None:
        """Keep the events: on disk when it returns. Writing them again changes nothing.

        Of the versions of one run or epoch in one call only the highest is written. Raises BadInput, and keeps
        nothing of its table, when an event cannot be a row; after any other error some tables may have their rows
        and others not: write the same events again.
        """
        ...

    def query(self, sql: str, params: Mapping[str, Any] | None = None) -> Table:
        """Run one SELECT. `{name:Type}` in the text is bound by the engine to `params[name]`, never formatted in."""
        ...

    def command(self, sql: str, params: Mapping[str, Any] | None = None) -> None:
        """Run one statement that answers nothing."""
        ...

    def close(self) -> None:
        """Give back what is held (files, locks, connections). A second call does nothing."""
        ...


@runtime_checkable
class ColumnStore(Store, Protocol):
    """A store that also takes events as columns, so that one thread can make them and another one write."""

    def write_tables(self, built: Mapping[str, Any]) -> None:
        """Keep the events that `_arrow.tables` made these columns of, as `write` does."""
        ...


@dataclass(frozen=True)
class Scheme:
    """How the stores of one URL scheme are opened; a store file offers one as `SCHEME`."""

    usage: str
    open: Callable[[str], Store]


@dataclass(frozen=True)
class Address:
    """A store URL, taken apart: the parts are decoded, `options` are the `?name=value` pairs."""

    parts: SplitResult
    options: dict[str, str]


def address(url: str, options: Sequence[str], usage: str) -> Address:
    """Take a store URL apart. An unreadable URL or an option that is not among `options` is BadUsage.

    No part of the URL is repeated in a message: any part of it may be (a piece of) the password.
    """
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        raise BadUsage(f"The store URL cannot be read; write it as {usage}, with special characters percent-encoded.") from None
    found: dict[str, str] = {}
    for pair in filter(None, parts.query.split("&")):
        name, _, value = pair.partition("=")
        if name not in options:
            raise BadUsage(f"The store URL has an option that is not known; the options are {', '.join(options)}.")
        found[name] = value
    return Address(parts, found)
