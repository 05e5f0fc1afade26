"""The command `yolometer`: exit 0 fine, 1 failed, 2 wrong usage, 3 nothing to do; an error is one sentence on stderr."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperGroup

from yolometer_core.errors import BadConfig, BadUsage, YolometerError

COMMANDS = {
    "replay": "replay:replay_command",
    "up": "live:up_command",
    "demo": "live:demo_command",
    "roi": "roi:roi_command",
    "sql": "sql:app",
    "agent": "agent:agent_command",
    "stream": "stream:stream_command",
    "sink": "sink:sink_command",
    "topics": "topics:app",
    "dead": "dead:app",
    "audit": "audit:audit_command",
    "config": "config:app",
    "price": "price:app",
    "parts": "parts:parts_command",
    "doctor": "doctor:doctor_command",
}
"""Where each command is. Only the one that is called is imported: an agent must not carry what a sink needs."""
HELP = "Knows what YOLO training costs, in tokens, GPU time and money, while it is being spent."


NEEDS = {"agent": "agent", "stream": "stream", "sink": "sink", "topics": "kafka", "dead": "sink", "audit": "sink"}
"""The extra that brings what a command imports."""


class Group(TyperGroup):
    """The commands, each imported when it is asked for."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        return command(cmd_name) if cmd_name in COMMANDS else None


def command(name: str) -> Any:
    """One command, ready to be called; one whose packages are not installed says which extra brings them."""
    module, _, attribute = COMMANDS[name].partition(":")
    context: dict[str, Any] = {}
    try:
        found = getattr(import_module(f"yolometer.commands.{module}"), attribute)
    except ImportError as error:
        if name not in NEEDS:
            raise
        found = _missing(name, error.name or "a package")
        # whatever options it is called with, the answer is what is missing
        context = {"ignore_unknown_options": True, "allow_extra_args": True}
    root = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
    root.callback()(lambda: None)  # with it a single command stays one of a group
    if isinstance(found, typer.Typer):
        root.add_typer(found, name=name)
    else:
        root.command(name, context_settings=context)(found)
    return typer.main.get_command(root).commands[name]  # type: ignore[attr-defined]  # it is a group


def _missing(name: str, package: str) -> Callable[[], None]:
    sentence = f"`yolometer {name}` needs {package}, which is not installed; install yolometer[{NEEDS[name]}]."

    def missing() -> None:
        raise BadUsage(sentence)

    missing.__doc__ = f"Not installed here; it comes with yolometer[{NEEDS[name]}]."
    return missing


app = Group(name="yolometer", help=HELP, no_args_is_help=True, rich_markup_mode=None)


def main() -> None:
    """Entry point: runs the command and turns every error into one sentence and the right exit code."""
    sys.exit(run(app))


def run(command: Callable[..., Any]) -> int:
    """Run a Typer app in this process; returns the exit code."""
    try:
        command()
    except SystemExit as stop:
        return int(stop.code or 0) if not isinstance(stop.code, str) else 1
    except (BadUsage, BadConfig) as error:
        return _say(error, 2)
    except YolometerError as error:
        return _say(error, 1)
    except KeyboardInterrupt:
        return _say("Stopped.", 130)
    except BrokenPipeError:
        # the reader of our output is gone (head, less): not an error of ours
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        name = f"{error.filename}: " if error.filename else ""
        return _say(f"{name}{error.strerror or error}; check the path, its permissions and the free disk space.", 1)
    return 0


def _say(error: object, code: int) -> int:
    print(f"yolometer: {error}", file=sys.stderr)
    return code
