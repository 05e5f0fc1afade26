"""Recover: what the folder of a spool holds at start, after whatever stop, and whether its numbers can go on."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from yolometer_agent.spool import frames
from yolometer_agent.spool.lane import Loss
from yolometer_agent.spool.segments import HEADER_BYTES, Header, Segment, paths_in, read_header
from yolometer_agent.tail.checkpoint import Checkpoint
from yolometer_core.errors import Unavailable

_NEW = {"epoch": 0, "boot_id": "", "last": 0, "clean": False, "acked": 0, "losses": []}
"""What a cursor file keeps: the epoch, the boot it was written in, the last seq that was given by then, whether the stop was
clean, how far messages are delivered, and losses that nobody took yet."""


@dataclass
class Found:
    """What is there. `last` is the last seq that was given, 0 for none; `epoch` is None when a new one must begin."""

    segments: list[Segment] = field(default_factory=list)
    state: tuple[int, bytes] | None = None
    last: int = 0
    acked: int = 0
    epoch: int | None = None
    highest_epoch: int = 0
    torn_bytes: int = 0
    losses: list[Loss] = field(default_factory=list)
    cursor: dict[str, Any] = field(default_factory=lambda: dict(_NEW))
    """What the cursor file keeps, as for a new folder when there is none."""
    cuts: dict[Path, int] = field(default_factory=dict)
    """The files with a torn end, and where their good part ends."""


def recover(folder: Path, checkpoint: Checkpoint, *, now_s: float, wall_ms: int, boot_id: str) -> Found:
    """Read the cursor and all headers, and scan the last segment; cut off what is torn there.

    Unavailable when files cannot be read; BadStore when they are of another version.
    """
    found = Found(cursor=checkpoint.load() or dict(_NEW))
    try:
        headers = _load(folder, found)
        _scan_last(found, headers)
        _see_ends(found, headers)
        found.state = _newest_state(found.segments)
    except OSError as error:
        raise Unavailable(f"The spool {folder} cannot be read ({error.strerror}); correct its rights.") from error
    for segment in found.segments:
        segment.newest_s = now_s - max(0, wall_ms - segment.newest_wall_ms) / 1000
    _take_cursor(found, is_trusted=checkpoint.problem is None, boot_id=boot_id)
    _cut(found, checkpoint)
    return found


def _load(folder: Path, found: Found) -> dict[Segment, Header | None]:
    headers: dict[Segment, Header | None] = {}
    for temporary in folder.glob("*.seg.tmp"):
        with contextlib.suppress(OSError):
            temporary.unlink()
    for first, path in paths_in(folder):
        size = path.stat().st_size
        segment = Segment(path, first, first - 1, size, size, newest_wall_ms=0, newest_s=0)
        headers[segment] = read_header(path)
        found.segments.append(segment)
        found.highest_epoch = max(found.highest_epoch, first >> frames.NUMBER_BITS)
    return headers


def _scan_last(found: Found, headers: dict[Segment, Header | None]) -> None:
    """The last segment can be torn: everything from its first bad frame on is cut off. One with a bad header is all torn."""
    while found.segments:
        segment = found.segments[-1]
        good = _scan(segment) if headers[segment] else 0
        if good < segment.size_bytes or not good:
            found.torn_bytes += segment.size_bytes - good
            found.cuts[segment.path] = good
        segment.size_bytes = segment.end = good
        if good:
            found.last = segment.last
            return
        found.segments.pop()


def _scan(segment: Segment) -> int:
    """Find the last message and the newest time of a segment; returns where its good part ends."""
    end = HEADER_BYTES
    for frame in _frames(segment):
        end = frame.end
        segment.newest_wall_ms = max(segment.newest_wall_ms, frame.wall_ms)
        if frame.kind == frames.MESSAGE:
            segment.last = frame.seq
    return end


def _see_ends(found: Found, headers: dict[Segment, Header | None]) -> None:
    """Each older segment ends where the next begins; at a change of the epoch the next one's header knows the end."""
    for segment, following in zip(found.segments, found.segments[1:], strict=False):
        header = headers[following]
        # without its own time a segment is taken for as new as the newest: age does not drop it too early
        segment.newest_wall_ms = header.previous_wall_ms if header else found.segments[-1].newest_wall_ms
        if _epoch(segment.first) == _epoch(following.first):
            segment.last = following.first - 1
        elif header and header.previous_last >= segment.first - 1:
            segment.last = header.previous_last
        else:
            _scan(segment)
        if headers[segment] is None:
            segment.end = HEADER_BYTES  # nothing of it is read: the reader finds it damaged


def _newest_state(segments: list[Segment]) -> tuple[int, bytes] | None:
    """Each segment begins with a copy of the newest state, so the last one has it, but for damage."""
    for segment in reversed(segments):
        state, first_kind = None, None
        for frame in _frames(segment):
            first_kind = first_kind or frame.kind
            if frame.kind == frames.STATE:
                state = frame.seq, frame.payload
        if state is not None or first_kind == frames.MESSAGE:
            return state
    return None


def _take_cursor(found: Found, *, is_trusted: bool, boot_id: str) -> None:
    """How far it was delivered, and whether numbers go on.

    They go on when it is certain that no number after the last one was ever given: nothing is torn, the cursor file is
    whole, and either the last stop was clean or only the process died (the system keeps what was written).
    """
    cursor = found.cursor
    found.acked = cursor["acked"]
    found.losses = [Loss(*loss) for loss in cursor["losses"]]
    found.highest_epoch = max(found.highest_epoch, cursor["epoch"])
    given = max(cursor["last"], found.acked)
    first = max(found.last, found.acked, _epoch(given) << frames.NUMBER_BITS) + 1
    if given >= first:  # that much is known to be missing; of what came after the cursor was saved nothing is known
        found.losses.append(Loss(first, given, given - first + 1, found.torn_bytes, "damaged"))
    lives_on = bool(boot_id) and cursor["boot_id"] == boot_id and found.last >= given
    is_whole = is_trusted and not found.cuts and cursor["epoch"] == _epoch(found.last)
    if is_whole and (found.last == cursor["last"] if cursor["clean"] else lives_on):
        found.epoch = cursor["epoch"]
    else:  # whatever is saved from now on, the numbers of this epoch never go on
        found.cursor = {**cursor, "boot_id": "", "clean": False, "last": found.last}


def _cut(found: Found, checkpoint: Checkpoint) -> None:
    """Cut off what is torn, after the cursor says that numbers do not go on: the cut itself leaves no trace."""
    with contextlib.suppress(OSError, Unavailable):  # on a read-only disk it stays, and is torn again at the next start
        if found.cuts:
            checkpoint.save({**found.cursor, "losses": [list(loss) for loss in found.losses]})
        for path, good in found.cuts.items():
            if good:
                os.truncate(path, good)
            else:
                path.unlink()


def _epoch(seq: int) -> int:
    return seq >> frames.NUMBER_BITS


def _frames(segment: Segment) -> Iterator[frames.Frame]:
    fd = os.open(segment.path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield from frames.scan(fd, HEADER_BYTES, segment.end)
    finally:
        os.close(fd)
