"""A real Apache Kafka for the tests (tests/_kafka_broker.py): fixtures, and small helpers for topics, records and offsets.

Fixtures: `kafka` is one broker per test process, started at first use and shared (name topics and groups with `prefix`);
`broker` is a broker of one test alone, to be killed, paused, wiped. For TLS and a password: `with Broker(user=, password=)`.
"""

from __future__ import annotations

import itertools
import secrets
import time
import warnings
from collections.abc import Iterable, Iterator

import pytest
from _kafka_broker import Broker

with warnings.catch_warnings():
    # its import uses a deprecated way to read its own files; here it is done once, for all tests
    warnings.filterwarnings("ignore", "(read|open)_text is deprecated", DeprecationWarning)
    from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
    from kafka.errors import RetriableError

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def kafka() -> Iterator[Broker]:
    """The broker of this test process; use it as it is, and topics and groups named with `prefix`."""
    with Broker() as shared:
        yield shared


@pytest.fixture
def broker() -> Iterator[Broker]:
    """A broker of this test alone."""
    with Broker() as own:
        yield own


@pytest.fixture
def prefix() -> str:
    """A prefix for topics, groups and app ids that no other test has, for example `t12ab.`."""
    return f"t{next(_numbers)}{secrets.token_hex(2)}."


def create_topic(bootstrap: str, topic: str, partitions: int = 1, **settings: str) -> None:
    """Create a topic and wait until it can be used; settings as keywords, for example cleanup_policy="compact"."""
    named = {name.replace("_", "."): value for name, value in settings.items()}
    with KafkaAdminClient(bootstrap_servers=bootstrap) as admin:
        wanted = {topic: {"num_partitions": partitions, "replication_factor": 1, "configs": named}}
        admin.create_topics(wanted, wait_for_metadata=True)


def produce(
    bootstrap: str, topic: str, records: Iterable[tuple[bytes | None, bytes | None]], partition: int | None = None
) -> list[tuple[int, int]]:
    """Write records (key, value) and return (partition, offset) of each, all of them acknowledged."""
    producer = KafkaProducer(bootstrap_servers=bootstrap, acks="all", linger_ms=5)
    try:
        sent = [producer.send(topic, value=value, key=key, partition=partition) for key, value in records]
        return [(done.partition, done.offset) for done in (future.get(timeout=30) for future in sent)]
    finally:
        producer.close(timeout=10)


def read_all(bootstrap: str, topic: str) -> list[tuple[int, int, bytes | None, bytes | None]]:
    """All records of a topic up to its present end as (partition, offset, key, value), in that order."""
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, enable_auto_commit=False)
    try:
        parts = [TopicPartition(topic, number) for number in sorted(consumer.partitions_for_topic(topic) or ())]
        assert parts, f"there is no topic {topic}"
        consumer.assign(parts)
        consumer.seek_to_beginning(*parts)
        ends = consumer.end_offsets(parts)
        found = []
        deadline = time.monotonic() + 60
        while any(consumer.position(part) < ends[part] for part in parts):
            assert time.monotonic() < deadline, f"{topic} could not be read to its end: {ends}"
            for batch in consumer.poll(timeout_ms=200).values():
                found += [(item.partition, item.offset, item.key, item.value) for item in batch]
        return sorted((item for item in found if item[1] < ends[TopicPartition(topic, item[0])]), key=lambda item: item[:2])
    finally:
        consumer.close()


def committed(bootstrap: str, group: str) -> dict[tuple[str, int], int]:
    """The committed offsets of a group by (topic, partition); empty where it never committed."""
    with KafkaAdminClient(bootstrap_servers=bootstrap) as admin:
        deadline = time.monotonic() + 30
        while True:
            try:
                found = admin.list_group_offsets(group)[group]
                break
            except RetriableError:  # the first question makes the topic of offsets; after a restart it takes a moment, too
                assert time.monotonic() < deadline
                time.sleep(0.05)
    return {(part.topic, part.partition): at.offset for part, at in found.items() if at.offset >= 0}


__all__ = ["Broker", "broker", "committed", "create_topic", "kafka", "prefix", "produce", "read_all"]
