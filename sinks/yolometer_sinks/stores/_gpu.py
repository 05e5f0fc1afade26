"""Samples of GPUs to Arrow: many events become one table of whole columns, without a step in Python for each row.

NaN becomes null. What no GPU can have (infinite, negative, far too large, a part of a byte) is BadInput that names the column.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from functools import cache
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]  # ships no types

from yolometer_core.errors import BadInput
from yolometer_core.gpu import METRICS, Gpu
from yolometer_core.times import ms_of

_LATEST_MS = int(datetime(2262, 1, 1, tzinfo=UTC).timestamp()) * 1000
_TEXTS = ("gpu_model", "run_id", "user", "team", "attribution_source", "holder", "energy_source")
_COUNTS = ("pcie_replays", "ecc_corrected", "ecc_uncorrected", "nvlink_errors")
_WHOLE = frozenset({"memory_used_bytes", "memory_total_bytes", "clock_event_reasons", *_COUNTS})
"""Metrics that travel as floats and are whole numbers."""
LARGEST: dict[str, float] = {
    "gpu_util_ratio": 1.0,
    "memory_used_bytes": 2.0**50,
    "memory_total_bytes": 2.0**50,
    "power_w": 100_000.0,
    "energy_j": 1e15,
    "sm_clock_mhz": 100_000.0,
    "memory_clock_mhz": 100_000.0,
    "temperature_c": 1000.0,
    "clock_event_reasons": 2.0**53,
    "memory_util_ratio": 1.0,
    "power_limit_w": 100_000.0,
    "pcie_gen": 100.0,
    "pcie_width": 1000.0,
    "throttle_power_s": 1e10,
    "throttle_thermal_s": 1e10,
    "throttle_hw_thermal_s": 1e10,
    "throttle_brake_s": 1e10,
    "throttle_sync_s": 1e10,
    **dict.fromkeys(_COUNTS, 2.0**53),
    "processes": 1e6,
    "foreign_processes": 1e6,
    "lost": 1.0,
}
"""What a metric cannot exceed, whatever the hardware of the next years; each begins at 0. A petabyte, 100 kW, 100 GHz."""
_TYPES: dict[str, Any] = {"f": np.dtype("<f4"), "d": np.dtype("<f8")}


@cache
def schema() -> Any:
    """The columns of the table `gpu`, in order: what every event has, then the GPU, then what was measured."""
    name = pa.dictionary(pa.int32(), pa.string())
    fields = [
        pa.field("schema_version", pa.int64(), nullable=False),
        pa.field("ts", pa.timestamp("ms", tz="UTC"), nullable=False),
        pa.field("node", name, nullable=False),
        pa.field("source", name, nullable=False),
        pa.field("seq", pa.uint64(), nullable=False),
        pa.field("period_s", pa.float64(), nullable=False),
        pa.field("gpu_uuid", name, nullable=False),
        *[pa.field(text, name) for text in _TEXTS],
        *[pa.field(metric, _arrow(metric)) for metric in METRICS],
    ]
    return pa.schema(fields)


def table(events: Sequence[Gpu]) -> Any:
    """One pyarrow.Table with a row for each sample, in order. Of samples of one GPU and time only the last one is kept.

    Raises BadInput for a number that no GPU can have, and for a time outside 1970 to 2261.
    """
    times = np.array([len(event.offsets_ms) for event in events])  # of each event
    gpus = np.array([len(event.gpu_uuid) for event in events])
    of_gpu = np.repeat(times, gpus)  # rows of each GPU of each event
    ends = np.cumsum(of_gpu)
    rows = int(ends[-1])
    row_gpu = np.repeat(np.arange(len(of_gpu)), of_gpu)
    row_event = np.repeat(np.arange(len(events)), times * gpus)
    ts_ms = _times(events, times, gpus, of_gpu, ends - of_gpu, rows)
    by_gpu = {name: _names(chain.from_iterable(event.about(name) for event in events)) for name in ("gpu_uuid", *_TEXTS)}
    by_event = {name: _names(getattr(event, name) for event in events) for name in ("node", "source")}
    node, gpu = _codes(by_event["node"]).astype(np.int64), _codes(by_gpu["gpu_uuid"])
    series = np.repeat(node, gpus) * (int(gpu.max()) + 1) + gpu  # of each GPU of each event: which GPU of which node
    kept = None
    if _may_repeat(series, ts_ms[ends - of_gpu], ts_ms[ends - 1]):
        kept = _last(series[row_gpu], ts_ms)
        row_gpu, row_event, ts_ms = row_gpu[kept], row_event[kept], ts_ms[kept]
    to_gpu, to_event = pa.array(row_gpu), pa.array(row_event)
    columns = {
        "schema_version": _each(events, "schema_version", np.int64, row_event),
        "ts": pa.array(ts_ms).cast(pa.timestamp("ms", tz="UTC")),
        "seq": _each(events, "seq", np.uint64, row_event),
        "period_s": _each(events, "period_s", np.float64, row_event),
        **{name: encoded.take(to_event) for name, encoded in by_event.items()},
        **{name: encoded.take(to_gpu) for name, encoded in by_gpu.items()},
        **{name: _measured(events, name, kept) for name in METRICS if any(name in event.columns for event in events)},
    }
    # what nobody measured is left out, for writing many columns of nothing costs the store as much as numbers do
    fields = [field for field in schema() if field.name in columns]
    return pa.Table.from_arrays([columns[field.name] for field in fields], schema=pa.schema(fields))


def _arrow(metric: str) -> Any:
    if metric in _WHOLE:
        return pa.uint64()
    return pa.float32() if METRICS[metric] == "f" else pa.float64()


def _times(events: Sequence[Gpu], times: Any, gpus: Any, of_gpu: Any, first_row: Any, rows: int) -> Any:
    """The time of each row in whole milliseconds, rounded half up as everywhere."""
    begun_ms = np.array([ms_of(event.ts) for event in events], dtype=np.int64)
    try:
        offsets = np.fromiter(chain.from_iterable(event.offsets_ms for event in events), np.int64, int(times.sum()))
    except OverflowError:
        raise BadInput("A gpu event cannot be stored (its offsets_ms are far too large); correct it where it is made.") from None
    if offsets.max() > _LATEST_MS or begun_ms.min() < 0 or (begun_ms.max() + offsets.max()) >= _LATEST_MS:
        raise BadInput("A gpu event cannot be stored (a time outside the years 1970 to 2261); correct it where it is made.")
    each = np.repeat(begun_ms, times) + offsets  # of each event, each time once
    first_time = np.repeat(np.cumsum(times) - times, gpus)  # where the times of the event of each GPU begin
    return each[np.repeat(first_time - first_row, of_gpu) + np.arange(rows)]


def _names(values: Any) -> Any:
    """Strings, each different one held once: the form in which they are fastest in the client and in the server."""
    return pa.array(list(values), pa.string()).dictionary_encode()


def _codes(encoded: Any) -> Any:
    return encoded.indices.to_numpy()


def _each(events: Sequence[Gpu], name: str, kind: Any, row_event: Any) -> Any:
    values = np.array([getattr(event, name) for event in events], dtype=kind)
    return pa.array(values[row_event])


def _may_repeat(series: Any, first_ms: Any, last_ms: Any) -> bool:
    """Whether times of one GPU overlap, by the first and last time of each of its pieces: far fewer than the rows."""
    order = np.lexsort((first_ms, series))
    series, first_ms, last_ms = series[order], first_ms[order], last_ms[order]
    return bool(((series[1:] == series[:-1]) & (first_ms[1:] <= last_ms[:-1])).any())


def _last(series: Any, ts_ms: Any) -> Any:
    """Which rows stay, when of equal (GPU, time) only the last one may."""
    order = np.lexsort((ts_ms, series))  # stable: equal ones stay in their order
    series, ts_ms = series[order], ts_ms[order]
    replaced = (series[1:] == series[:-1]) & (ts_ms[1:] == ts_ms[:-1])
    return np.sort(order[np.append(~replaced, True)])


def _measured(events: Sequence[Gpu], name: str, kept: Any) -> Any:
    kind = _TYPES[METRICS[name]]
    said = [event.columns.get(name) for event in events]
    if None in said:
        unknown = np.array([np.nan], dtype=kind).tobytes()
        said = [unknown * event.samples if column is None else column for event, column in zip(events, said, strict=True)]
    values: Any = np.frombuffer(b"".join(said), kind)  # type: ignore[arg-type]  # the unknown ones are filled in
    if kept is not None:
        values = values[kept]
    unknowns = np.isnan(values)
    lowest, highest = np.fmin.reduce(values), np.fmax.reduce(values)  # they pass over NaN, and are NaN when all is
    if lowest < 0 or highest > LARGEST[name]:
        wrong = lowest if lowest < 0 else highest
        raise BadInput(f"A gpu event cannot be stored ({name} is {wrong:g}, which no GPU has); correct it where it is made.")
    if name in _WHOLE:
        whole = np.where(unknowns, 0, values).astype(np.uint64)
        if (np.where(unknowns, 0, values) != whole).any():
            raise BadInput(f"A gpu event cannot be stored ({name} is no whole number); correct it where it is made.")
        values = whole
    return pa.array(values, mask=unknowns)
