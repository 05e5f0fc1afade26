"""The configurations of the services: which there are, what a file is of, and an example that explains every key."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, SecretStr
from pydantic_core import PydanticUndefined

from yolometer_core.config import Config, load, read

CONFIGS = {
    "agent": "yolometer_agent.config:AgentConfig",
    "stream": "yolometer_stream.config:StreamConfig",
    "sink": "yolometer_sinks.config:SinkConfig",
    "up": "yolometer.settings:BoxConfig",
}
WIDTH = 110


def config_of(service: str) -> type[Config]:
    """The class of the configuration of a service."""
    module, _, name = CONFIGS[service].partition(":")
    found: type[Config] = getattr(import_module(module), name)
    return found


def service_of(path: Path) -> str:
    """The service that a file is most likely meant for: the one that knows most of its keys, of equals the one in its name."""
    keys = read(path)
    return max(CONFIGS, key=lambda name: (sum(key in config_of(name).model_fields for key in keys), name in path.stem))


def check(path: Path, service: str | None) -> tuple[str, Config]:
    """The service and its configuration; BadConfig in one sentence when the file cannot be used."""
    meant = service or service_of(path)
    return meant, load(config_of(meant), path)


def example(service: str) -> str:
    """A whole file of a service in YAML: every key with its meaning and its default. Secrets are named, never given."""
    kind = config_of(service)
    head = [f"# Settings of `yolometer {service} --config FILE`. Every key is optional and shown with its default;",
            "# each can come from the environment instead: YOLOMETER_<KEY>, with __ between the levels."]  # fmt: skip
    return "\n".join([*head, *_lines(kind, "", "YOLOMETER_")]) + "\n"


def _lines(kind: type[BaseModel], indent: str, variable: str) -> Iterator[str]:
    for name, field in kind.model_fields.items():
        about = f"{indent}# {field.description or name}"
        if SecretStr in (getattr(field.annotation, "__args__", None) or (field.annotation,)):
            only = f"{about} (only in the environment: {variable}{name.upper()})"
            yield from textwrap.wrap(only, WIDTH, subsequent_indent=f"{indent}# ")
            continue
        if field.description:
            yield from textwrap.wrap(about, WIDTH, subsequent_indent=f"{indent}# ")
        default = field.get_default(call_default_factory=True)
        if isinstance(default, BaseModel):
            yield f"{indent}{name}:"
            yield from _lines(type(default), indent + "  ", f"{variable}{name.upper()}__")
        else:
            yield f"{indent}{name}: {_text(default)}"


def _text(value: Any) -> str:
    """A default as YAML on one line."""
    if value is PydanticUndefined:
        return "# must be given"
    plain = value if isinstance(value, (bool, int, float, type(None))) else _plain(value)
    return yaml.safe_dump(plain, default_flow_style=True, width=10_000).removesuffix("\n").removesuffix("\n...")


def _plain(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return value if isinstance(value, (bool, int, float, type(None))) else str(value)
