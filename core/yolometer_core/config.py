"""Configuration: one YAML file, every value also from the environment; unknown keys are named, with the nearest right one.

The environment wins over the file. `YOLOMETER_PORT=9000` sets `port`, `YOLOMETER_OWNER__TEAM=vision` sets `owner.team`.
A secret (SecretStr) is refused in the file: it stands in the environment, or in a file of its own that a key names.
"""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Any, TypeVar, get_args

import yaml
from pydantic import BaseModel, SecretStr, ValidationError
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from yolometer_core.errors import BadConfig

LARGEST_BYTES = 1 << 20
_NO_MAPPING = frozenset({"model_type", "model_attributes_type", "dict_type"})


class Config(BaseSettings):
    """Base of all configurations: frozen, no unknown keys, values from the environment."""

    model_config = SettingsConfigDict(
        env_prefix="YOLOMETER_", env_nested_delimiter="__", extra="forbid", frozen=True, hide_input_in_errors=True,
        nested_model_default_partial_update=True,
    )

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return env_settings, init_settings


C = TypeVar("C", bound=Config)


def load(kind: type[C], path: Path | None = None) -> C:
    """Read a configuration of `kind` from a YAML file (none: from the environment and the defaults alone).

    BadConfig, one sentence, when the file cannot be read, is no mapping, has an unknown key (the nearest right one
    is named) or a value of the wrong type or out of range (the key is named; the value is not, it may be a secret).
    """
    values = read(path) if path else {}
    _check_keys(kind, values, str(path), "")
    try:
        return kind(**values)
    except ValidationError as error:
        raise BadConfig(f"{path or 'The environment'}: {_first(error)}.") from None


def _check_keys(kind: type[BaseModel], values: dict[str, Any], path: str, above: str) -> None:
    """Refuse unknown keys and secrets, here and in the parts of the configuration that have keys of their own."""
    for key, value in values.items():
        if key not in kind.model_fields:
            raise BadConfig(f"{path}: there is no key {above + key!r}; {_nearest(key, list(kind.model_fields))}.")
        members = _members(kind.model_fields[key].annotation)
        if SecretStr in members:
            variable = "YOLOMETER_" + (above + key).replace(".", "__").upper()
            raise BadConfig(f"{path}: {above + key!r} is a secret; put it into the environment as {variable}, or into a file.")
        inner = next((member for member in members if isinstance(member, type) and issubclass(member, BaseModel)), None)
        if inner is not None and isinstance(value, dict):
            _check_keys(inner, value, path, f"{above}{key}.")


def _members(annotation: Any) -> tuple[Any, ...]:
    """The types that a field may have."""
    return get_args(annotation) or (annotation,)


def read(path: Path) -> dict[str, Any]:
    """The keys and values of a YAML file, unchecked; BadConfig when it is none."""
    try:
        if path.stat().st_size > LARGEST_BYTES:
            raise BadConfig(f"{path} is larger than a configuration can be; name another file.")
        found = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadConfig(f"{path} cannot be read ({error.strerror}); name another file.") from error
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f" at line {mark.line + 1}" if mark else ""
        raise BadConfig(f"{path} is not valid YAML{where}; correct it.") from error
    if found is None:
        return {}
    if not isinstance(found, dict) or not all(isinstance(key, str) for key in found):
        raise BadConfig(f"{path} must be a mapping of keys to values; write one `key: value` a line.")
    return found


def _first(error: ValidationError) -> str:
    """The first mistake as half a sentence, without the value."""
    mistake = error.errors(include_input=False, include_url=False)[0]
    key = ".".join(str(part) for part in mistake["loc"])
    if mistake["type"] == "extra_forbidden":
        return f"there is no key {key!r}; remove it"
    why = "it must be a mapping of keys to values" if mistake["type"] in _NO_MAPPING else mistake["msg"].rstrip(".").lower()
    return f"the key {key!r} is wrong ({why}); correct it"


def _nearest(key: str, known: list[str]) -> str:
    near = difflib.get_close_matches(key, known, n=1, cutoff=0.5)
    return f"did you mean {near[0]!r}" if near else f"the keys are {', '.join(known)}"


__all__ = ["Config", "load", "read"]
