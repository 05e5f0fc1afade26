"""`yolometer price`: check a list of prices before money is counted with it, see which price holds, import a catalogue."""

from __future__ import annotations

import os
import sys
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any

import typer

from yolometer import options, show
from yolometer_core.errors import BadConfig, BadUsage
from yolometer_core.prices._base import Mistake, Quote
from yolometer_core.prices.check import warnings
from yolometer_core.prices.currencies import is_currency, nearest
from yolometer_core.prices.load_csv import Imported, load_catalogue
from yolometer_core.prices.load_yaml import load, problems, sentence
from yolometer_core.prices.rules import mistakes
from yolometer_core.prices.write_yaml import file_of
from yolometer_sinks.stores._base import Table

app = typer.Typer(no_args_is_help=True, help="Check a list of prices, see which price holds, and import a catalogue of a cloud.")

DEFAULT = Path("/etc/yolometer/prices.yaml")
File = Annotated[
    Path,
    typer.Argument(metavar="FILE", envvar="YOLOMETER_PRICES", show_envvar=False, help="The list of prices, a YAML file."),
]  # fmt: skip
_FIELDS = ("gpu_model", "provider", "region", "node", "kind", "price", "currency", "valid_from", "valid_to", "source")


@app.command("check")
def check_command(file: File = DEFAULT, as_json: options.Json = False) -> None:
    """Check a list of prices: mistakes with their lines (ends with 2), and what it leaves open, such as gaps (ends with 0).

    Example: yolometer price check /etc/yolometer/prices.yaml
    """
    wrong = problems(file)
    book = None if wrong else load(file)
    open_ends = warnings(book) if book else []
    if as_json:
        prices = len(book.prices) if book else None
        print(show.document({"file": str(file), "prices": prices, "mistakes": _rows(wrong), "warnings": _rows(open_ends)}))
    else:
        for mistake in wrong:
            print(f"{sentence(file, mistake)}.", file=sys.stderr)
        for warning in open_ends:
            print(f"warning: {sentence(file, warning)}.", file=sys.stderr)
        if book:
            models = len({price.selector.gpu_model for price in book.prices})
            print(f"{file} is right: {len(book.prices)} prices of {models} GPU models, totals in {book.currency}.")
    if wrong:
        raise typer.Exit(2)


@app.command("show")
def show_command(
    file: File = DEFAULT,
    gpu_model: Annotated[str | None, typer.Option(help="Only the price of this model, as the GPU or the list names it.")] = None,
    at: Annotated[str | None, typer.Option(metavar="TIME", help="When, as 2026-01-31T12:00:00Z; now by default.")] = None,
    node: Annotated[str | None, typer.Option(help="Node of the GPU.")] = None,
    provider: Annotated[str | None, typer.Option(help="Provider of the GPU, instead of what the list says of its node.")] = None,
    region: Annotated[str | None, typer.Option(help="Region of the GPU, likewise.")] = None,
    kind: Annotated[str | None, typer.Option(help="on_demand, spot, reserved or owned, likewise.")] = None,
    as_json: options.Json = False,
) -> None:
    """Show the prices that hold at a time; with a model, the one that holds for such a GPU. Ends with 3 when there is none.

    Examples:

      yolometer price show prices.yaml --at 2026-01-31T12:00:00Z

      yolometer price show prices.yaml --gpu-model "NVIDIA H100 80GB HBM3" --node gpu-7 --json
    """
    time = _time(at, "--at") or datetime.now(UTC)
    book = load(file)
    if gpu_model is None:
        if (node, provider, region, kind) != (None, None, None, None):
            raise BadUsage("--node, --provider, --region and --kind say which GPU is meant; give its --gpu-model too.")
        found = book.holding(time)
    else:
        quote = book.at(gpu_model, time, node=node, provider=provider, region=region, kind=kind)
        found = [quote] if quote else []
    if as_json:
        print(show.document({"at": time, "currency": book.currency, "prices": [_fields(quote) for quote in found]}))
    elif found:
        columns = ("GPU model", "for", "per GPU-hour", f"in {book.currency}", "from", "to")
        rows = [_row(quote) for quote in found]
        show.out().print(show.answer_grid(Table(columns, rows), {}, f"Prices at {time:%Y-%m-%d %H:%M:%S} UTC"))
        if gpu_model is not None:
            print(found[0].price.source or "The list names no source.")
    if not found:
        what = f"No price of {gpu_model} is known" if gpu_model else "No price holds"
        print(f"{what} at {show.plain(time)}; what it costs is unknown.", file=sys.stderr)
        raise typer.Exit(3)


