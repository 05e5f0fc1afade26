"""Settings of the stream service, from a YAML file and the environment."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

from pydantic import Field, field_serializer

from yolometer_core.config import Config
from yolometer_core.kafka import KafkaConfig
from yolometer_core.store_url import complete, without_password
from yolometer_stream.runs.rows import Terms


class StreamConfig(Config):
    """What `yolometer stream` needs to know; every key also as `YOLOMETER_<KEY>`."""

    kafka: KafkaConfig = Field(default=KafkaConfig(), description="where Kafka is and how to log in")
    store: str | None = Field(
        default=None, description="a ClickHouse server (a URL) to make lost state again from; without one it is lost"
    )
    store_password_file: Path | None = Field(default=None, description="file that holds the password of the store, nothing else")
    gpu_model: str | None = Field(default=None, description="model of the GPUs, instead of what the logs say")
    gpus: int | None = Field(default=None, ge=1, description="GPUs that each run holds, instead of what the logs say")
    price: Decimal | None = Field(default=None, ge=0, description="price of one GPU-hour; without it the cost is unknown")
    currency: str = Field(default="USD", pattern="^[A-Z]{3}$", description="currency of the price, ISO 4217")
    owner: dict[str, str] = Field(default_factory=dict, description="whose runs they are, for example team: vision")
    batch_messages: int = Field(default=2000, ge=1, le=10_000, description="messages that are handled and acknowledged together")
    linger_s: float = Field(default=0.1, gt=0, le=10, description="wait so long for a batch to fill up")
    state_cache_keys: int = Field(default=5000, ge=1, description="keys whose state is held ready for the next message")
    dead_ratio: float = Field(default=0.5, ge=0, le=1, description="stop when a larger share of the last 200 messages is refused")
    dead_in_a_row: int = Field(default=50, ge=1, description="stop when so many messages in a row are refused")
    cold_s: float = Field(default=900.0, ge=0, description="no alerts for so long (event time) after state was lost")
    session_timeout_s: float = Field(default=10.0, ge=1, le=80, description="a worker that is silent so long loses its work")
    stuck_after_s: float = Field(default=120.0, ge=1, description="without progress for so long it exits, to be started again")
    stop_s: float = Field(default=30.0, ge=1, description="after SIGTERM it ends within so many seconds")
    metrics_host: str = Field(default="127.0.0.1", description="address of /metrics and /healthz")
    metrics_port: int | None = Field(default=9462, ge=0, le=65535, description="port of /metrics and /healthz; null for none")
    log_json: bool = Field(default=False, description="write logs as one JSON object a line")

    @field_serializer("store")
    def _without_password(self, store: str | None) -> str | None:
        return store and without_password(store)

    def store_url(self) -> str | None:
        """The URL of the store with its password, which is hidden from logs from now on. BadConfig when its file is wrong."""
        return self.store and complete(self.store, self.store_password_file)

    @property
    def terms(self) -> Terms:
        """What is told about hardware and money."""
        return Terms(self.gpu_model, self.gpus, self.price, self.currency, tuple(self.owner.items()))
