"""`yolometer replay`: read training directories or bare logs once, and say what each run used and cost."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from yolometer import options, show
from yolometer.box import closing
from yolometer.replay import Replayed, replay
from yolometer_agent.reader import UNKNOWN
from yolometer_sinks.open_store import open_store
from yolometer_sinks.stores._base import Store
from yolometer_sql.catalog import find

NOTHING = 3
FEW = 5


def replay_command(
    paths: Annotated[
        list[str], typer.Argument(metavar="PATH...", help="Training directories, log files, or globs.", show_default=False)
    ],
    store: options.Store = "chdb://memory",
    gpu_model: options.GpuModel = None,
    gpus: options.Gpus = None,
    price: options.Price = None,
    currency: options.Currency = "USD",
    owner: options.Owner = None,
    node: options.Node = None,
    keep_copies: Annotated[bool, typer.Option(help="Count a copy of a training directory as a run of its own.")] = False,
    as_json: options.Json = False,
) -> None:
    """Read finished or running trainings and say what each one used and cost.

    Examples:

      yolometer replay runs/detect/train

      yolometer replay runs/ --gpu-model A100 --gpus 8 --price 2.5 --store chdb:///var/lib/yolometer

      yolometer replay train.log --json
    """
    terms = options.terms(gpu_model, gpus, price, currency, owner)
    with closing(open_store(store or "chdb://memory")) as opened:
        opened.migrate()
        found = _replayed(paths, opened, terms, node, keep_copies, quiet=as_json)
        runs = runs_of(opened, found)
    if as_json:
        print(show.document({"runs": runs, "skipped": found.skipped}))
    else:
        _print(runs, found)
    if not runs:
        raise typer.Exit(NOTHING)


def runs_of(store: Store, found: Replayed) -> list[dict[str, Any]]:
    """The rows of the query `runs` for the runs that were read, and for those whose copies were named."""
    wanted = set(found.run_ids)
    if found.twins:
        wanted |= {run_id for run_id, place in store.query("SELECT run_id, place FROM runs").rows if place in found.twins}
    text, bound = find("runs").bind({})
    return [row for row in store.query(text, bound).dicts() if row["run_id"] in wanted] if wanted else []


def _replayed(paths: list[str], store: Store, terms: Any, node: str | None, keep_copies: bool, quiet: bool) -> Replayed:
    console = show.errors()
    if quiet or not console.is_terminal:
        return replay(paths, store, terms, node=node, keep_copies=keep_copies)
    columns = (TextColumn("reading"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("", total=None)

        def tell(done: int, total: int, name: str) -> None:
            bar.update(task, completed=done, total=total, description=name[-60:])

        return replay(paths, store, terms, node=node, keep_copies=keep_copies, progress=tell)


def _print(runs: list[dict[str, Any]], found: Replayed) -> None:
    if runs:
        show.out().print(show.runs_grid(runs))
    else:
        nothing = "No training was found in what you named; name a training directory, or a log that a trainer wrote."
        print(nothing, file=sys.stderr)
    strange = [item for item in found.skipped if item["reason"] == UNKNOWN]
    told = [item for item in found.skipped if item["reason"] != UNKNOWN or len(strange) <= FEW]
    for item in told:
        print(f"skipped {item['path']}: {item['reason']}", file=sys.stderr)
    if len(strange) > FEW:
        print(f"skipped {len(strange)} files that are no training logs; --json lists them.", file=sys.stderr)