@app.command("import")
def import_command(
    file: Annotated[Path, typer.Argument(metavar="CSV", help="A catalogue in the columns of SkyPilot, for example vms.csv.")],
    output: Annotated[Path | None, typer.Option("--output", "-o", metavar="FILE", help="File to write, else stdout.")] = None,
    provider: Annotated[str | None, typer.Option(help="Whose prices they are, for example aws.")] = None,
    currency: Annotated[str, typer.Option(help="Currency of the prices, ISO 4217.")] = "USD",
    valid_from: Annotated[
        str | None, typer.Option(metavar="TIME", help="Since when they hold, as 2026-01-31T00:00:00Z; always by default.")
    ] = None,
    instance_type: Annotated[
        list[str] | None, typer.Option(help="Only machines of this type; may be repeated. Else the cheapest per GPU counts.")
    ] = None,
    ignore: Annotated[list[str] | None, typer.Option(metavar="COLUMN", help="A column to leave out; may be repeated.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the file when it is there.")] = False,
) -> None:
    """Turn a catalogue of a cloud into a list of prices per GPU-hour, on demand and spot.

    Example: yolometer price import vms.csv --provider aws --valid-from 2026-01-01T00:00:00Z -o prices.yaml
    """
    if not is_currency(currency):
        raise BadUsage(f"{currency!r} is no currency; {nearest(currency)}.")
    if output is not None and output.exists() and not force:
        raise BadUsage(f"{output} is there; name another file, or replace it with --force.")
    since = _time(valid_from, "--valid-from")
    found = load_catalogue(
        file, provider=provider, currency=currency, valid_from=since, instance_types=instance_type or (), ignore=ignore or ()
    )
    wrong = mistakes(currency, found.prices, (), ())
    if wrong:
        raise BadConfig(f"{sentence(file, wrong[0])}.")
    text = file_of(found.prices, currency, [f"Prices per GPU-hour from {file.name}, written by `yolometer price import`."])
    if output is None:
        print(text, end="")
    else:
        _write(output, text)
    print(_said(found, output), file=sys.stderr)
    if not found.prices:
        raise typer.Exit(3)


def _converted(quote: Quote) -> Decimal | None:
    """The price in the currency of the totals; None where the exchange rate is not known."""
    return None if quote.micro_per_hour is None else Decimal(quote.micro_per_hour).scaleb(-6)


def _fields(quote: Quote) -> dict[str, Any]:
    fields = {name: getattr(quote.price, name) for name in _FIELDS}
    return {**fields, "price_converted": _converted(quote), "exchange_rate": quote.exchange_rate}


def _row(quote: Quote) -> tuple[Any, ...]:
    price, converted = quote.price, _converted(quote)
    whom = [price.node and f"node {price.node}", price.provider, price.region, price.kind]
    asked = f"{price.price:f} {price.currency}"
    times = (time and f"{time:%Y-%m-%d %H:%M}" for time in (price.valid_from, price.valid_to))
    in_total = None if converted is None else f"{converted:f}"
    return (price.gpu_model, ", ".join(part for part in whom if part), asked, in_total, *times)


def _rows(found: list[Mistake]) -> list[dict[str, Any]]:
    return [{"line": mistake.line, "says": mistake.says} for mistake in found]


def _time(text: str | None, option: str) -> datetime | None:
    if text is None:
        return None
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        time = None
    if time is None or time.tzinfo is None:
        raise BadUsage(f"{option} must be a time with its zone, for example 2026-01-31T12:00:00Z, not {text!r}.")
    return time.astimezone(UTC)


def _write(path: Path, text: str) -> None:
    """Write the whole file or nothing."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        beside.write_text(text, encoding="utf-8")
        beside.replace(path)
    except OSError:
        beside.unlink(missing_ok=True)
        raise


def _said(found: Imported, output: Path | None) -> str:
    left = ", ".join(f"{why} ({count})" for why, count in sorted(found.skipped.items()))
    where = f" to {output}" if output else ""
    return f"{found.rows} rows: wrote {len(found.prices)} prices{where}" + (f"; left out: {left}." if left else ".")
