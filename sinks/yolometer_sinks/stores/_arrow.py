"""Events to Arrow: one schema per event class, derived from its pydantic model once, and one table per class and batch.

A missing value stays null and NaN stays NaN. Times become whole milliseconds, rounded half up. Money becomes
Decimal(18, 6), rounded half to even.
"""

from __future__ import annotations

import types
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from functools import cache
from operator import itemgetter
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import pyarrow as pa  # type: ignore[import-untyped]  # ships no types
import pyarrow.compute as pc  # type: ignore[import-untyped]  # ships no types

from yolometer_core.errors import BadInput
from yolometer_core.events import Event, Row
from yolometer_core.gpu import Gpu
from yolometer_core.times import EPOCH
from yolometer_sinks.stores import _gpu

_MONEY_STEP = Decimal("0.000001")
_CHUNK = 128
"""Events turned into columns at a time: what they hold then fits into the cache of a core, which halves the time, and the
garbage collector is not woken."""
_EARLIEST_US, _LATEST_US = 0, int(datetime(2262, 1, 1, tzinfo=UTC).timestamp()) * 1_000_000
Build = Callable[[Sequence[Any]], Any]


@dataclass(frozen=True)
class Shape:
    """How one event class becomes columns: its fields in order. The store computes `event_id` by itself."""

    schema: Any
    builds: dict[str, Build]


@cache
def shape(kind: type[Event]) -> Shape:
    """Return the shape of an event class. A field of a type that no column has is a TypeError, raised by the tests."""
    fields = []
    builds: dict[str, Build] = {}
    for name, info in kind.model_fields.items():
        annotation, nullable = _plain(info.annotation)
        unsigned = any(getattr(mark, "ge", None) == 0 for mark in info.metadata)
        arrow, build = _column(annotation, unsigned)
        fields.append(pa.field(name, arrow, nullable=nullable))
        builds[name] = build
    return Shape(pa.schema(fields), builds)


def schema(kind: type[Event]) -> Any:
    """The columns of a class of events as an Arrow schema."""
    return _gpu.schema() if kind is Gpu else shape(kind).schema


def tables(events: Sequence[Event]) -> dict[str, Any]:
    """Return `{table name: pyarrow.Table}` of the events, in the order in which their classes come first.

    Of the versions of one row only the highest is kept (the later one of equals). Raises BadInput for an event that
    cannot be a row: a naive time, a year outside 1970 to 2261, a number that its column cannot hold. Raises it too for a class
    that is never stored. A `gpu` event becomes one row for each sample.
    """
    groups: defaultdict[type[Event], list[Event]] = defaultdict(list)
    for event in events:
        groups[type(event)].append(event)
    return {kind.table: table(kind, group) for kind, group in groups.items()}


def sift(events: Sequence[Event]) -> tuple[list[Event], list[tuple[Event, BadInput]]]:
    """Part the events that can be rows from those that cannot, in order, each with its reason. Found by halving."""
    try:
        tables(events)
    except BadInput as error:
        if len(events) == 1:
            return [], [(events[0], error)]
        middle = len(events) // 2
        good, bad = sift(events[:middle])
        more, worse = sift(events[middle:])
        return good + more, bad + worse
    return list(events), []


def table(kind: type[Event], events: Sequence[Event]) -> Any:
    """Return one pyarrow.Table of events that are all of `kind`. Raises BadInput as `tables` does."""
    if not kind.stored:
        raise BadInput(f"A {kind.table} event is never stored; leave it out.")
    if kind is Gpu:
        return _gpu.table(events)  # type: ignore[arg-type]  # they are all of this kind
    form = shape(kind)
    try:
        columns = _columns(kind, events)
        if issubclass(kind, Row) and _may_repeat([columns[name] for name in kind.identity]):
            columns = _columns(kind, _newest(kind, events))
        arrays = [build(columns[name]) for name, build in form.builds.items()]
        built = pa.Table.from_arrays(arrays, schema=form.schema)
        for field, array in zip(form.schema, arrays, strict=True):
            if array.null_count and not field.nullable:
                raise BadInput(f"A {kind.table} event has no {field.name}, and must have one.")
    except (pa.ArrowException, OverflowError, KeyError, TypeError, ValueError, InvalidOperation) as error:
        detail = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise BadInput(f"A {kind.table} event cannot be stored as a row ({detail}); correct it where it is made.") from error
    return built


