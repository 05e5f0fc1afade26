"""`yolometer dead`: messages that could not be understood or stored: list them, look at one, send them again."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from yolometer import options, show
from yolometer.box import closing
from yolometer.dead import REASONS, Choice, can_be_sent, letters, listed, one_letter, retry, shown, summary
from yolometer_core.config import load
from yolometer_core.errors import BadUsage
from yolometer_sinks.config import SinkConfig
from yolometer_sinks.open_store import open_store
from yolometer_sinks.stores._base import Store, Table

app = typer.Typer(help="Messages that could not be understood or stored: list them, look at one, send them again.",
                  no_args_is_help=True)  # fmt: skip

File = Annotated[Path | None, typer.Option("--config", help="Settings of the sink (YAML): where Kafka and the store are.")]
Reason = Annotated[str | None, typer.Option(help=f"Only those of this reason: {', '.join(REASONS)}.")]


@app.command("list")
def list_command(
    reason: Reason = None,
    waiting: Annotated[bool, typer.Option("--waiting", help="Only those that were not sent again yet.")] = False,
    limit: Annotated[int, typer.Option(min=1, max=100_000, help="So many at most.")] = 50,
    by_reason: Annotated[bool, typer.Option("--summary", help="Count them by reason and topic instead.")] = False,
    store: options.Store = None, config: File = None, as_json: options.Json = False,
) -> None:  # fmt: skip
    """List dead letters, the newest first.

    Examples:

      yolometer dead list --summary

      yolometer dead list --reason clock --store clickhouse://app@host:8123/yolometer
    """
    choice = Choice(reason=reason, waiting=waiting)
    choice.where()  # a wrong reason is told before a store is asked
    with _opened(store, config) as opened:
        found = summary(opened, choice) if by_reason else listed(opened, choice, limit)
    if as_json:
        print(show.document({"summary" if by_reason else "dead": found.dicts()}))
    elif not found.rows:
        print("There are no dead letters.", file=sys.stderr)
    elif by_reason:
        show.out().print(show.answer_grid(found, {}, "Dead letters by reason"))
    else:
        show.out().print(show.answer_grid(_short(found), {}, "Dead letters: yolometer dead show ID"))


@app.command("show")
def show_command(
    ident: Annotated[str, typer.Argument(metavar="ID", help="The id of a dead letter, or the beginning of it.")],
    store: options.Store = None, config: File = None, as_json: options.Json = False,
) -> None:  # fmt: skip
    """Show all that is known of a dead letter: where it came from, why it is one, and its bytes as far as they can be read.

    Example: yolometer dead show 3f2a91c0
    """
    with _opened(store, config) as opened:
        found = shown(one_letter(opened, ident))
    if as_json:
        print(show.document(found))
        return
    for name, value in found.items():
        text = show.document(value) if isinstance(value, (dict, list)) else "–" if value is None else str(value)  # noqa: RUF001
        show.out().print(f"{name:>15}  {text}", markup=False, soft_wrap=True)


@app.command("retry")
def retry_command(
    ids: Annotated[list[str] | None, typer.Argument(metavar="[ID]...", help="Ids, or the beginnings of them.")] = None,
    reason: Reason = None,
    everything: Annotated[bool, typer.Option("--all", help="All that were not sent again yet.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    store: options.Store = None, config: File = None, as_json: options.Json = False,
) -> None:  # fmt: skip
    """Send dead letters again to the topics that they came from, byte for byte, and remember when. Ends with 3 for none.

    With --reason or --all those are left out that were sent again before; one that fails again is a new dead letter.

    Examples:

      yolometer dead retry 3f2a91c0 --config /etc/yolometer/sink.yaml

      yolometer dead retry --reason version --yes --config /etc/yolometer/sink.yaml
    """
    if sum((bool(ids), reason is not None, everything)) != 1:
        raise BadUsage("Say which: ids, or --reason, or --all.")
    settings = load(SinkConfig, config)
    with _opened(store, config) as opened:
        found = letters(opened, Choice(tuple(ids or ()), reason, waiting=not ids))
        good, cut = can_be_sent(found)
        if good and not yes:
            topics = ", ".join(sorted({one.from_topic for one in good}))
            typer.confirm(f"Send {len(good)} messages again to {topics}?", abort=True, err=True)
        if good:
            retry(opened, settings.kafka, good, datetime.now(UTC))
    if as_json:
        print(show.document({"retried": [one.event_id for one in good], "incomplete": [one.event_id for one in cut]}))
    else:
        print(f"Sent {len(good)} messages again." if good else "There is nothing to send again.")
        if cut:
            print(f"{len(cut)} cannot be sent again: not all of their bytes were kept.", file=sys.stderr)
    if not good:
        raise typer.Exit(3)


@contextmanager
def _opened(url: str | None, config: Path | None) -> Iterator[Store]:
    """The store of --store, else of the settings of the sink. (The environment is in both.)"""
    with closing(open_store(url or load(SinkConfig, config).store_url())) as opened:
        yield opened


def _short(found: Table) -> Table:
    """What fits on a line: the beginning of the id, where it came from, why."""
    rows = [
        (row["event_id"][:12], row["ts"], row["reason"], f"{row['from_topic']}/{row['from_partition']}/{row['from_offset']}",
         row["index"] if row["index"] >= 0 else None, row["node"], row["retried_ts"], escape(row["detail"][:120]))
        for row in found.dicts()
    ]  # fmt: skip
    return Table(("id", "ts", "reason", "topic/partition/offset", "event", "node", "retried", "detail"), rows)
