"""Writes the pages that are made from the code (events, roi, cli, config). `make docs` runs it; a test finds stale pages."""

from __future__ import annotations

import types
import typing
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import yaml
from pydantic import BaseModel

from yolometer_core import delivery, devices, events, gpu

HERE = Path(__file__).parent
_NOTE = "<!-- Written by docs/_generate.py from the code. Do not edit; run `make docs`. -->\n"
_SUFFIXES = (
    ("_mtok_s", "MTok/s"),
    ("_mhz", "MHz"),
    ("_ms", "ms"),
    ("_w", "W"),
    ("_j", "J"),
    ("_c", "degrees Celsius"),
    ("_s_per_mtok", "s/MTok"),
    ("_per_s", "1/s"),
    ("_mtok", "MTok"),
    ("_seconds", "s"),
    ("_bytes", "bytes"),
    ("_ratio", "ratio"),
    ("_px", "px"),
    ("_s", "s"),
)

_WORDS = {
    "Path": "path",
    "int": "integer",
    "float": "number",
    "str": "text",
    "bytes": "bytes",
    "bool": "boolean",
    "datetime": "time",
    "Decimal": "decimal",
    "NoneType": "null", "SecretStr": "secret", "Any": "anything"}


def event_types() -> list[type[events.Event]]:
    """Every event that has a table, in the order of the source."""
    named = [value for module in (events, gpu, devices, delivery) for value in vars(module).values()]
    kinds = [kind for kind in named if isinstance(kind, type) and issubclass(kind, events.Event) and "table" in vars(kind)]
    return list(dict.fromkeys(kinds))


def own_fields(kind: type[events.Event]) -> list[str]:
    """Names of the fields that `kind` adds to the fields of every event, as they stand in the message or in the row."""
    own = [name for name in kind.model_fields if name not in events.Event.model_fields]
    return own + list(gpu.METRICS) if kind is gpu.Gpu else own


def sample_fields() -> list[tuple[str, str]]:
    """The columns of the table `gpu` beside those of every event, with their types in words: a row is one sample."""
    texts = ["gpu_model", "run_id", "user", "team", "attribution_source"]
    whole = {"memory_used_bytes", "memory_total_bytes", "clock_event_reasons"}
    metrics = [(name, "integer or null" if name in whole else "number or null") for name in gpu.METRICS]
    return [("period_s", "number"), ("gpu_uuid", "text"), *[(name, "text or null") for name in texts], *metrics]


def meaning(meanings: dict[str, str], table: str, field: str) -> str:
    """What a field means: for this event if it says so, else for all events. SystemExit when nobody said it."""
    for name in (f"{table}.{field}", field):
        if name in meanings:
            return meanings[name]
    raise SystemExit(f"docs/_fields.yaml does not say what `{table}.{field}` means; add a line there.")


def meanings() -> dict[str, str]:
    """The meanings of all fields, from _fields.yaml."""
    read: dict[str, str] = yaml.safe_load((HERE / "_fields.yaml").read_text(encoding="utf-8"))
    return read


def _unit(field: str) -> str:
    return next((unit for suffix, unit in _SUFFIXES if field.endswith(suffix)), "")