def _columns(kind: type[Event], events: Sequence[Event]) -> dict[str, list[Any]]:
    """The values of every field. pydantic keeps them in the order of the fields; events where it did not go by name."""
    names = list(kind.model_fields)
    columns: dict[str, list[Any]] = {name: [] for name in names}
    for begin in range(0, len(events), _CHUNK):
        said = [event.__dict__ for event in events[begin : begin + _CHUNK]]
        if set(map(next, map(reversed, said))) == {names[-1]}:
            parts: Iterable[Sequence[Any]] = zip(*[fields.values() for fields in said], strict=True)
        else:
            parts = ([fields[name] for fields in said] for name in names)
        for column, part in zip(columns.values(), parts, strict=True):
            column.extend(part)
    return columns


def _may_repeat(identity: Sequence[Sequence[Any]]) -> bool:
    """Whether two rows may have the same identity: equal ones have equal hashes, and a set of hashes is the fastest to make."""
    return len(set(map(hash, zip(*identity, strict=True)))) < len(identity[0])


def _newest(kind: type[Row], events: Sequence[Event]) -> list[Event]:
    identity = itemgetter(*kind.identity) if len(kind.identity) > 1 else itemgetter(kind.identity[0])
    best: dict[Any, Event] = {}
    for event in events:
        key = identity(event.__dict__)
        known = best.get(key)
        if known is None or event.__dict__["version"] >= known.__dict__["version"]:
            best[key] = event
    return list(best.values())


def _plain(annotation: Any) -> tuple[Any, bool]:
    """Take `Annotated` and `| None` off: the bare type, and whether None is allowed."""
    nullable = False
    while True:
        origin = get_origin(annotation)
        if origin is Annotated:
            annotation = get_args(annotation)[0]
        elif origin in (Union, types.UnionType):
            members = [member for member in get_args(annotation) if member is not types.NoneType]
            nullable = nullable or len(members) < len(get_args(annotation))
            if len(members) != 1:
                raise TypeError(f"a field of several types has no column: {annotation}")
            annotation = members[0]
        else:
            return annotation, nullable


def _column(annotation: Any, unsigned: bool) -> tuple[Any, Build]:
    origin = get_origin(annotation)
    if annotation is datetime:
        return pa.timestamp("ms", tz="UTC"), _times
    if annotation is Decimal:
        return pa.decimal128(18, 6), _money
    if annotation is int:
        return _repeated(pa.uint64() if unsigned else pa.int64())
    if annotation is float:
        return pa.float64(), _floats
    if annotation in _BARE:
        return _repeated(_BARE[annotation])
    if origin is Literal:
        return _repeated(pa.string())
    if origin is tuple:
        member, _ = _plain(get_args(annotation)[0])
        return _typed(pa.list_(_BARE[member]))
    if origin is dict:
        return pa.map_(pa.string(), pa.string()), _maps
    raise TypeError(f"a field of type {annotation} has no column")


_BARE: dict[Any, Any] = {str: pa.string(), bytes: pa.binary(), bool: pa.bool_(), float: pa.float64()}


def _typed(arrow: Any) -> tuple[Any, Build]:
    return arrow, lambda values: pa.array(values, arrow)


def _floats(values: Sequence[float | None]) -> Any:
    if values and values[0] is values[-1] is None and values.count(None) == len(values):
        return pa.nulls(len(values), pa.float64())
    return pa.array(values, pa.float64())


def _repeated(arrow: Any) -> tuple[Any, Build]:
    """For types where equal values are the same (0.0 and -0.0 are not): a column of one value is not converted row by row."""

    def build(values: Sequence[Any]) -> Any:
        if values and values[0] == values[-1] and values.count(values[0]) == len(values):
            return pa.repeat(pa.scalar(values[0], arrow), len(values))
        return pa.array(values, arrow)

    return arrow, build


def _maps(values: Sequence[dict[str, str]]) -> Any:
    return pa.array([list(value.items()) for value in values], pa.map_(pa.string(), pa.string()))


def _money(values: Sequence[Decimal | None]) -> Any:
    rounded = [None if value is None else value.quantize(_MONEY_STEP) for value in values]
    return pa.array(rounded, pa.decimal128(18, 6))


def _times(values: Sequence[datetime | None]) -> Any:
    """Whole milliseconds, half up. By way of time since 1970, as pyarrow asks each time for its zone, which takes longer."""
    try:
        since_1970 = [None if value is None else value - EPOCH for value in values]
    except TypeError:
        raise ValueError("a time without a zone") from None
    since_1970_us = pa.array(since_1970, pa.duration("us")).cast(pa.int64())
    bounds = pc.min_max(since_1970_us).as_py()
    if bounds["min"] is not None and not _EARLIEST_US <= bounds["min"] <= bounds["max"] < _LATEST_US:
        raise ValueError("a time outside the years 1970 to 2261")
    return pc.divide(pc.add(since_1970_us, 500), 1000).cast(pa.timestamp("ms", tz="UTC"))
