"""Settings of the agent service: one YAML file and the environment."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from yolometer_agent import meters as meter_parts
from yolometer_agent.attribute._answers import Teams
from yolometer_agent.meters._base import Meter
from yolometer_core.config import Config
from yolometer_core.errors import BadConfig
from yolometer_core.kafka import KafkaConfig
from yolometer_core.parts import discover

SYSTEM_STATE = Path("/var/lib/yolometer")


class SpoolConfig(BaseModel):
    """How much may wait on disk while Kafka is away."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    max_bytes: int = Field(
        default=1 << 30, ge=1 << 24, description="bytes on disk for each lane; facts then wait in the logs, samples are dropped"
    )
    max_age_s: float = Field(default=7 * 86400.0, gt=0, description="samples older than this are dropped; facts never")
    fsync_s: float = Field(default=1.0, ge=0, description="what a power cut may take: the log is read again, samples are gone")


class AgentConfig(Config):
    """What `yolometer agent` needs to know; every key also as `YOLOMETER_<KEY>`. docs/deployment.md shows a whole file."""

    node: str | None = Field(
        default=None, min_length=1, max_length=255, description="name of this node; the host name by default"
    )
    watch: tuple[str, ...] = Field(default=(), description="folders, files and globs to watch")
    processes: bool = Field(default=True, description="also watch logs that running processes write, wherever they are")
    exclude: tuple[str, ...] = Field(default=(), description="patterns of files that are never read")
    recent_s: float = Field(default=30.0, ge=0, description="a log that grew so lately counts as written anyway")
    poll_s: float = Field(default=0.5, gt=0, le=60, description="seconds between two looks at the logs")
    state_dir: Path | None = Field(
        default=None, description="folder for the spool and the positions; /var/lib/yolometer, or one in your home by default"
    )
    kafka: KafkaConfig = Field(default_factory=KafkaConfig, description="where Kafka is")
    spool: SpoolConfig = Field(default_factory=SpoolConfig, description="what waits on disk while Kafka is away")
    compression: Literal["zstd", "lz4", "none"] = Field(default="zstd", description="zstd, lz4 or none")
    replay_bytes_per_s: float = Field(
        default=2e6, ge=1000, description="how fast it sends at most, so that a fleet does not run Kafka over after an outage"
    )
    linger_s: float = Field(default=1.0, ge=0, le=60, description="how long facts of a place are gathered into one message")
    meters: dict[str, dict[str, Any]] = Field(
        default_factory=dict, description="meters to read and their settings, for example simulated: {gpus: 8}"
    )
    attribution: dict[str, dict[str, Any] | None] = Field(
        default_factory=dict, description="how to find out whose a GPU is: sources and their settings; null turns one off"
    )
    teams: Teams = Field(default_factory=Teams, description="which team pays, by user, account or namespace")
    cluster: str = Field(default="", description="name of the cluster, where the environment of a job does not tell it")
    metrics_host: str = Field(default="127.0.0.1", description="address of /metrics and /healthz")
    metrics_port: int | None = Field(default=9461, ge=0, le=65535, description="port of /metrics and /healthz; nothing for none")
    log_json: bool = Field(default=False, description="write one JSON object a line instead of text for people")

    @property
    def name(self) -> str:
        """The name of this node."""
        return self.node or socket.gethostname()

    @property
    def folder(self) -> Path:
        """Where the state is kept."""
        if self.state_dir is not None:
            return self.state_dir
        if os.access(SYSTEM_STATE, os.W_OK) or (os.geteuid() == 0 and not SYSTEM_STATE.exists()):
            return SYSTEM_STATE
        return Path.home() / ".local" / "state" / "yolometer" / "agent"


def meters_of(config: AgentConfig) -> dict[str, Meter]:
    """The meters that the settings name. BadConfig for one that does not exist or is set wrong."""
    kinds: dict[str, type] = discover(meter_parts, "METER", type)
    found: dict[str, Meter] = {}
    for name, settings in config.meters.items():
        if name not in kinds:
            raise BadConfig(f"There is no meter {name!r}; the meters are {', '.join(kinds)}.")
        try:
            found[name] = kinds[name](**settings)
        except ValidationError as error:
            mistake = error.errors(include_input=False, include_url=False)[0]
            key = ".".join(map(str, mistake["loc"]))
            raise BadConfig(f"The key 'meters.{name}.{key}' is wrong ({mistake['msg'].lower()}); correct it.") from None
    return found
