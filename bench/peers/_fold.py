"""The fold that both peers do, in plain Python: samples and samples expected of a node in each hour, one row a minute.

It is what the operator `coverage` does with well-formed messages. Nothing is validated: decoding is msgpack alone.
"""

from __future__ import annotations

from typing import Any

import msgpack

HOUR_MS, MINUTE_MS = 3_600_000, 60_000
HOURS = 3


def start() -> dict[str, Any]:
    """The state of a node that was not seen yet."""
    return {"seq": -1, "last_ms": None, "minute": None, "hours": {}, "unsaid": []}


def step(state: dict[str, Any], raw: bytes) -> list[bytes]:
    """Add a message to the state; returns the rows to say, encoded."""
    event = msgpack.unpackb(raw)["events"][0][1]
    if event["seq"] <= state["seq"]:
        return []
    state["seq"] = event["seq"]
    gpus, offsets_ms, period_ms = len(event["gpu_uuid"]), event["offsets_ms"], event["period_s"] * 1000
    start_ms = event["ts"] // 1000
    end_ms, before_ms = start_ms + offsets_ms[-1], state["last_ms"]
    if before_ms is None:
        before_ms = start_ms + offsets_ms[0] - period_ms
    hours, unsaid = state["hours"], state["unsaid"]
    newest = max(end_ms, state["last_ms"] or 0)
    if (start_ms + offsets_ms[0]) // HOUR_MS == end_ms // HOUR_MS:
        _add(hours, unsaid, end_ms, len(offsets_ms) * gpus, 0, 1)
    else:
        for at, offset_ms in enumerate(offsets_ms):
            _add(hours, unsaid, start_ms + offset_ms, gpus, 0, int(at == 0))
    ticks = round((end_ms - before_ms) / period_ms)
    if ticks > 0 and (end_ms - (ticks - 1) * period_ms) // HOUR_MS == end_ms // HOUR_MS:
        _add(hours, unsaid, end_ms, 0, ticks * gpus, 0)
    else:
        for back in range(ticks):
            _add(hours, unsaid, int(end_ms - back * period_ms), 0, gpus, 0)
    if len(hours) > HOURS:
        oldest = newest // HOUR_MS - HOURS + 1
        state["hours"] = hours = {hour: counts for hour, counts in hours.items() if int(hour) >= oldest}
    state["last_ms"] = newest
    if state["minute"] == newest // MINUTE_MS:
        return []
    state["minute"], state["unsaid"] = newest // MINUTE_MS, []
    return [
        msgpack.packb({"node": event["node"], "hour": hour, "seq": event["seq"], "samples": hours[hour][0],
                       "samples_expected": hours[hour][1], "messages": hours[hour][2]})
        for hour in unsaid if hour in hours
    ]  # fmt: skip


def _add(hours: dict[str, list[int]], unsaid: list[str], at_ms: int, samples: int, expected: int, messages: int) -> None:
    hour = str(at_ms // HOUR_MS)
    counts = hours.setdefault(hour, [0, 0, 0])
    counts[0] += samples
    counts[1] += expected
    counts[2] += messages
    if hour not in unsaid:
        unsaid.append(hour)
