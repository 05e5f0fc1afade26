"""Rolling rates in event time: exact windows, a ring of buckets that equals them, counters, bounds (docs/maths.md, section 5).

A sample is (t0, t1, amount): seconds, and MTok spread evenly over (t0, t1]; t0 = t1 is a point, counted where t1 lies.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any, NamedTuple

from yolometer_core.errors import BadConfig

Ring = dict[str, Any]

KEYS_KEPT = 256  # accepted keys that are remembered however old they are
KEYS_MAX = 4096  # never more than this many, even inside the lateness
GAP_S = 1e-6  # event times have microseconds: a smaller gap is rounding
PIECES_MAX = 4  # separate covered pieces a bucket remembers


class Window(NamedTuple):
    """What happened in (query_time - w, query_time]: MTok, MTok/s, share of the time covered, MTok/s while covered."""

    amount: float
    rate: float
    coverage: float
    active_rate: float | None
    query_time: float


def _window(amount: float, covered_s: float, t: float, w: float) -> Window:
    return Window(amount, amount / w, covered_s / w, amount / covered_s if covered_s > 0 else None, t)


def _join(pieces: Iterable[tuple[float, float]], gap: float = 0.0) -> list[tuple[float, float]]:
    """Union of intervals: sorted, and more than `gap` apart from one another."""
    joined: list[tuple[float, float]] = []
    for a, b in sorted(pieces):
        if joined and a <= joined[-1][1] + gap:
            joined[-1] = (joined[-1][0], max(joined[-1][1], b))
        else:
            joined.append((a, b))
    return joined


def exact(samples: Iterable[Sequence[float]], t: float, w: float) -> Window:
    """The window (t - w, t] over all samples (t0, t1, amount), by definition: what the ring is measured against."""
    amounts, pieces = [], []
    for t0, t1, amount in samples:
        if t0 == t1:
            amounts.append(amount if t - w < t1 <= t else 0.0)
        elif (b := min(t, t1)) > (a := max(t - w, t0)):
            amounts.append(amount * ((b - a) / (t1 - t0)))
            pieces.append((a, b))
    return _window(math.fsum(amounts), math.fsum(b - a for a, b in _join(pieces)), t, w)


def ring_start(g: float, wmax: float, lateness: float) -> Ring:
    """The empty ring (a JSON dict): buckets of g seconds, windows up to wmax seconds, samples at most `lateness` seconds late.

    Bucket i covers (i g, (i+1) g] and lives in slot i mod `buckets`, tagged with i: [i, amount, a, b, a, b, ...], the
    pairs being its covered pieces in seconds from its start. A slot is made when first needed and overwritten when its
    tag is old, so an idle ring costs nothing.
    """
    if not (g > 0 and wmax >= g and lateness >= 0):
        raise BadConfig(f"A ring needs bucket > 0, window >= bucket and lateness >= 0; got {g}, {wmax}, {lateness}.")
    counts = {"late": 0, "duplicates": 0, "rejected": 0}
    return {"g": g, "wmax": wmax, "lateness": lateness, "buckets": math.ceil((wmax + lateness) / g) + 1,
            "watermark": None, "floor": None, **counts, "slots": {}, "seen": {}}  # fmt: skip


def _bucket(t: float, g: float) -> int:
    return math.ceil(t / g) - 1


def ring_add(state: Ring, key: Sequence[int], t0: float, t1: float, amount: float) -> str:
    """Add a sample in place, in O(sample / g); return "ok", "late", "duplicate" or "rejected" (then nothing is added).

    key        (attempt, seq); an accepted key is added once
    duplicate  Keys are forgotten, first in first out, once there are more than KEYS_KEPT and they are past the lateness:
               a second delivery of a forgotten key is late, so it is never added twice. Beyond KEYS_MAX keys inside the
               lateness the oldest are forgotten too, and `floor` moves up so that these are late as well.
    late       t1 <= watermark - lateness, the watermark being the largest t1 accepted so far
    rejected   t1 < t0, a negative amount, or anything not finite
    """
    if not (math.isfinite(t0) and math.isfinite(t1) and math.isfinite(amount)) or t1 < t0 or amount < 0:
        state["rejected"] += 1
        return "rejected"
    seen: dict[str, float] = state["seen"]
    name = ":".join(map(str, key))
    if name in seen:
        state["duplicates"] += 1
        return "duplicate"
    watermark = state["watermark"]
    if watermark is not None and t1 <= _line(state):
        state["late"] += 1
        return "late"
    state["watermark"] = watermark = t1 if watermark is None else max(watermark, t1)
    seen[name] = t1
    _forget(state, seen)
    _spread(state, t0, t1, amount, _bucket(watermark, state["g"]) - state["buckets"] + 1)
    return "ok"


def _line(state: Ring) -> float:
    """What ends here or earlier is late."""
    line: float = state["watermark"] - state["lateness"]
    return line if state["floor"] is None else max(line, state["floor"])


def _forget(state: Ring, seen: dict[str, float]) -> None:
    while len(seen) > KEYS_KEPT:
        first = next(iter(seen))
        if seen[first] > _line(state):
            if len(seen) <= KEYS_MAX:
                return
            state["floor"] = seen[first]
        del seen[first]


def _spread(state: Ring, t0: float, t1: float, amount: float, oldest: int) -> None:
    """Give every bucket from `oldest` on its share; what reaches further back than any window is left out."""
    g, slots, last = state["g"], state["slots"], _bucket(t1, state["g"])
    for i in range(max(math.floor(t0 / g) if t1 > t0 else last, oldest), last + 1):
        slot = slots.setdefault(str(i % state["buckets"]), [i, 0.0])
        if slot[0] != i:
            slot[:] = [i, 0.0]
        if t1 == t0:
            slot[1] += amount
            continue
        a, b = max(t0 - i * g, 0.0), min(t1 - i * g, g)
        if b > a:  # else rounding put an edge a hair outside its bucket
            slot[1] += amount * ((b - a) / (t1 - t0))
            pieces = _join([*zip(slot[2::2], slot[3::2], strict=True), (a, b)], GAP_S)
            slot[2:] = [edge for piece in _few(pieces) for edge in piece]


def _few(pieces: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """At most PIECES_MAX pieces: the smallest gaps between them are counted as covered."""
    while len(pieces) > PIECES_MAX:
        at = min(range(len(pieces) - 1), key=lambda n: pieces[n + 1][0] - pieces[n][1])
        pieces[at : at + 2] = [(pieces[at][0], pieces[at + 1][1])]
    return pieces


def ring_query(state: Ring, t: float, w: float) -> Window:
    """The window of w seconds that ends at t floored to a bucket edge, in O(w / g); equal to `exact` at that time.

    That holds for any t from watermark - lateness on, for the samples that were accepted. Coverage is the exact union
    as long as no bucket holds more than PIECES_MAX separate pieces; beyond that it is too high by the gaps closed, less
    than g a bucket (and always by gaps below GAP_S). Raises BadConfig when w is no multiple of the bucket or longer than
    the ring.
    """
    g, n = state["g"], round(w / state["g"])
    if n < 1 or abs(n * g - w) > 1e-9 * w or w > state["wmax"]:
        raise BadConfig(f"A window of {w} s does not fit buckets of {g} s and a ring of {state['wmax']} s; use a multiple.")
    end = math.floor(t / g)
    slots, buckets = state["slots"], state["buckets"]
    found = [slot for i in range(end - n, end) if (slot := slots.get(str(i % buckets))) is not None and slot[0] == i]
    covered_s = math.fsum(slot[at + 1] - slot[at] for slot in found for at in range(2, len(slot), 2))
    return _window(math.fsum(slot[1] for slot in found), covered_s, end * g, w)


class Reading(NamedTuple):
    """A cumulative counter as it was read: `value` is the position in the run, the base of the attempt included."""

    attempt: int
    seq: int
    t: float
    value: float


class Increment(NamedTuple):
    """What was consumed between two readings of one attempt."""

    attempt: int
    seq: int
    t0: float
    t1: float
    amount: float


class Counted(NamedTuple):
    """consumed: all work, redone work again; progress: the last position; redone: consumed and no longer in the position."""

    increments: tuple[Increment, ...]
    consumed: float
    progress: float
    redone: float
    resets: int
    unknown_base: int
    duplicates: int


def counter(rows: Iterable[Reading], bases: Mapping[int, tuple[float, float] | None]) -> Counted:
    """Turn readings in any order into increments; `bases` gives (time, value) at which each attempt began, null if unknown.

    Of two rows of one (attempt, seq) the first holds. An attempt with an unknown base begins with an increment of 0. A
    value below the one before it, or below the base, is a reset: all of it is new work. Without rows the progress is 0.
    """
    kept: dict[tuple[int, int], Reading] = {}
    duplicates = resets = unknown = 0
    for row in rows:
        duplicates += (row.attempt, row.seq) in kept
        kept.setdefault((row.attempt, row.seq), row)
    increments: list[Increment] = []
    progress = 0.0
    for attempt, readings in groupby((kept[key] for key in sorted(kept)), key=lambda row: row.attempt):
        before = bases.get(attempt)
        unknown += before is None
        for row in readings:
            t0, value = (row.t, row.value) if before is None else before
            resets += row.value < value
            increments.append(Increment(attempt, row.seq, t0, row.t, row.value - value if row.value >= value else row.value))
            before, progress = (row.t, row.value), row.value
    consumed = math.fsum(increment.amount for increment in increments)
    return Counted(tuple(increments), consumed, progress, max(0.0, consumed - progress), resets, unknown, duplicates)


class Bounds(NamedTuple):
    """Worst-case absolute errors of a rate, for three simpler schemes than the ring (whose error is 0)."""

    point_attribution: float
    bucket_drop: float
    bucket_interpolated: float


def error_bounds(max_rate: float, sample_s: float, g: float, w: float) -> Bounds:
    """Booking a sample at its end; dropping the bucket a window cuts; interpolating that bucket. In units of max_rate."""
    return Bounds(max_rate * sample_s / w, max_rate * g / w, max_rate * g / (4 * w))
