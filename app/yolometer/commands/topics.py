"""`yolometer topics`: create the topics in Kafka, and see whether they are as they must be."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import ValidationError

from yolometer import options, show
from yolometer.admin import connected
from yolometer.topics import Standing, Wrong, create, standing
from yolometer_core.config import load
from yolometer_core.errors import BadUsage
from yolometer_core.kafka import KafkaConfig
from yolometer_core.topics import DAY_MS, TopicsConfig
from yolometer_sinks.stores._base import Table

app = typer.Typer(help="Create the topics in Kafka, and see whether they are as they must be.", no_args_is_help=True)

File = Annotated[Path | None, typer.Option("--config", help="YAML file with kafka, partitions, replication and min_insync.")]
Bootstrap = Annotated[str | None, typer.Option(metavar="HOST:PORT", help="Address of a broker; several with commas.")]
Prefix = Annotated[str | None, typer.Option(help="What the names of all topics begin with; `yolometer.` by default.")]
Partitions = Annotated[int | None, typer.Option(min=1, help="Partitions of each topic; 8 by default.")]
Replication = Annotated[int | None, typer.Option(min=1, help="Copies of each partition; 1 by default, 3 in production.")]


@app.command("ensure")
def ensure_command(
    file: File = None, bootstrap: Bootstrap = None, prefix: Prefix = None, partitions: Partitions = None,
    replication: Replication = None, as_json: options.Json = False,
) -> None:  # fmt: skip
    """Create the topics that are missing and check the others; a wrong setting is named and never changed (exit 1).

    Example: yolometer topics ensure --bootstrap kafka-1:9092 --partitions 16 --replication 3
    """
    config = _config(file, bootstrap, prefix, partitions, replication)
    with connected(config.kafka) as admin:
        missing = [one.topic for one in standing(admin, config) if one.found is None]
        created = create(admin, missing, config) if missing else []
        found = standing(admin, config)
    wrong = [mistake for one in found for mistake in one.wrong]
    if as_json:
        print(show.document({"created": created, "topics": len(found), "wrong": [_row(mistake) for mistake in wrong]}))
    else:
        print(f"Created {', '.join(created)}." if created else f"Nothing to create: all {len(found)} topics are there.")
        for mistake in wrong:
            print(_sentence(mistake), file=sys.stderr)
    if wrong:
        raise typer.Exit(1)


@app.command("show")
def show_command(
    file: File = None, bootstrap: Bootstrap = None, prefix: Prefix = None, partitions: Partitions = None,
    replication: Replication = None, as_json: options.Json = False,
) -> None:  # fmt: skip
    """Show the topics: what they carry, how they are, and what is wrong. It changes nothing.

    Example: yolometer topics show --config /etc/yolometer/topics.yaml --json
    """
    config = _config(file, bootstrap, prefix, partitions, replication)
    with connected(config.kafka) as admin:
        found = standing(admin, config)
    if as_json:
        print(show.document({"topics": [_document(one) for one in found]}))
        return
    columns = ("topic", "carries", "key", "partitions", "replication", "cleanup", "kept", "state")
    show.out().print(show.answer_grid(Table(columns, [_line(one) for one in found]), {}, "Topics"))
    for one in found:
        for mistake in one.wrong:
            print(_sentence(mistake), file=sys.stderr)


def _config(
    file: Path | None, bootstrap: str | None, prefix: str | None, partitions: int | None, replication: int | None
) -> TopicsConfig:
    """The settings of the file and the environment, with what was given on the command line instead where it was."""
    config = load(TopicsConfig, file)
    reach = {"bootstrap_servers": bootstrap, "prefix": prefix}
    given = {name: value for name, value in reach.items() if value is not None}
    try:
        kafka = KafkaConfig.model_validate({**config.kafka.model_dump(), **given})
    except ValidationError as error:
        said = error.errors(include_input=False, include_url=False)[0]["msg"]
        raise BadUsage(f"The options do not fit the settings of Kafka: {said}.") from None
    counts = {"partitions": partitions, "replication": replication}
    changed = {name: value for name, value in counts.items() if value is not None}
    config = config.model_copy(update={"kafka": kafka, **changed})
    if config.min_insync > config.replication:
        raise BadUsage(f"--replication must be at least min_insync, which is {config.min_insync}.")
    return config


def _sentence(wrong: Wrong) -> str:
    return (
        f"yolometer: {wrong.topic}: {wrong.setting} is {wrong.found} and should be {wrong.wanted}; to mend it: {wrong.command}"
    )


def _row(wrong: Wrong) -> dict[str, Any]:
    return {
        "topic": wrong.topic, "setting": wrong.setting, "is": wrong.found, "should_be": wrong.wanted, "command": wrong.command,
    }  # fmt: skip


def _line(one: Standing) -> tuple[Any, ...]:
    there = one.found
    state = "missing" if there is None else f"{len(one.wrong)} wrong" if one.wrong else "right"
    if there is None:
        return (one.topic.name, one.topic.carries, one.topic.key, None, None, None, None, state)
    policy, kept_ms = there.settings.get("cleanup.policy"), there.settings.get("retention.ms")
    kept = "newest" if policy == "compact" else "for ever" if kept_ms == "-1" else _days(kept_ms)
    return (one.topic.name, one.topic.carries, one.topic.key, there.partitions, there.replication, policy, kept, state)


def _days(text: str | None) -> str | None:
    if not text:
        return None
    days = int(text) / DAY_MS
    return f"{days:.3g} d" if days >= 1 else show.hours(int(text) / 1000)


def _document(one: Standing) -> dict[str, Any]:
    there = one.found
    return {
        "topic": one.topic.name,
        "carries": one.topic.carries,
        "key": one.topic.key,
        "exists": there is not None,
        "partitions": there.partitions if there else None,
        "replication": there.replication if there else None,
        "settings": there.settings if there else None,
        "wrong": [_row(mistake) for mistake in one.wrong],
    }
