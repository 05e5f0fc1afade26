"""`yolometer audit`: is anything missing, and how much of each total is covered?"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated

import typer

from yolometer import options, show
from yolometer.audit import Check, audit
from yolometer.box import closing
from yolometer_core.config import load
from yolometer_core.errors import BadUsage
from yolometer_sinks.config import SinkConfig
from yolometer_sinks.open_store import open_store

FAILED = 1


def audit_command(
    since: Annotated[str | None, typer.Option("--from", metavar="TIME", help="ISO 8601; 24 hours ago by default.")] = None,
    until: Annotated[str | None, typer.Option("--to", metavar="TIME", help="ISO 8601; now by default.")] = None,
    config: options.Sink = None,
    store: options.Store = None,
    as_json: options.Json = False,
) -> None:
    """Say what is missing: numbers that agents gave to messages, samples against time, rollups against samples, dead letters.

    Examples:

      yolometer audit --config /etc/yolometer/sink.yaml

      yolometer audit --store clickhouse://reader@127.0.0.1:8123/yolometer --from 2026-11-01 --to 2026-12-01 --json

    Ends with 1 when something is missing. What an agent dropped and said so, and what still waits in Kafka (only with --config),
    is shown and is not missing.
    """
    end = _time(until, "--to") if until else datetime.now(UTC)
    begin = _time(since, "--from") if since else end - timedelta(days=1)
    if begin >= end:
        raise BadUsage("--from must be before --to; exchange them.")
    settings = load(SinkConfig, config) if config else None
    with closing(open_store(options.store_url(store, config))) as opened:
        checks = audit(opened, begin, end, settings.kafka if settings else None)
    if as_json:
        print(show.document({"ok": all(check.ok for check in checks), "from": begin, "to": end,
                             "checks": [_plain(check) for check in checks]}))  # fmt: skip
    else:
        for check in checks:
            _print(check)
    if not all(check.ok for check in checks):
        raise typer.Exit(FAILED)


def _plain(check: Check) -> dict[str, object]:
    return {"check": check.name, "ok": check.ok, "missing": check.missing, "rows": check.table.dicts()}


def _print(check: Check) -> None:
    state = "nothing is missing" if check.ok else f"{check.missing:,} missing"
    if check.table.rows:
        show.out().print(show.answer_grid(check.worst(), dict(check.units), f"{check.question} {state}"))
        return
    show.out().print(f"{check.question} There is nothing to check in this time.")


def _time(text: str, option: str) -> datetime:
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise BadUsage(f"{option} must be a time such as 2026-11-30 or 2026-11-30T12:00:00Z; correct it.") from None
    return found if found.tzinfo else found.replace(tzinfo=UTC)
