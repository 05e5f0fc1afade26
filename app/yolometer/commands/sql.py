"""`yolometer sql`: bring the tables of a store up to date, and see where they stand."""

from __future__ import annotations

import typer

from yolometer import options, show
from yolometer.box import closing
from yolometer_sinks.open_store import open_store
from yolometer_sinks.stores._base import Table
from yolometer_sql.migrate import status

app = typer.Typer(help="Bring the tables of a store up to date, and see where they stand.", no_args_is_help=True)


@app.command("migrate")
def migrate_command(store: options.Store = None, config: options.Sink = None, as_json: options.Json = False) -> None:
    """Apply the migrations that the store does not have yet; running it again changes nothing.

    Example: yolometer sql migrate --store chdb:///var/lib/yolometer
    """
    with closing(open_store(options.store_url(store, config))) as opened:
        applied = opened.migrate()
    if as_json:
        print(show.document({"applied": applied}))
    else:
        print(f"Applied {', '.join(applied)}." if applied else "Nothing to apply: the tables are up to date.")


@app.command("status")
def status_command(store: options.Store = None, config: options.Sink = None, as_json: options.Json = False) -> None:
    """Show which migrations the store has.

    Example: yolometer sql status --store chdb:///var/lib/yolometer --json
    """
    with closing(open_store(options.store_url(store, config))) as opened:
        standing = status(opened)
    rows = [(f"{item.number:04d}_{item.name}", item.state) for item in standing]
    if as_json:
        print(show.document({"migrations": [{"name": name, "state": state} for name, state in rows]}))
    else:
        show.out().print(show.answer_grid(Table(("migration", "state"), rows), {}, "Migrations"))
