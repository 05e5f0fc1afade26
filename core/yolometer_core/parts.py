"""Discovery of parts: walk a package, import its modules, collect what they offer. Called at start, never an import effect."""

from __future__ import annotations

import importlib
import pkgutil
from types import ModuleType
from typing import TypeVar

from yolometer_core.errors import BadConfig

T = TypeVar("T")


def discover(package: ModuleType, attribute: str, kind: type[T]) -> dict[str, T]:
    """Return `{module name: module.attribute}` for every public module of `package` that has the attribute.

    Modules whose name starts with `_` are shared helpers and are skipped. A part of the wrong type
    raises BadConfig, so that a half-written part is found at start and not at midnight.
    """
    found: dict[str, T] = {}
    for info in sorted(pkgutil.iter_modules(package.__path__), key=lambda item: item.name):
        if info.name.startswith("_"):
            continue
        module = importlib.import_module(f"{package.__name__}.{info.name}")
        part = getattr(module, attribute, None)
        if part is None:
            continue
        if not isinstance(part, kind):
            raise BadConfig(f"{module.__name__}.{attribute} must be a {kind.__name__}; fix or remove that file.")
        found[info.name] = part
    return found
