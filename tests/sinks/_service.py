"""A sink for the tests: in this process, or as the real command in one of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from _kafka import create_topic

from yolometer_core.kafka import KafkaConfig
from yolometer_core.service.health import Health
from yolometer_core.service.metrics import Metrics
from yolometer_core.service.stopping import Stop
from yolometer_sinks import service
from yolometer_sinks.config import SinkConfig
from yolometer_sinks.stores._base import Store

TRANSPORT = ("dirty_window", "schema_migration")  # not compared: when things were noted is no row of anybody


class Running:
    """A sink in a thread of this process."""

    def __init__(self, config: SinkConfig) -> None:
        self.stop, self.metrics = Stop(), Metrics("sink")
        self.health = Health("sink", stuck_after_s=60, metrics=self.metrics)
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, args=(config,), daemon=True)
        self._thread.start()

    def _run(self, config: SinkConfig) -> None:
        try:
            service.serve(config, self.stop, self.health, self.metrics)
        except BaseException as error:  # noqa: BLE001  # the test looks at it
            self.error = error

    def ended(self, seconds: float = 20) -> BaseException | None:
        """Wait until it ends by itself; what it ended with."""
        self._thread.join(seconds)
        assert not self._thread.is_alive()
        return self.error

    def close(self) -> None:
        self.stop.set()
        error = self.ended()
        if error is not None:
            raise error


@contextmanager
def running(config: SinkConfig) -> Iterator[Running]:
    """A sink in this process, stopped at the end; what it ended with is raised."""
    sink = Running(config)
    try:
        yield sink
    finally:
        sink.close()


def config_of(bootstrap: str, prefix: str, store: str, **said: Any) -> SinkConfig:
    kafka = KafkaConfig(bootstrap_servers=(bootstrap,), prefix=prefix)
    fields: dict[str, Any] = {"batch_s": 0.2, "rollup_s": 0.5, "session_timeout_s": 6.0, "metrics_port": None}
    return SinkConfig(kafka=kafka, store=store, **(fields | said))


def started(config: SinkConfig, folder: Path, name: str = "sink") -> subprocess.Popen[bytes]:
    """The real command, with these settings in its environment; what it says is in `folder`."""
    environment = {
        "YOLOMETER_KAFKA__BOOTSTRAP_SERVERS": ",".join(config.kafka.bootstrap_servers),
        "YOLOMETER_KAFKA__PREFIX": config.kafka.prefix,
        "YOLOMETER_STORE": config.store,
        "YOLOMETER_BATCH_S": str(config.batch_s),
        "YOLOMETER_BATCH_ROWS": str(config.batch_rows),
        "YOLOMETER_ROLLUP_S": str(config.rollup_s),
        "YOLOMETER_SESSION_TIMEOUT_S": str(config.session_timeout_s),
        "YOLOMETER_STOP_S": str(config.stop_s),
        "YOLOMETER_METRICS_PORT": "0",
    }
    with (folder / f"{name}.log").open("ab") as log:
        return subprocess.Popen(
            [str(Path(sys.executable).with_name("yolometer")), "sink"], env={**os.environ, **environment}, stdout=log, stderr=log
        )


def topics(bootstrap: str, prefix: str, partitions: int = 2) -> None:
    for name in service.topics():
        create_topic(bootstrap, prefix + name, partitions)


def until(true: Callable[[], bool], seconds: float = 30, what: str = "it") -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, f"{what} did not come"
        time.sleep(0.05)


def count(store: Store, view: str) -> int:
    return int(store.query(f"SELECT count() FROM {view}").rows[0][0])


def snapshot(store: Store) -> dict[str, list[Any]]:
    """All rows of all tables as they are now, without the times at which rollups were made."""
    tables = store.query("SELECT name FROM system.tables WHERE database = currentDatabase() AND engine LIKE '%MergeTree'").rows
    found = {}
    for (name,) in tables:
        if name not in TRANSPORT:
            but = " EXCEPT (version)" if name.startswith("usage") else ""
            rows = store.query(f"SELECT *{but} FROM `{name}` FINAL {'WHERE is_deleted = 0' if but else ''}").rows
            found[name] = sorted(map(repr, rows))
    return found
