"""Rollups: what each run used of each GPU in a minute, an hour and a day, made again from the samples where one came.

They are never added to, always made again as a whole, so that repeated, late and corrected samples count once. `touch` notes
a window, `step` makes all noted ones again. Versions and notes are times of the clock of the server, in microseconds.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from yolometer_core.errors import BadUsage
from yolometer_sinks.stores._base import Store

KEPT = timedelta(days=14)
"""How long samples are kept (migration 0002): what is older cannot be made again."""
_SUMS = ("samples", "gpu_seconds", "gpu_util_ratio_sum", "gpu_util_ratio_samples", "memory_used_bytes_sum",
         "memory_used_bytes_samples", "power_w_sum", "power_w_samples", "energy_j", "energy_s")  # fmt: skip
_MAXIMA = ("gpu_util_ratio_max", "memory_used_bytes_max", "memory_total_bytes_max", "power_w_max", "temperature_c_max")
# name of a column, then how it is made of samples
_FROM_SAMPLES = {
    "user": "argMax(s.user, s.ts)",
    "gpu_model": "argMax(s.gpu_model, s.ts)",
    "first_ts": "min(s.ts)",
    "last_ts": "max(s.ts)",
    "samples": "count()",
    "gpu_seconds": "sum(s.period_s)",
    "gpu_util_ratio_sum": "sum(s.gpu_util_ratio)",
    "gpu_util_ratio_samples": "count(s.gpu_util_ratio)",
    "gpu_util_ratio_max": "max(s.gpu_util_ratio)",
    "memory_used_bytes_sum": "sum(s.memory_used_bytes)",
    "memory_used_bytes_samples": "count(s.memory_used_bytes)",
    "memory_used_bytes_max": "max(s.memory_used_bytes)",
    "memory_total_bytes_max": "max(s.memory_total_bytes)",
    "power_w_sum": "sum(s.power_w)",
    "power_w_samples": "count(s.power_w)",
    "power_w_max": "max(s.power_w)",
    "energy_j": "sum(s.power_w * s.period_s)",
    "energy_s": "sumIf(s.period_s, isNotNull(s.power_w))",
    "temperature_c_max": "max(s.temperature_c)",
    "clock_event_reasons": "groupBitOr(s.clock_event_reasons)",
}
_FROM_FINER = {
    "user": "argMax(s.user, s.last_ts)",
    "gpu_model": "argMax(s.gpu_model, s.last_ts)",
    "first_ts": "min(s.first_ts)",
    "last_ts": "max(s.last_ts)",
    **{name: f"sum(s.{name})" for name in _SUMS},
    **{name: f"max(s.{name})" for name in _MAXIMA},
    "clock_event_reasons": "groupBitOr(s.clock_event_reasons)",
}


class Level(NamedTuple):
    """One rollup: its window, where its rows go and come from, and how many windows one statement makes."""

    window_s: int
    table: str
    source: str
    start: str  # the window that a row of the source lies in
    at_once: int


MINUTE = Level(60, "usage_minute", "gpu", "toStartOfMinute(s.ts)", 10)
HOUR = Level(3600, "usage_hour", "usage_minute", "toStartOfHour(s.ts)", 4)
DAY = Level(86400, "usage_day", "usage_hour", "toStartOfDay(s.ts)", 7)
LEVELS = (MINUTE, HOUR, DAY)


def touch(store: Store, window_s: int, starts: Collection[int]) -> None:
    """Note windows (their starts, in seconds since 1970): something in them is another one now.

    To be called after the rows are in the store: whoever makes the window again from then on sees them.
    """
    store.command(
        "INSERT INTO dirty_window (window_s, ts, computed, version) SELECT {window:UInt32}, "
        "toDateTime(arrayJoin({starts:Array(UInt32)}), 'UTC'), false, toUnixTimestamp64Micro(now64(6))",
        {"window": window_s, "starts": sorted(starts)},
    )


def step(store: Store, levels: Sequence[Level] = LEVELS) -> int:
    """Make all noted windows of these levels again, the finer ones first; returns how many. Two at once do no harm."""
    made = 0
    for level in levels:
        rows = store.query(
            "SELECT toUnixTimestamp(ts) FROM dirty_windows WHERE window_s = {window:UInt32} ORDER BY ts",
            {"window": level.window_s},
        ).rows
        starts = [int(start) for (start,) in rows]
        for some in _slices(starts, level):
            _make(store, level, some)
        made += len(starts)
    return made


def recompute(store: Store, begin: datetime, end: datetime, now: datetime) -> int:
    """Make every window that overlaps [begin, end) again, whatever is noted; returns how many.

    BadUsage for a time that the samples may be gone of (more than 14 days before `now`): what is remembered of it stays.
    """
    if begin.tzinfo is None or end.tzinfo is None or begin >= end:
        raise BadUsage("A span of time needs a begin before its end, both with a zone; correct it.")
    oldest = (now - KEPT).astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0) + timedelta(days=1)
    if begin < oldest:
        raise BadUsage(f"Samples are kept for {KEPT.days} days; begin at {oldest:%Y-%m-%d} or later.")
    made = 0
    for level in LEVELS:
        first = int(begin.timestamp()) // level.window_s * level.window_s
        starts = list(range(first, int(end.timestamp()), level.window_s))
        for some in _slices(starts, level):
            _make(store, level, some)
        made += len(starts)
    return made


def _make(store: Store, level: Level, starts: Sequence[int]) -> None:
    """Make some windows again. In order, so that a process that dies in between leaves them noted:

    1. the time by the clock of the server is the version of all that follows;
    2. a row for each (node, GPU, run, team) of the windows is written;
    3. rows of these windows that were not written just now are deleted: their samples belong to another run now;
    4. the coarser windows around them are noted;
    5. the windows are remembered as made at that time: touched later, they are dirty still;
    6. where another process made the same windows meanwhile, they are noted again: neither may know what the other saw.
    """
    version = int(store.query("SELECT toUnixTimestamp64Micro(now64(6))").rows[0][0])
    bound = {"version": version, "window": level.window_s, "starts": list(starts)}
    store.command(_insert(level), {**bound, "fives": sorted({start // 300 * 300 for start in starts})})
    store.command(_tombstones(level), bound)
    coarser = next((one for one in LEVELS if one.window_s > level.window_s), None)
    if coarser is not None:
        touch(store, coarser.window_s, {start // coarser.window_s * coarser.window_s for start in starts})
    store.command(
        "INSERT INTO dirty_window (window_s, ts, computed, version) SELECT {window:UInt32}, "
        "toDateTime(arrayJoin({starts:Array(UInt32)}), 'UTC'), true, {version:UInt64}",
        bound,
    )
    if unsure := {int(start) for (start,) in store.query(_unsure(level), bound).rows}:
        touch(store, level.window_s, unsure)


_WINDOWS = "(SELECT toDateTime(arrayJoin({starts:Array(UInt32)}), 'UTC'))"
_FIVES = "(SELECT toDateTime(arrayJoin({fives:Array(UInt32)}), 'UTC'))"


def _insert(level: Level) -> str:
    made = _FROM_SAMPLES if level is MINUTE else _FROM_FINER
    columns = ", ".join(["ts", "node", "gpu_uuid", "run_id", "team", *made, "version", "is_deleted"])
    values = ", ".join(made.values())
    if level is MINUTE:  # the key of the samples begins with the five minutes: without them every granule would be read
        where = f"toStartOfFiveMinutes(s.ts) IN {_FIVES} AND {level.start} IN {_WINDOWS}"
    else:
        first, last = "arrayMin({starts:Array(UInt32)})", "arrayMax({starts:Array(UInt32)})"
        where = (
            f"s.ts >= toDateTime({first}, 'UTC') AND s.ts < toDateTime({last} + {{window:UInt32}}, 'UTC') "
            f"AND {level.start} IN {_WINDOWS}"
        )
    return (
        f"INSERT INTO {level.table} ({columns}) "  # noqa: S608  # our own tables and columns; values are bound
        "SELECT start, node, gpu_uuid, nullIf(run, ''), nullIf(of_team, ''), "
        "* EXCEPT (start, node, gpu_uuid, run, of_team) FROM ("
        f"SELECT toDateTime({level.start}, 'UTC') AS start, s.node AS node, s.gpu_uuid AS gpu_uuid, "
        f"toString(ifNull(s.run_id, '')) AS run, toString(ifNull(s.team, '')) AS of_team, {values}, {{version:UInt64}}, 0 "
        f"FROM {level.source} AS s FINAL WHERE {where} GROUP BY start, node, gpu_uuid, run, of_team)"
    )


def _tombstones(level: Level) -> str:
    return (
        f"INSERT INTO {level.table} SELECT * REPLACE ({{version:UInt64}} AS version, 1 AS is_deleted) "  # noqa: S608  # as above
        f"FROM {level.table} AS u FINAL WHERE u.ts IN {_WINDOWS} AND u.version < {{version:UInt64}} AND u.is_deleted = 0"
    )


def _unsure(level: Level) -> str:
    return (
        f"SELECT DISTINCT toUnixTimestamp(ts) FROM {level.table} FINAL "  # noqa: S608  # as above
        f"WHERE ts IN {_WINDOWS} AND version < {{version:UInt64}} AND is_deleted = 0 "
        "UNION DISTINCT SELECT toUnixTimestamp(ts) FROM dirty_window FINAL "
        f"WHERE window_s = {{window:UInt32}} AND computed AND ts IN {_WINDOWS} AND version > {{version:UInt64}}"
    )


def _slices(starts: Iterable[int], level: Level) -> Iterator[list[int]]:
    """Windows that one statement makes: not too many, and close together, so that it reads little between them."""
    some: list[int] = []
    for start in starts:
        if some and (len(some) >= level.at_once or start - some[0] >= 2 * level.at_once * level.window_s):
            yield some
            some = []
        some.append(start)
    if some:
        yield some
