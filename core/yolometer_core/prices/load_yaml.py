"""prices.yaml: the keys of the file, read into a book of prices. Every mistake is one sentence with its line and key."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from yolometer_core.errors import BadConfig
from yolometer_core.prices import _yaml
from yolometer_core.prices._base import Mistake
from yolometer_core.prices.book import PriceBook
from yolometer_core.prices.rules import mistakes
from yolometer_core.prices.schema import PriceFile, contents

_ADD = "; add it"  # such a mistake comes after others of its line: a misspelt key is also a missing one


def load(path: Path) -> PriceBook:
    """The book of a file. BadConfig, one sentence, for the first mistake; `problems` names all of them."""
    book, wrong = _read(path)
    if book is None:
        more = f" (and {len(wrong) - 1} more; `yolometer price check` lists them)" if len(wrong) > 1 else ""
        raise BadConfig(f"{sentence(path, wrong[0])}{more}.")
    return book


def problems(path: Path) -> list[Mistake]:
    """All mistakes of a file, in order of lines. BadConfig when it is no YAML mapping at all."""
    return _read(path)[1]


def sentence(path: Path, mistake: Mistake) -> str:
    """A mistake with its place, without the full stop."""
    return f"{path} line {mistake.line}: {mistake.says}" if mistake.line else f"{path}: {mistake.says}"


def _read(path: Path) -> tuple[PriceBook | None, list[Mistake]]:
    values, lines = _yaml.read(path)
    try:
        file = PriceFile.model_validate(values)
    except ValidationError as error:
        found = [_mistake(one, lines) for one in error.errors(include_url=False)]
        return None, sorted(found, key=lambda mistake: (mistake.line or 0, mistake.says.endswith(_ADD)))
    prices, rates, nodes = contents(file, lambda *way: _yaml.line_of(lines, way))
    aliases = tuple(file.aliases.items())
    alias_lines = {name: _yaml.line_of(lines, ("aliases", name)) for name in file.aliases}
    wrong = mistakes(file.currency, prices, rates, aliases, file.highest, alias_lines)
    if wrong:
        return None, wrong
    return PriceBook(file.currency, prices, rates, aliases, nodes, highest=file.highest), []


def _mistake(error: ErrorDetails, lines: _yaml.Lines) -> Mistake:
    way = error["loc"]
    key = ".".join(str(part) for part in way if not isinstance(part, int)) or "the file"
    last = str(way[-1]) if way else ""
    if error["type"] == "extra_forbidden":
        known = list(_model_at(way[:-1]).model_fields)
        near = difflib.get_close_matches(last, known, n=1, cutoff=0.5)
        says = f"there is no key {key!r}; " + (f"did you mean {near[0]!r}" if near else f"the keys are {', '.join(known)}")
    elif error["type"] == "missing":
        says = f"the key {key!r} is missing{_ADD}"
    elif error["type"] in ("model_type", "dict_type", "model_attributes_type"):
        says = f"{key!r} must be a mapping; write one `key: value` a line below it"
    elif error["type"] in ("list_type", "tuple_type"):
        says = f"{key!r} must be a list; begin each entry with `- `"
    elif error["type"] == "string_type":
        says = f"{key!r} must be one text; write a value, or remove the key"
    else:
        says = f"{key!r}: {error['msg'].removeprefix('Value error, ')}"
    return Mistake(_yaml.line_of(lines, way), says)


def _model_at(way: tuple[str | int, ...]) -> type[BaseModel]:
    """The part of the file that a way leads to."""
    model: type[BaseModel] = PriceFile
    for name in way:
        if isinstance(name, str) and name in model.model_fields:
            inner = _models_in(model.model_fields[name].annotation)
            model = inner[0] if inner else model
    return model


def _models_in(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for part in get_args(annotation) for model in _models_in(part)]
