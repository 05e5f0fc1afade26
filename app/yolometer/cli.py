"""The command `yolometer`: exit 0 fine, 1 failed, 2 wrong usage, 3 nothing to do; an error is one sentence on stderr."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

import typer
from typer.core import TyperGroup

from yolometer.commands import doctor, live, parts, replay, roi, sql
from yolometer_core.errors import BadConfig, BadUsage, YolometerError

app = typer.Typer(
    name="yolometer",
    help="Knows what YOLO training costs, in tokens, GPU time and money, while it is being spent.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    cls=TyperGroup,
)
app.command("replay")(replay.replay_command)
app.command("up")(live.up_command)
app.command("demo")(live.demo_command)
app.command("roi")(roi.roi_command)
app.add_typer(sql.app, name="sql")
app.command("parts")(parts.parts_command)
app.command("doctor")(doctor.doctor_command)


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
