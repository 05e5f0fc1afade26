"""`yolometer roi`: ask the store a question by its name."""

from __future__ import annotations

import sys
from enum import StrEnum
from typing import Annotated

import typer

from yolometer import options, show
from yolometer.box import closing
from yolometer.page import ask
from yolometer_core.errors import BadUsage
from yolometer_sinks.open_store import open_store
from yolometer_sinks.stores._base import Table
from yolometer_sql.catalog import Query, catalog, find


class Format(StrEnum):
    """How an answer is printed."""

    table = "table"
    json = "json"
    csv = "csv"
    parquet = "parquet"


def roi_command(
    name: Annotated[str | None, typer.Argument(help="The query; without it all are listed.", show_default=False)] = None,
    param: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="A parameter of the query; may be repeated.")
    ] = None,
    output: Annotated[Format, typer.Option("--format", help="table, json, csv or parquet (to stdout).")] = Format.table,
    store: options.Store = None,
    config: options.Sink = None,
    as_json: options.Json = False,
) -> None:
    """Answer a question about tokens, time and money; without a name, list the questions.

    Examples:

      yolometer roi

      yolometer roi runs --store chdb:///var/lib/yolometer

      yolometer roi gpu_hours --config /etc/yolometer/sink.yaml

      yolometer roi map_per_token --param run_id=train-0a1b2c3d4e --format json
    """
    chosen = Format.json if as_json else output
    if name is None:
        _list(chosen)
        return
    query = find(name)
    params = _pairs(param or [])
    text, bound = query.bind(params)
    url = options.store_url(store, config)
    table = ask(url, name, params)
    if table is None:
        with closing(open_store(url)) as opened:
            if url.startswith("chdb"):  # it is ours alone; on a server a reader may not, and the sink does
                opened.migrate()
            table = opened.query(text, bound)
    _print(query, table, chosen)


def _pairs(texts: list[str]) -> dict[str, str]:
    pairs = {}
    for text in texts:
        key, sign, value = text.partition("=")
        if not sign or not key:
            raise BadUsage(f"--param must be NAME=VALUE, for example run_id=train-0a1b2c3d4e, not {text!r}.")
        pairs[key] = value
    return pairs


def _list(chosen: Format) -> None:
    queries = catalog().values()
    if chosen is Format.json:
        rows = [{"name": query.name, "question": query.question, "row": query.row} for query in queries]
        print(show.document({"query": None, "rows": rows}))
        return
    table = Table(("query", "question", "one row is"), [(query.name, query.question, query.row) for query in queries])
    show.out().print(show.answer_grid(table, {}, "Questions: yolometer roi NAME"))


def _print(query: Query, table: Table, chosen: Format) -> None:
    if chosen is Format.json:
        print(show.document({"query": query.name, "rows": table.dicts()}))
    elif chosen is Format.csv:
        sys.stdout.write(show.as_csv(table.columns, table.rows))
    elif chosen is Format.parquet:
        _parquet(table)
    else:
        if query.name == "runs":
            show.out().print(show.runs_grid(table.dicts(), title=query.question))
            return
        units = {column.name: column.unit for column in query.columns}
        show.out().print(show.answer_grid(table, units, query.question))
        if not table.rows:
            print("No rows: nothing in the store answers this yet.", file=sys.stderr)


def _parquet(table: Table) -> None:
    import pyarrow as pa  # type: ignore[import-untyped]  # ships no types
    import pyarrow.parquet as pq  # type: ignore[import-untyped]  # ships no types

    if sys.stdout.isatty():
        example = "yolometer roi NAME --format parquet > answer.parquet"
        raise BadUsage(f"--format parquet writes binary data; send it to a file: {example}.")
    columns = {name: [row[at] for row in table.rows] for at, name in enumerate(table.columns)}
    pq.write_table(pa.table(columns), sys.stdout.buffer)
