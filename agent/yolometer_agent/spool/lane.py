"""Lane: what the writer, the reader and the gauges of one spool share, under one lock that is held for list work only."""

from __future__ import annotations

from threading import Lock
from typing import Literal, NamedTuple

from yolometer_agent.spool.segments import Segment


class Loss(NamedTuple):
    """Messages that are gone, all of one epoch: `first_seq` to `last_seq`.

    "full" and "old": dropped to keep the bounds. "damaged": the disk changed or lost them. `size_bytes` is what they took on
    disk, an estimate for a part of a segment.
    """

    first_seq: int
    last_seq: int
    messages: int
    size_bytes: int
    reason: Literal["full", "old", "damaged"]


class Lane:
    """The segments, oldest first, and how far they are delivered. The last segment is never removed."""

    def __init__(self, segments: list[Segment], acked: int, losses: list[Loss]) -> None:
        self.lock = Lock()
        self.segments = segments
        self.acked = acked
        self.size_bytes = sum(segment.size_bytes for segment in segments)
        self.losses = losses
        self.changes = 0
        """Grows with each change of what the cursor file keeps."""

    def add(self, segment: Segment) -> None:
        """A new last segment; it replaces one of the same name, which held states only. The caller holds the lock."""
        if self.segments:
            self.segments[-1].sealed = True
            if self.segments[-1].path == segment.path:
                self._remove(-1)
        self.segments.append(segment)
        self.size_bytes += segment.size_bytes

    def acknowledge(self, seq: int) -> None:
        """All up to and including `seq` is delivered."""
        with self.lock:
            if seq > self.acked:
                self.acked = seq
                self.changes += 1

    def take_done(self) -> list[Segment]:
        """Remove the oldest segments of which nothing is waiting, and return them: the caller deletes the files."""
        done = []
        with self.lock:
            while len(self.segments) > 1 and not self.segments[0].waiting(self.acked):
                done.append(self._remove(0))
        return done

    def drop_full(self, most_bytes: int) -> Segment | None:
        """Remove the oldest segment when all together are larger than `most_bytes`, and return it."""
        with self.lock:
            return self._drop("full") if self.size_bytes > most_bytes and len(self.segments) > 1 else None

    def drop_old(self, before_s: float) -> Segment | None:
        """Remove the oldest segment when its newest frame was written before this time, and return it."""
        with self.lock:
            return self._drop("old") if len(self.segments) > 1 and self.segments[0].newest_s < before_s else None

    def damaged(self, segment: Segment, good_seq: int, end: int) -> None:
        """After `good_seq`, which ends at offset `end`, nothing of this segment can be read. Nothing more is written to it."""
        with self.lock:
            if segment.gone:  # dropped and counted a moment ago
                return
            segment.sealed = True
            good_seq = max(good_seq, segment.first - 1)
            if segment.last > good_seq:
                messages = segment.last - good_seq
                self._lost(Loss(good_seq + 1, segment.last, messages, max(0, segment.size_bytes - end), "damaged"))
            segment.last, segment.end = min(segment.last, good_seq), end

    def drain_losses(self) -> list[Loss]:
        """What was lost since the last call."""
        with self.lock:
            losses, self.losses = self.losses, []
            if losses:
                self.changes += 1
        return losses

    def waiting(self) -> int:
        """How many messages are not delivered."""
        with self.lock:
            return sum(segment.waiting(self.acked) for segment in self.segments)

    def _drop(self, reason: Literal["full", "old"]) -> Segment:
        segment = self._remove(0)
        messages = segment.waiting(self.acked)
        if messages:
            size_bytes = segment.size_bytes * messages // (segment.last - segment.first + 1)
            self._lost(Loss(segment.last - messages + 1, segment.last, messages, size_bytes, reason))
            self.acked = segment.last
        return segment

    def _lost(self, loss: Loss) -> None:
        self.changes += 1
        if loss not in self.losses:  # a damage is found again after each start until it is passed
            self.losses.append(loss)

    def _remove(self, index: int) -> Segment:
        segment = self.segments.pop(index)
        segment.gone = True
        self.size_bytes -= segment.size_bytes
        return segment
