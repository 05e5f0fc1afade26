"""The numbers of the services for Prometheus: one list of all names, and typed ways to set them."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any, Literal, get_args

from yolometer_core.errors import BadUsage

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

Service = Literal["agent", "stream", "sink"]
Kind = Literal["gauge", "counter", "histogram", "info"]
Result = Literal["ok", "dead", "dropped", "duplicate", "ignored"]

ALL: tuple[Service, ...] = ("agent", "stream", "sink")
AGENT: tuple[Service, ...] = ("agent",)
STREAM: tuple[Service, ...] = ("stream",)
SINK: tuple[Service, ...] = ("sink",)
READERS: tuple[Service, ...] = ("stream", "sink")

MOST_SERIES = 1000
MOST_REASONS = 32
OTHER = "other"

_WORD = re.compile(r"[a-z][a-z0-9_-]{0,39}")
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
_PARTITION = re.compile(r"[0-9]{1,6}")
_FORMS = {"topic": _TOPIC, "partition": _PARTITION}


@dataclass(frozen=True)
class Definition:
    """One metric: `yolometer_<service>_<name>` for each of `services`."""

    name: str
    kind: Kind
    services: tuple[Service, ...]
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()


# A pid, a path, a run id or a node is never a label: each new value is a new series for ever.
DEFINITIONS: tuple[Definition, ...] = (
    # Always 1; the label says which version runs, so that a roll-out can be watched.
    Definition("info", "info", ALL, "The version that runs.", ("version",)),
    # agent: a batch was acknowledged by Kafka; stream: its output was acknowledged; sink: an insert returned. Absent before.
    Definition("last_success_timestamp_seconds", "gauge", ALL, "When work was last finished, in seconds since 1970."),
    # Absent for a partition that this process does not hold.
    Definition("lag", "gauge", READERS, "Messages in a partition that this service has not finished.", ("topic", "partition")),
    Definition("lag", "gauge", AGENT, "Records that were read and that Kafka has not acknowledged.", ("lane",)),
    # On disk, with the framing.
    Definition("spool_bytes", "gauge", AGENT, "Bytes that wait in the spool.", ("lane",)),
    Definition("spool_messages", "gauge", AGENT, "Messages that wait in the spool.", ("lane",)),
    # dead: refused and kept as a dead letter; dropped: lost and counted; duplicate: seen before; ignored: not for this service.
    Definition("events_total", "counter", ALL, "Events that were handled, by what became of them.", ("result",)),
    # Lost on purpose, and counted: the spool was full, a record was too old.
    Definition("dropped_total", "counter", ALL, "Events that were given up, by reason.", ("reason",)),
    Definition("dead_letters_total", "counter", ALL, "Messages that were kept as dead letters, by reason.", ("reason",)),
    # By powers of four: one row up to a full batch.
    Definition(
        "batch_rows", "histogram", SINK, "Rows of one insert.", buckets=(1, 4, 16, 64, 256, 1024, 4096, 16384, 65536, 262144)
    ),
    Definition(
        "insert_seconds", "histogram", SINK, "How long one insert took.", buckets=(0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100)
    ),
    # 1 while the state is being rebuilt: no alerts are given until it is 0.
    Definition("cold", "gauge", STREAM, "Whether the state is still being rebuilt (1) or complete (0)."),
)


def full_name(service: Service, name: str) -> str:
    """The name as Prometheus sees it."""
    return f"yolometer_{service}_{name}"


class Metrics:
    """The numbers of one service, in a registry of its own, beside `process_*` (its own CPU and memory).

    What was never set is absent, never 0; counters of a known `result` begin at 0. Any thread may call any method.
    BadUsage for a number that this service does not have. A label that is no plain word, or one too many, counts as
    `other`: a wrong label must neither end a service nor fill the memory of a Prometheus.
    """

    def __init__(self, service: Service, *, release: str | None = None, wall: Callable[[], float] = time.time) -> None:
        # 4 MB that only a service needs
        from prometheus_client import CollectorRegistry, ProcessCollector, disable_created_metrics

        # else each series of a counter is there twice
        disable_created_metrics()  # type: ignore[no-untyped-call]  # the client's own function has no types
        self.service = service
        self.registry: CollectorRegistry = CollectorRegistry(auto_describe=True)
        self._wall = wall
        self._lock = threading.Lock()
        self._of = {each.name: each for each in DEFINITIONS if service in each.services}
        self._made: dict[str, Any] = {}
        self._series: dict[str, set[tuple[str, ...]]] = {}
        ProcessCollector(registry=self.registry)
        self._child("info", (release or _installed(),)).set(1)
        for result in get_args(Result):
            self._child("events_total", (result,)).inc(0)

    def success(self, at: float | None = None) -> None:
        """Work was finished just now, or `at` seconds since 1970."""
        self._child("last_success_timestamp_seconds").set(self._wall() if at is None else at)

    def lag(self, topic: str, partition: int, messages: int | None) -> None:
        """How far behind a partition is; None when this process does not hold it any more, or does not know. Not the agent."""
        self._set("lag", (topic, str(partition)), messages)

    def lane_lag(self, lane: str, records: int | None) -> None:
        """How many records of a lane wait for their acknowledgement; None when unknown. The agent only."""
        if self.service != "agent":
            raise BadUsage(f"The {self.service} has no lanes; call lag() with a topic and a partition.")
        self._set("lag", (lane,), records)

    def spool(self, lane: str, *, size_bytes: int | None, messages: int | None) -> None:
        """What waits in the spool of a lane; None when unknown. The agent only."""
        self._set("spool_bytes", (lane,), size_bytes)
        self._set("spool_messages", (lane,), messages)

    def events(self, result: Result, count: int = 1) -> None:
        self._child("events_total", (result,)).inc(count)

    def dropped(self, reason: str, count: int = 1) -> None:
        """Count what was given up, also as `events_total{result="dropped"}`."""
        self._child("dropped_total", (reason,)).inc(count)
        self.events("dropped", count)

    def dead(self, reason: str, count: int = 1) -> None:
        """Count dead letters, also as `events_total{result="dead"}`."""
        self._child("dead_letters_total", (reason,)).inc(count)
        self.events("dead", count)

    def inserted(self, rows: int, seconds: float) -> None:
        """One insert returned. The sink only."""
        self._child("batch_rows").observe(rows)
        self._child("insert_seconds").observe(seconds)

    def cold(self, cold: bool) -> None:
        """Whether the state is still being rebuilt. The stream only."""
        self._child("cold").set(int(cold))

    def rendered(self, accept: str = "") -> tuple[bytes, str]:
        """All numbers as text, and the content type that suits the Accept header of who asks."""
        from prometheus_client.exposition import choose_encoder

        encoder, content_type = choose_encoder(accept)
        return encoder(self.registry), content_type

    def _set(self, name: str, labels: tuple[str, ...], value: float | None) -> None:
        if value is not None:
            self._child(name, labels).set(value)
            return
        with self._lock:
            known = self._series.get(name, set())
            if labels in known:
                known.remove(labels)
                self._made[name].remove(*labels)

    def _child(self, name: str, labels: tuple[str, ...] = ()) -> Any:
        """The series of `name` with these labels; the metric is made when it is first used."""
        definition = self._of.get(name)
        if definition is None or len(definition.labels) != len(labels):
            raise BadUsage(f"The {self.service} has no number {name!r} with {len(labels)} labels; see DEFINITIONS.")
        with self._lock:
            metric = self._made.get(name)
            if metric is None:
                metric = self._made[name] = self._make(definition)
            if not labels:
                return metric
            known = self._series.setdefault(name, set())
            if labels not in known:
                labels = _allowed(definition, labels, known)
                known.add(labels)
            return metric.labels(*labels)

    def _make(self, definition: Definition) -> Any:
        from prometheus_client import Counter, Gauge, Histogram

        name = full_name(self.service, definition.name)
        if definition.kind == "counter":
            return Counter(name, definition.help, definition.labels, registry=self.registry)
        if definition.kind == "histogram":
            return Histogram(name, definition.help, definition.labels, registry=self.registry, buckets=definition.buckets)
        return Gauge(name, definition.help, definition.labels, registry=self.registry)


def _allowed(definition: Definition, labels: tuple[str, ...], known: set[tuple[str, ...]]) -> tuple[str, ...]:
    if definition.kind == "info":
        return labels
    fits = all(_FORMS.get(name, _WORD).fullmatch(label) for name, label in zip(definition.labels, labels, strict=True))
    most = MOST_SERIES if "topic" in definition.labels else MOST_REASONS
    return labels if fits and len(known) < most else (OTHER,) * len(labels)


def _installed() -> str:
    try:
        return version("yolometer")
    except PackageNotFoundError:
        return "unknown"


__all__ = ["DEFINITIONS", "Definition", "Metrics", "Result", "Service", "full_name"]
