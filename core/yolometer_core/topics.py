"""The topics: what each carries, by what it is keyed, and how Kafka must keep it. `yolometer topics ensure` creates them.

All have the same number of partitions: the stream joins them by key, and its state must lie where its input lies.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, Self

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from yolometer_core.config import Config
from yolometer_core.kafka import KafkaConfig, topic

DAY_MS = 24 * 3600 * 1000
LARGEST_MESSAGE_BYTES = 1 << 20
"""max.message.bytes of every topic; a producer must refuse what is larger before it sends it."""
STATE_TABLE = "state"

Cleanup = Literal["delete", "compact"]


@dataclass(frozen=True)
class Topic:
    """One topic as it must be. `key` says what messages are keyed by; `retention_ms` is None where it is compacted."""

    name: str
    carries: str
    key: str
    cleanup: Cleanup = "delete"
    retention_ms: int | None = 7 * DAY_MS
    more: dict[str, str] = field(default_factory=dict)

    def settings(self, min_insync: int) -> dict[str, str]:
        """The settings of the topic by Kafka's names for them."""
        kept = {} if self.retention_ms is None else {"retention.ms": str(self.retention_ms)}
        return {
            "cleanup.policy": self.cleanup,
            **kept,
            "max.message.bytes": str(LARGEST_MESSAGE_BYTES),
            "min.insync.replicas": str(min_insync),
            **self.more,
        }


# A worker without state reads its whole changelog, in records and not in keys: small segments that are compacted early
# keep the number of records near the number of keys.
_STATE = {"segment.bytes": str(8 << 20), "segment.ms": "600000", "min.cleanable.dirty.ratio": "0.2"}

# A node with a wrong clock must neither keep messages from being accepted (a time too far ahead) nor from being kept (one too
# far behind, for the retention).
_FROM_NODES = {"message.timestamp.type": "LogAppendTime"}

TOPICS: tuple[Topic, ...] = (
    Topic("fact", "facts that agents read from logs, and their losses", "place", more=_FROM_NODES),
    Topic("gpu", "samples of GPUs, in columns", "node", more=_FROM_NODES),
    Topic("run", "rows of runs and epochs", "run_id"),
    Topic("rate", "rows of rates, and coverage", "node"),
    Topic("k", "rows of k, seconds per million tokens", "run_id"),
    Topic("spend", "rows of money spent", "run_id"),
    Topic("burn", "rows of budgets burnt", "owner"),
    Topic("verdict", "what operators decided", "run_id"),
    Topic("alert", "alerts that were sent", "alert", retention_ms=30 * DAY_MS),
    Topic("dead", "messages that could not be understood or stored", "topic/partition", retention_ms=30 * DAY_MS),
    Topic("budget", "the newest budget of each owner", "owner", "compact", None),
    Topic("price", "the newest price of each GPU model", "GPU model", "compact", None),
)


class TopicsConfig(Config):
    """How the topics are made. The defaults fit one broker; in production use replication 3 and min_insync 2."""

    kafka: KafkaConfig = Field(default=KafkaConfig(), description="where Kafka is and how to log in")
    partitions: int = Field(
        default=8, ge=1, le=10_000, description="partitions of each topic: the most workers that can share the work"
    )
    replication: int = Field(default=1, ge=1, le=32, description="copies of each partition; 3 in production")
    min_insync: int = Field(default=1, ge=1, le=32, description="copies that must have a message before it is acknowledged")

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.min_insync > self.replication:
            raise PydanticCustomError("topics", "min_insync is larger than replication, so nothing could ever be written")
        return self


def app_id(config: KafkaConfig) -> str:
    """The name of the stream: its consumer group, and what its changelog is called after."""
    return topic(config, "stream")


def changelog(app: str, table: str) -> str:
    """The topic that keeps a table of the stream, as Faust names it: `yolometer.stream-state-changelog`."""
    return f"{app}-{table}-changelog"


def wanted(config: KafkaConfig) -> tuple[Topic, ...]:
    """All topics with their whole names: the declared ones, then the changelog of the stream."""
    named = (Topic(topic(config, one.name), one.carries, one.key, one.cleanup, one.retention_ms, one.more) for one in TOPICS)
    state = Topic(changelog(app_id(config), STATE_TABLE), "state of the stream", "as its input", "compact", None, _STATE)
    return (*named, state)
