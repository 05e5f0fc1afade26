"""Options that several commands share, and what they mean."""

from __future__ import annotations

from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Annotated

import typer

from yolometer_core.config import load
from yolometer_core.errors import BadUsage
from yolometer_sinks.config import SinkConfig
from yolometer_stream.runs.rows import Terms

Store = Annotated[
    str | None,
    typer.Option("--store", envvar="YOLOMETER_STORE", show_envvar=False,
                 help="Where the rows are kept: chdb:///folder, chdb://memory or clickhouse://user:password@host:8123/database."),
]  # fmt: skip
Sink = Annotated[
    Path | None, typer.Option("--config", metavar="FILE", help="Settings of a sink: its store is meant, without --store.")
]
GpuModel = Annotated[str | None, typer.Option(help="Model of the GPUs, instead of what the log says.")]
Gpus = Annotated[int | None, typer.Option(min=1, help="How many GPUs each run holds, instead of what the log says.")]
Price = Annotated[str | None, typer.Option(metavar="PER_GPU_HOUR", help="Price of one GPU-hour; without it the cost is unknown.")]
Currency = Annotated[str, typer.Option(help="Currency of the price, ISO 4217.")]
Owner = Annotated[
    list[str] | None, typer.Option(metavar="KEY=VALUE", help="Whose runs they are, e.g. team=vision; may be repeated.")
]
Node = Annotated[str | None, typer.Option(help="Name of this node; the host name by default.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document for machines and nothing else.")]


def terms(gpu_model: str | None, gpus: int | None, price: str | None, currency: str, owner: list[str] | None) -> Terms:
    """What the options say about hardware and money. BadUsage where they cannot be meant."""
    return Terms(gpu_model, gpus, _price(price), _currency(currency), tuple(_owner(pair) for pair in owner or []))


def _price(text: str | None) -> Decimal | None:
    if text is None:
        return None
    try:
        price = Decimal(text)
    except InvalidOperation:
        price = Decimal("NaN")
    if not price.is_finite() or price < 0 or price > Decimal(1_000_000):
        raise BadUsage(f"--price must be a number from 0 up, in money per GPU-hour, not {text!r}.")
    return price


def _currency(text: str) -> str:
    if len(text) != 3 or not text.isalpha() or not text.isascii():
        raise BadUsage(f"--currency must be three letters as in ISO 4217, for example USD, not {text!r}.")
    return text.upper()


def _owner(pair: str) -> tuple[str, str]:
    key, sign, value = pair.partition("=")
    if not sign or not key or not value:
        raise BadUsage(f"--owner must be KEY=VALUE, for example team=vision, not {pair!r}.")
    return key, value


def store_url(store: str | None, sink: Path | None) -> str:
    """The store that is meant: as given, else that of a sink, else the embedded one of this user."""
    if store is None and sink is not None:
        return load(SinkConfig, sink).store_url()
    return store or default_store()


def default_store() -> str:
    """The embedded store of this user."""
    return f"chdb://{Path.home() / '.local' / 'share' / 'yolometer' / 'store'}"
