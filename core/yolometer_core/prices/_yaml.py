"""A YAML file as plain values that remember their lines: mappings, lists and text, nothing else; every number is still text.

Text, because `2.10` must not become a float on its way to money, nor the region `no` a boolean.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from yolometer_core.errors import BadConfig

LARGEST_BYTES = 32 << 20
Lines = dict[tuple[str | int, ...], int]
"""The line of each value (of each key, in a mapping) by its way from the top."""
_CORE = "tag:yaml.org,2002:"
_TAGS = frozenset(_CORE + name for name in ("str", "null", "bool", "int", "float", "timestamp", "map", "seq", "merge", "value"))
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the one in C is ten times as fast


def read(path: Path) -> tuple[dict[str, Any], Lines]:
    """The values of a file, and their lines. BadConfig, one sentence with the line, when it is no mapping in YAML."""
    try:
        if path.stat().st_size > LARGEST_BYTES:
            raise BadConfig(f"{path} is larger than a list of prices can be; name another file.")
        node = yaml.compose(path.read_text(encoding="utf-8-sig"), Loader=_LOADER)
    except OSError as error:
        raise BadConfig(f"{path} cannot be read ({error.strerror}); name another file.") from error
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f" at line {mark.line + 1}" if mark else ""
        raise BadConfig(f"{path} is not valid YAML{where}; correct it.") from error
    reader = _Reader(path)
    value = reader.value(node, ()) if node is not None else {}
    if not isinstance(value, dict):
        raise BadConfig(f"{path} must be a mapping of keys to values; write one `key: value` a line.")
    return value, reader.lines


class _Reader:
    def __init__(self, path: Path) -> None:
        self.path, self.lines = path, Lines()
        self._seen: set[int] = set()

    def value(self, node: yaml.Node, way: tuple[str | int, ...]) -> Any:
        self.lines.setdefault(way, node.start_mark.line + 1)
        if node.tag not in _TAGS:
            raise self._wrong(node, f"the tag {node.tag} is refused; write plain values")
        if id(node) in self._seen:
            raise self._wrong(node, "anchors and aliases (& and *) are refused; write the value out")
        self._seen.add(id(node))
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, way)
        if isinstance(node, yaml.SequenceNode):
            return [self.value(item, (*way, n)) for n, item in enumerate(node.value)]
        return None if node.tag == f"{_CORE}null" else str(node.value)

    def _mapping(self, node: yaml.MappingNode, way: tuple[str | int, ...]) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for key_node, value_node in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                raise self._wrong(key_node, "a key must be one word; write `key: value`")
            key = str(key_node.value)
            if key in values:
                raise self._wrong(key_node, f"{key!r} is there twice, first in line {self.lines[(*way, key)]}; remove one")
            self.lines[(*way, key)] = key_node.start_mark.line + 1
            values[key] = self.value(value_node, (*way, key))
        return values

    def _wrong(self, node: yaml.Node, says: str) -> BadConfig:
        return BadConfig(f"{self.path} line {node.start_mark.line + 1}: {says}.")


def line_of(lines: Lines, way: tuple[str | int, ...]) -> int | None:
    """The line of a value, or of what it lies in when it is not there itself."""
    return next((lines[way[:n]] for n in range(len(way), 0, -1) if way[:n] in lines), None)
