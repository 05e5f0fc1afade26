"""Settings of the sink service, from a YAML file and the environment."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field, field_serializer

from yolometer_core.config import Config
from yolometer_core.kafka import KafkaConfig
from yolometer_core.store_url import complete, without_password


class SinkConfig(Config):
    """What `yolometer sink` needs to know; every key also as `YOLOMETER_<KEY>`."""

    kafka: KafkaConfig = Field(default=KafkaConfig(), description="where Kafka is and how to log in")
    store: str = Field(
        default="clickhouse://127.0.0.1:8123/yolometer",
        description="where the rows are kept: clickhouse://user@host:8123/database, with ?secure=true for TLS; a password in it "
        "only in the environment",
    )
    store_password_file: Path | None = Field(default=None, description="file that holds the password of the store, nothing else")
    migrate: bool = Field(default=True, description="bring the tables up to date at start")
    batch_rows: int = Field(default=50_000, ge=1, le=1_000_000, description="rows that are inserted together")
    batch_s: float = Field(default=1.0, gt=0, le=60, description="insert what there is after so many seconds")
    late_s: float = Field(default=7 * 86400.0, gt=0, le=13 * 86400.0, description="refuse samples that are older than this")
    future_s: float = Field(default=300.0, ge=0, description="refuse samples that lie further in the future than this")
    dead_ratio: float = Field(default=0.5, ge=0, le=1, description="stop when a larger share of the last 200 messages is refused")
    dead_in_a_row: int = Field(default=50, ge=1, description="stop when so many messages in a row are refused")
    rollup_s: float = Field(default=10.0, gt=0, le=3600, description="make the usage of touched minutes again so often")
    session_timeout_s: float = Field(default=15.0, ge=1, le=300, description="a sink that is silent so long loses its partitions")
    stuck_after_s: float = Field(default=300.0, ge=1, description="without progress for so long it exits, to be started again")
    stop_s: float = Field(default=10.0, ge=1, description="after SIGTERM it ends within so many seconds")
    metrics_host: str = Field(default="127.0.0.1", description="address of /metrics and /healthz")
    metrics_port: int | None = Field(default=9463, ge=0, le=65535, description="port of /metrics and /healthz; null for none")
    log_json: bool = Field(default=False, description="write logs as one JSON object a line")

    @field_serializer("store")
    def _without_password(self, store: str) -> str:
        return without_password(store)

    def store_url(self) -> str:
        """The URL of the store with its password, which is hidden from logs from now on. BadConfig when its file is wrong."""
        return complete(self.store, self.store_password_file)
