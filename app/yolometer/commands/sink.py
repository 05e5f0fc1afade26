"""`yolometer sink`: writes what comes through Kafka into the store."""

from __future__ import annotations

import gc
import logging
import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from yolometer_core.config import load
from yolometer_core.service import logs
from yolometer_core.service.health import Health, Watchdog, serve
from yolometer_core.service.metrics import Metrics
from yolometer_core.service.stopping import Stop, StopDeadline
from yolometer_sinks import service
from yolometer_sinks.config import SinkConfig

SWITCH_S = 0.001
"""The thread that writes mostly waits for the store; it shall not wait five milliseconds more for the one that reads."""
GARBAGE_OBJECTS = 50_000
"""Events have no cycles: to look for them after every 700 objects costs a tenth of the time."""


def sink_command(
    config: Annotated[Path | None, typer.Option(metavar="FILE", help="YAML file of these settings.")] = None,
) -> None:
    """Write what comes through Kafka into ClickHouse: rows, samples of GPUs, their usage, and dead letters.

    Examples:

      yolometer sink --config /etc/yolometer/sink.yaml

      YOLOMETER_STORE=clickhouse://user:password@host:8123/yolometer yolometer sink

    Start as many as you like, up to the number of partitions. A store or a Kafka that is away is waited for; SIGTERM or Ctrl-C
    ends it with nothing lost. Offsets are committed when the rows are on the disk of the store, and rows that come twice are one.
    """
    settings = load(SinkConfig, config)
    sys.setswitchinterval(SWITCH_S)
    gc.freeze()
    gc.set_threshold(GARBAGE_OBJECTS)
    logs.configure("sink", json=settings.log_json)
    log = logs.logger("sink")
    stop, deadline, metrics = Stop(), StopDeadline(settings.stop_s), Metrics("sink")
    stop.on_signals(deadline)
    health = Health("sink", stuck_after_s=settings.stuck_after_s, metrics=metrics)
    with serve(metrics, health, settings.metrics_host, settings.metrics_port) as endpoint:
        if endpoint.url:
            log.info("Numbers and health are served", url=endpoint.url)
        watchdog = Watchdog(health, settings.stuck_after_s, warn=log.critical)
        watchdog.start()
        service.serve(settings, stop, health, metrics)
        watchdog.close()
    log.info("Stopped; what is not committed is read again at the next start")
    deadline.cancel()
    logging.shutdown()
    # The threads of the client may wait for a broker that does not answer, and the process for them: all is done that had to be.
    os._exit(0)
