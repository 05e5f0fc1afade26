"""`yolometer parts`: what this installation is made of."""

from __future__ import annotations

from yolometer import options, show
from yolometer.box import formats, operators
from yolometer_sinks.open_store import schemes
from yolometer_sinks.stores._base import Table
from yolometer_sql.catalog import catalog
from yolometer_stream.runs.rows import Terms


def parts_command(as_json: options.Json = False) -> None:
    """List the parts that were found: log formats, operators, stores and queries.

    Example: yolometer parts --json
    """
    found: dict[str, dict[str, str]] = {
        "formats": {name: part.role for name, part in formats().items()},
        "operators": {name: "takes " + ", ".join(kind.table for kind in part.takes) for name, part in operators(Terms()).items()},
        "stores": {name: scheme.usage for name, scheme in schemes().items()},
        "queries": {name: query.question for name, query in catalog().items()},
    }
    if as_json:
        print(show.document(found))
        return
    one = {"queries": "query"}
    rows = [(one.get(kind, kind[:-1]), name, what) for kind, parts in found.items() for name, what in parts.items()]
    show.out().print(show.answer_grid(Table(("kind", "part", "what it is"), rows), {}, "Parts"))
