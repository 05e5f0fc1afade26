"""Creates the topics that are missing, and says of the others what is wrong: it never changes a topic that is there."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kafka import KafkaAdminClient
from kafka import errors as kafka_errors
from kafka.admin import ConfigResource

from yolometer_core.errors import Unavailable
from yolometer_core.topics import Topic, TopicsConfig, wanted


@dataclass(frozen=True)
class Found:
    """A topic as it is in Kafka. `replication` is that of the partition with the fewest copies."""

    partitions: int
    replication: int
    settings: dict[str, str]


@dataclass(frozen=True)
class Wrong:
    """One setting of a topic that is not as it must be, and the command that would mend it."""

    topic: str
    setting: str
    found: str
    wanted: str
    command: str


@dataclass(frozen=True)
class Standing:
    """A topic as it must be, as it is (None: it does not exist), and what is wrong with it."""

    topic: Topic
    found: Found | None
    wrong: tuple[Wrong, ...]


def standing(admin: KafkaAdminClient, config: TopicsConfig) -> list[Standing]:
    """How all topics are, in the declared order. Unavailable when this user may not look at one."""
    topics = wanted(config.kafka)
    found = look(admin, topics, config)
    brokers = sorted(one["broker_id"] for one in admin.describe_cluster()["brokers"])
    return [
        Standing(one, found.get(one.name), tuple(_wrong(one, found[one.name], config, brokers)) if one.name in found else ())
        for one in topics
    ]


def look(admin: KafkaAdminClient, topics: Sequence[Topic], config: TopicsConfig) -> dict[str, Found]:
    """Those of the topics that exist, by name."""
    described = {}
    for one in admin.describe_topics([topic.name for topic in topics]):
        error = kafka_errors.for_code(one["error_code"])
        if error is kafka_errors.UnknownTopicOrPartitionError:
            continue
        if error is not kafka_errors.NoError:
            raise Unavailable(f"The topic {one['name']} cannot be looked at ({error.__name__}); allow it to this user.")
        described[one["name"]] = one["partitions"]
    asked = [
        ConfigResource("TOPIC", topic.name, list(topic.settings(config.min_insync)))
        for topic in topics if topic.name in described
    ]  # fmt: skip
    settings = admin.describe_configs(asked, config_filter="all").get("topic", {}) if asked else {}
    for resource in asked:
        if not settings.get(resource.name):
            raise Unavailable(f"The settings of the topic {resource.name} cannot be read; allow DescribeConfigs to this user.")
    return {
        name: Found(
            len(partitions),
            min(len(part["replica_nodes"]) for part in partitions),
            {key: str(value["value"]) for key, value in settings[name].items()},
        )
        for name, partitions in described.items()
    }


def create(admin: KafkaAdminClient, topics: Sequence[Topic], config: TopicsConfig) -> list[str]:
    """Create these topics and wait until they can be used; returns the names of those that were made here.

    One that another process made meanwhile is none of ours. Unavailable when Kafka refuses one, with what it says.
    """
    asked = {
        topic.name: {
            "num_partitions": config.partitions,
            "replication_factor": config.replication,
            "configs": topic.settings(config.min_insync),
        }
        for topic in topics
    }
    made, refused = [], []
    for one in admin.create_topics(asked, raise_errors=False)["topics"]:
        error = kafka_errors.for_code(one["error_code"])
        if error is kafka_errors.NoError:
            made.append(one["name"])
        elif error is not kafka_errors.TopicAlreadyExistsError:
            refused.append(f"{one['name']} ({(one.get('error_message') or error.__name__).rstrip('.')})")
    if refused:
        more = f" and {len(refused) - 1} more" if len(refused) > 1 else ""
        raise Unavailable(f"Kafka refuses to create {refused[0]}{more}; correct the settings or the rights of this user.")
    admin.wait_for_topics(list(asked))
    return made


def _wrong(topic: Topic, found: Found, config: TopicsConfig, brokers: Sequence[int]) -> Iterator[Wrong]:
    tool = _Tool(topic.name, config)
    if found.partitions != config.partitions:
        mend = tool.more_partitions() if found.partitions < config.partitions else tool.delete()
        yield Wrong(topic.name, "partitions", str(found.partitions), str(config.partitions), mend)
    if found.replication != config.replication:
        mend = tool.replicate(found.partitions, brokers)
        yield Wrong(topic.name, "replication", str(found.replication), str(config.replication), mend)
    for name, value in topic.settings(config.min_insync).items():
        there = found.settings.get(name)
        if there is None or _plain(there) != _plain(value):
            yield Wrong(topic.name, name, there or "unknown", value, tool.alter(name, value))


def _plain(value: str) -> object:
    """A setting for comparing: 0.20 is 0.2, and the order of policies does not matter."""
    try:
        return float(value)
    except ValueError:
        return frozenset(part.strip() for part in value.split(","))


class _Tool:
    """Commands of Kafka's own tools that mend one topic."""

    def __init__(self, topic: str, config: TopicsConfig) -> None:
        self._topic = shlex.quote(topic)
        self._name = topic
        self._config = config
        kafka = config.kafka
        login = " --command-config client.properties" if kafka.tls or kafka.sasl_mechanism else ""
        self._at = f"--bootstrap-server {shlex.quote(','.join(kafka.bootstrap_servers))}{login}"

    def alter(self, setting: str, value: str) -> str:
        return (
            f"kafka-configs.sh {self._at} --alter --entity-type topics --entity-name {self._topic} "
            f"--add-config {shlex.quote(f'{setting}={value}')}"
        )

    def more_partitions(self) -> str:
        return f"kafka-topics.sh {self._at} --alter --topic {self._topic} --partitions {self._config.partitions}"

    def delete(self) -> str:
        """Partitions cannot be taken away: the topic must go with all its data, and `ensure` makes it again."""
        return f"kafka-topics.sh {self._at} --delete --topic {self._topic} && yolometer topics ensure"

    def replicate(self, partitions: int, brokers: Sequence[int]) -> str:
        copies = self._config.replication
        if copies > len(brokers):
            return f"start more brokers: there are {len(brokers)}"
        moves: list[Mapping[str, Any]] = [
            {"topic": self._name, "partition": part, "replicas": [brokers[(part + n) % len(brokers)] for n in range(copies)]}
            for part in range(partitions)
        ]
        plan = json.dumps({"version": 1, "partitions": moves}, separators=(",", ":"))
        file = f"<(echo {shlex.quote(plan)})"
        return f"kafka-reassign-partitions.sh {self._at} --execute --reassignment-json-file {file}"
