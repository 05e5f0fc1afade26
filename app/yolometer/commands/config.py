"""`yolometer config`: check a file of settings before a service needs it, and print one that explains every key."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from yolometer import options, show
from yolometer.services import check, example

app = typer.Typer(no_args_is_help=True, help="Check the settings of a service, and print a file that explains every key.")


class Service(StrEnum):
    """What has settings."""

    agent = "agent"
    stream = "stream"
    sink = "sink"
    up = "up"


@app.command("check")
def check_command(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The YAML file.")],
    service: Annotated[Service | None, typer.Option(help="The service it is for; found out from its keys by default.")] = None,
    as_json: options.Json = False,
) -> None:
    """Read a file and the environment as the service would, and say what is wrong. Ends with 2 when something is.

    Example: yolometer config check /etc/yolometer/agent.yaml
    """
    meant, settings = check(file, service.value if service else None)
    if as_json:
        print(show.document({"file": str(file), "service": meant, "settings": settings.model_dump(mode="json")}))
    else:
        show.out().print(f"{file} is right for `yolometer {meant}`.", highlight=False)


@app.command("example")
def example_command(service: Annotated[Service, typer.Argument(help="The service.")]) -> None:
    """Print a whole file of settings: every key with what it means and its default.

    Example: yolometer config example agent > agent.yaml
    """
    print(example(service.value), end="")
