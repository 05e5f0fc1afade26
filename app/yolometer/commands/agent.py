"""`yolometer agent`: the service on a GPU node; reads logs and meters, and sends what they say to Kafka."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Annotated

import typer

from yolometer_agent.config import AgentConfig
from yolometer_agent.service import STUCK_S, run
from yolometer_core.config import load
from yolometer_core.errors import BadUsage
from yolometer_core.service import logs
from yolometer_core.service.health import Health
from yolometer_core.service.metrics import Metrics
from yolometer_core.service.stopping import Stop, StopDeadline

STOP_S = 9.5


def agent_command(
    config: Annotated[Path | None, typer.Option(metavar="FILE", help="YAML file of the settings of the agent.")] = None,
    watch: Annotated[
        list[str] | None, typer.Option(metavar="GLOB_OR_DIR", help="What to watch, instead of what the settings say.")
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="Read what is there, wait until it is sent, and end; no meters.")] = False,
) -> None:
    """Run the agent of a GPU node: it reads the logs of trainings and the meters, and sends what they say to Kafka.

    Examples:

      yolometer agent --config /etc/yolometer/agent.yaml

      yolometer agent --once --watch /data/runs

      YOLOMETER_KAFKA__BOOTSTRAP_SERVERS=kafka-1:9092 yolometer agent --watch /data/runs

    It waits on disk while Kafka is away, and started again it goes on where it stopped, also after a kill or a power cut.
    SIGTERM or Ctrl-C ends it within 10 s with nothing lost. A second agent for the same node or folder exits with 1.
    """
    settings = load(AgentConfig, config)
    if watch:
        settings = settings.model_copy(update={"watch": tuple(watch)})
    if not all(pattern.strip() for pattern in settings.watch):
        raise BadUsage("A path to watch is empty; name a folder, a file or a glob with --watch.")
    logs.configure("agent", json=settings.log_json)
    logging.getLogger("kafka.net.selector").setLevel(logging.ERROR)  # it warns when this process had to wait for a core
    metrics = Metrics("agent")
    health = Health("agent", stuck_after_s=STUCK_S, metrics=metrics)
    stop, deadline = Stop(), StopDeadline(STOP_S)
    stop.on_signals(deadline)
    run(settings, stop, metrics=metrics, health=health, once=once)
    deadline.cancel()
