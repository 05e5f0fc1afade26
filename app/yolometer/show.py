"""What a person sees: tables of runs and answers, numbers with units, and the one JSON document for machines."""

from __future__ import annotations

import csv
import io
import json
import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Any

from rich.console import Console
from rich.table import Table as Grid

from yolometer_core.events import Run
from yolometer_sinks.stores._base import Table

UNKNOWN = "–"  # noqa: RUF001 - a dash, as in any printed table

RUN_FIELDS = (
    "run_id", "name", "framework", "framework_version", "task", "model", "imgsz", "batch", "epochs_planned", "epochs_done",
    "attempts", "status", "images_per_epoch", "images", "tokens_mtok", "tokens_640_mtok", "wasted_mtok", "train_seconds",
    "rate_mtok_s", "k_s_per_mtok", "best_map50_95", "best_epoch", "params", "gflops", "optimizer", "gpu_model", "gpus",
    "gpu_seconds", "cost", "currency", "sources",
)  # fmt: skip


def errors() -> Console:
    """The console for words to a person beside the answer: stderr."""
    return Console(stderr=True, highlight=False)


def out() -> Console:
    """The console for the answer: stdout."""
    return Console(highlight=False, width=None if sys.stdout.isatty() else 160)


def plain(value: Any) -> Any:
    """A value as JSON has it: NaN and infinity are null, times ISO 8601 in UTC, money a number."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, datetime):
        return value.isoformat().replace("+00:00", "Z")
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value


def document(value: Any) -> str:
    """One JSON document."""
    return json.dumps(plain(value), ensure_ascii=False, allow_nan=False)


def short(value: Any, digits: int = 4) -> str:
    """A value for a table: unknown is a dash, numbers have few digits."""
    value = plain(value)
    if value is None or value == "":
        return UNKNOWN
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 10_000 else f"{value:.{digits}g}"
    if isinstance(value, int):
        return f"{value:,}" if abs(value) >= 10_000 else str(value)
    if isinstance(value, list):
        return ", ".join(short(item) for item in value)
    if isinstance(value, dict):
        return ", ".join(f"{key}={short(item)}" for key, item in value.items())
    return str(value)


def money(value: Any, currency: str | None) -> str:
    """An amount with as many digits as it takes to be more than nothing."""
    if value is None:
        return UNKNOWN
    amount = Decimal(str(value))
    digits = 2 if amount == 0 or abs(amount) >= 1 else 4 if abs(amount) >= Decimal("0.01") else 6
    return f"{amount:,.{digits}f} {currency or ''}".strip()


def hours(seconds: Any) -> str:
    """Seconds as a person reads them."""
    if seconds is None:
        return UNKNOWN
    if seconds < 120:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.1f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def moving(run: Run) -> dict[str, Any]:
    """A run as a row of the table, with its place inside the epoch under way instead of `running`."""
    row: dict[str, Any] = {name: getattr(run, name) for name in (*RUN_FIELDS, "epoch_now", "iterations_done", "iterations_total")}
    if run.epoch_now is not None and run.iterations_total:
        row["status"] = f"epoch {run.epoch_now}: {run.iterations_done}/{run.iterations_total}"
    return row


def runs_grid(runs: Iterable[Mapping[str, Any]], title: str | None = None) -> Grid:
    """The table of runs."""
    grid = Grid(title=title, header_style="bold", pad_edge=False)
    for name in ("run", "model", "status"):
        grid.add_column(name, justify="left", no_wrap=name == "status")
    for name in ("epochs", "MTok", "wasted", "time", "MTok/s", "k s/MTok", "mAP50-95", "cost"):
        grid.add_column(name, justify="right", no_wrap=name in ("epochs", "cost"))
    for run in runs:
        best = short(run.get("best_map50_95"))
        at = f" @{run['best_epoch']}" if run.get("best_epoch") and best != UNKNOWN else ""
        grid.add_row(
            str(run["run_id"]),
            f"{short(run.get('model'))} {short(run.get('imgsz'))}px b{short(run.get('batch'))}",
            short(run.get("status")),
            f"{short(run.get('epochs_done'))}/{short(run.get('epochs_planned'))}",
            short(run.get("tokens_mtok"), 5),
            short(run.get("wasted_mtok")),
            hours(run.get("train_seconds")),
            short(run.get("rate_mtok_s")),
            short(run.get("k_s_per_mtok")),
            best + at,
            money(run.get("cost"), run.get("currency")),
        )
    return grid


def answer_grid(table: Table, units: Mapping[str, str], title: str) -> Grid:
    """The table of an answer, with units under the names."""
    grid = Grid(title=title, header_style="bold", pad_edge=False)
    for name in table.columns:
        unit = units.get(name, "text")
        numeric = unit not in ("text", "list", "time")
        head = f"{name}\n[dim]{unit}[/dim]" if numeric and unit != "count" else name
        grid.add_column(head, justify="right" if numeric else "left")
    for row in table.rows:
        grid.add_row(*(short(value, 5) for value in row))
    return grid


def as_csv(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """The answer as CSV; unknown is an empty cell."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(columns)
    for row in rows:
        cells = [plain(value) for value in row]
        writer.writerow(["" if cell is None else json.dumps(cell) if isinstance(cell, list | dict) else cell for cell in cells])
    return buffer.getvalue()