def _type(annotation: Any) -> str:
    """A Python annotation in words: `integer or null`, `one of a, b`, `list of number or null`."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is typing.Annotated:
        return _type(arguments[0])
    if origin is Literal:
        return "one of " + ", ".join(str(value) for value in arguments)
    if origin in (typing.Union, types.UnionType):
        return " or ".join(_type(argument) for argument in arguments)
    if origin is tuple:
        return f"list of ({_type(arguments[0])})" if get_origin(arguments[0]) else f"list of {_type(arguments[0])}"
    if origin is dict:
        return f"map of {_type(arguments[0])} to {_type(arguments[1])}"
    name: str = annotation.__name__
    return _WORDS.get(name, name)


def _table(fields: Iterator[tuple[str, str, str, str]]) -> list[str]:
    lines = ["| field | type | unit | meaning |", "| --- | --- | --- | --- |"]
    return lines + [f"| `{name}` | {kind} | {unit} | {what} |" for name, kind, unit, what in fields]


def events_page() -> str:
    """docs/events.md: what every event has, then one table for each event."""
    said = meanings()
    page = [
        "# Events",
        "",
        _NOTE,
        "Everything that crosses a process is an event: frozen, typed, with its units in the field names. The event is the row:",
        "its name is the table, its fields are the columns. *Facts* are what an agent read from one source. *Rows* are what",
        "operators made of the facts.",
        "The words are explained in [words.md](words.md), the way of the data in [architecture.md](architecture.md).",
        "",
        "## Fields of every event",
        "",
        "`event_id`, 32 hex digits, is derived from the fields named as identity: the same statement always has the same id.",
        "",
    ]
    common = events.Event.model_fields
    page += _table((f.alias or name, _type(f.annotation), _unit(name), said[f.alias or name]) for name, f in common.items())
    for kind in event_types():
        layer = "Fact" if issubclass(kind, events.Fact) else "Row" if issubclass(kind, events.Row) else "Event"
        doc = " ".join((kind.__doc__ or "").split())
        identity = ", ".join(f"`{name}`" for name in kind.identity)
        page += ["", f"## {kind.table}", "", f"{layer}. {doc}", "", f"Identity: {identity}.", ""]
        fields = ((name, kind.model_fields[name]) for name in own_fields(kind) if name in kind.model_fields)
        if kind is gpu.Gpu:
            page += ["As a message:", ""]
        page += _table((name, _type(f.annotation), _unit(name), meaning(said, kind.table, name)) for name, f in fields)
        if kind is gpu.Gpu:
            page += ["", "As rows, one for each sample of each GPU; the identity of a row is `node`, `gpu_uuid`, `ts`:", ""]
            page += _table((name, what, _unit(name), meaning(said, "gpu", name)) for name, what in sample_fields())
    return "\n".join(page) + "\n"


def roi_page() -> str:
    """docs/roi.md: one section for each ROI query of the catalogue."""
    from yolometer_sql.catalog import catalog

    page = [
        "# ROI queries",
        "",
        _NOTE,
        "`yolometer roi` lists these questions, `yolometer roi NAME` answers one. Unknown values are null, never 0. Units stand",
        "in the column names. The text of each query lies in `sql/yolometer_sql/roi/`.",
    ]
    for name, query in sorted(catalog().items()):
        page += ["", f"## {name}", "", query.question, "", f"One row is {query.row}.", ""]
        page += ["| column | unit | meaning |", "| --- | --- | --- |"]
        page += [f"| `{column.name}` | {column.unit} | {column.meaning} |" for column in query.columns]
        if query.parameters:
            page += ["", "| parameter | type | default | meaning |", "| --- | --- | --- | --- |"]
            page += [f"| `{one.name}` | {one.type} | {one.default or 'empty'} | {one.meaning} |" for one in query.parameters]
    return "\n".join(page) + "\n"


def commands() -> list[tuple[str, str]]:
    """Every command of the CLI with its help text, as `yolometer COMMAND --help` says it, without colours or frames."""
    from yolometer.cli import COMMANDS, app, command

    found: list[tuple[str, str]] = []

    def walk(shown: Any, name: str, parent: Any) -> None:
        shown.rich_markup_mode = None
        last = name.rpartition(" ")[2]
        context = shown.context_class(shown, info_name=last, parent=parent, terminal_width=100, max_content_width=100)
        found.append((name, shown.get_help(context)))
        for child, sub in sorted(getattr(shown, "commands", {}).items()):
            if not sub.hidden:
                walk(sub, f"{name} {child}", context)

    app.commands = {name: command(name) for name in COMMANDS}
    walk(app, "yolometer", None)
    return found


def cli_page() -> str:
    """docs/cli.md: the help of every command."""
    page = ["# Commands", "", _NOTE, "Exit codes: 0 fine, 1 failed, 2 wrong usage, 3 nothing to do."]
    page += ["With `--json` stdout holds JSON and nothing else; logs go to stderr."]
    for name, text in commands():
        page += ["", f"## {name}", "", "```text", *(line.rstrip() for line in text.strip().splitlines()), "```"]
    return "\n".join(page) + "\n"


def config_page() -> str:
    """docs/config.md: every key of the settings of a box and of the services."""
    from yolometer.services import CONFIGS, config_of

    page = [
        "# Settings",
        "",
        _NOTE,
        "`yolometer up --config FILE`, and `agent`, `stream` and `sink`, read these keys from a YAML file. `YOLOMETER_<KEY>`",
        "in the environment wins over the file (`YOLOMETER_OWNER__TEAM=vision` for a key inside), an option of the command",
        "wins over both. An unknown key is an error that names the nearest right one. A secret is never in the file: it comes",
        "from the environment, or from a file of its own. `yolometer config example SERVICE` prints a whole file,",
        "`yolometer config check FILE` checks one.",
    ]
    for service in ("up", *(name for name in CONFIGS if name != "up")):
        page += ["", f"## {service}", "", "| key | type | default | meaning |", "| --- | --- | --- | --- |"]
        page += _keys(config_of(service), "")
    return "\n".join(page) + "\n"


def _keys(kind: Any, above: str) -> Iterator[str]:
    for name, field in kind.model_fields.items():
        default = field.get_default(call_default_factory=True)
        if isinstance(default, BaseModel):
            yield from _keys(type(default), f"{above}{name}.")
            continue
        plain = [str(item) for item in default] if isinstance(default, tuple) else default
        shown = "none" if default in (None, (), {}) else str(plain)
        yield f"| `{above}{name}` | {_type(field.annotation)} | {shown} | {field.description} |"


def example_page(service: str) -> str:
    """deploy/config: a whole file of the settings of a service."""
    from yolometer.services import example

    return example(service)


PAGES: dict[str, Callable[[], str]] = {
    "events.md": events_page,
    "roi.md": roi_page,
    "cli.md": cli_page,
    "config.md": config_page,
    **{f"../deploy/config/{name}.yaml": partial(example_page, name) for name in ("agent", "stream", "sink")},
}


def main() -> None:
    """Write every generated page that changed."""
    for name, make in PAGES.items():
        try:
            text = make()
        except ImportError as missing:
            print(f"docs/{name}: left as it is ({missing})")
            continue
        path = HERE / name
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
            print(f"docs/{name}: written")


if __name__ == "__main__":
    main()
