"""`yolometer stream`: a worker of the stream, from the facts and samples of agents to rows."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Annotated, Any

import tenacity
import typer
from kafka.errors import NoError, for_code

from yolometer.admin import connected, stored_until
from yolometer.box import operators
from yolometer.rebuild import rebuild_from
from yolometer_core.config import load
from yolometer_core.errors import BadConfig, StoreUnavailable, Unavailable
from yolometer_core.kafka import KafkaConfig, topic
from yolometer_core.service import logs
from yolometer_core.service.health import Health, Watchdog, serve
from yolometer_core.service.metrics import Metrics
from yolometer_core.service.stopping import Stop, StopDeadline
from yolometer_core.topics import STATE_TABLE, app_id, changelog
from yolometer_stream.batches import Rebuild, Services
from yolometer_stream.config import StreamConfig
from yolometer_stream.handle import outputs_of, topics_of
from yolometer_stream.operator import Operator


def stream_command(
    config: Annotated[Path | None, typer.Option(metavar="FILE", help="YAML file of these settings.")] = None,
) -> None:
    """Work on the stream: read facts and samples from Kafka, keep the state of each training, write rows to Kafka.

    Examples:

      yolometer stream --config /etc/yolometer/stream.yaml

      YOLOMETER_KAFKA__BOOTSTRAP_SERVERS=kafka-1:9092 yolometer stream

    Start as many as you like, up to the number of partitions: they share the work, and one takes over from another. SIGTERM
    or Ctrl-C ends one with nothing lost. Whatever ends it otherwise, start it again: it goes on where it was.
    """
    settings = load(StreamConfig, config)
    logs.configure("stream", json=settings.log_json)
    log = logs.logger("stream")
    stop, deadline, metrics = Stop(), StopDeadline(settings.stop_s), Metrics("stream")
    stop.on_signals(deadline)
    health = Health("stream", stuck_after_s=settings.stuck_after_s, metrics=metrics)
    parts = operators(settings.terms)
    store = _store_url(settings)
    _check_codec()
    with serve(metrics, health, settings.metrics_host, settings.metrics_port) as endpoint:
        if endpoint.url:
            log.info("Numbers and health are served", url=endpoint.url)
        _wait_for_topics(settings.kafka, parts, stop, health, log)
        if stop.wished:
            return
        Watchdog(health, settings.stuck_after_s, warn=log.critical).start()
        from yolometer_stream.faust_runner import run

        code = run(settings, parts, Services(health, metrics, stop), _rebuild(store, settings.kafka, parts))
    deadline.cancel()
    logging.shutdown()
    # The threads of Faust's clients may wait for a broker that is gone; all that had to be done is done.
    os._exit(code)


def _check_codec() -> None:
    """BadConfig when messages cannot be unpacked and packed: Faust would end with an error of its own, again and again."""
    from aiokafka.codec import has_zstd

    if not has_zstd():
        raise BadConfig("Compressed messages need the package cramjam, which is not installed; install yolometer[stream].")


def _store_url(settings: StreamConfig) -> str | None:
    url = settings.store_url()
    if url is not None and not url.startswith("clickhouse"):
        raise BadConfig("The key 'store' must be a ClickHouse server, clickhouse://user@host:8123/database: workers share it.")
    return url


def _rebuild(url: str | None, kafka: KafkaConfig, parts: dict[str, Operator]) -> Rebuild | None:
    """Opens the store when it is needed for the first time: state is seldom lost.

    What the stream has read before the sink has stored it is in neither: so the sink is waited for first.
    """
    if url is None:
        return None
    opened: list[Any] = []

    def rebuild(name: str, key: str, partition: int, offset: int) -> Any:
        done = stored_until(kafka, name, partition)
        if done < offset:
            waits = f"the sink is at {done} of {topic(kafka, name)}/{partition} and this worker at {offset}"
            raise StoreUnavailable(f"The store does not hold all facts yet ({waits}); see whether a sink runs.")
        if not opened:
            from yolometer_sinks.open_store import open_store

            opened.append(open_store(url))
        return rebuild_from(opened[0], parts)(name, key)

    return rebuild


def _wait_for_topics(kafka: KafkaConfig, parts: dict[str, Operator], stop: Stop, health: Health, log: Any) -> None:
    """Return when Kafka answers and has the topics, or when it is time to stop. Unavailable names topics that are wrong."""

    def away(state: tenacity.RetryCallState) -> None:
        error = state.outcome.exception() if state.outcome else None
        health.problem(str(error))
        log.warning(f"Waiting for Kafka: {error}")

    retrying = tenacity.Retrying(
        retry=tenacity.retry_if_exception_type(Unavailable),
        wait=tenacity.wait_random_exponential(multiplier=0.5, max=5.0),
        stop=lambda state: stop.wished,
        sleep=lambda seconds: (stop.wait(seconds), None)[1],
        before_sleep=away,
    )
    try:
        counts = retrying(_partitions, kafka, parts)
    except tenacity.RetryError:
        return
    health.problem(None)
    problem = wrong_topics(kafka, parts, counts)
    if problem:
        raise Unavailable(problem)


def _partitions(kafka: KafkaConfig, parts: dict[str, Operator]) -> dict[str, int]:
    """How many partitions each of the topics has that the stream uses; those that do not exist are left out."""
    with connected(kafka) as admin:
        described = admin.describe_topics(_used(kafka, parts))
    return {one["name"]: len(one["partitions"]) for one in described if for_code(one["error_code"]) is NoError}


def _used(kafka: KafkaConfig, parts: dict[str, Operator]) -> list[str]:
    names = sorted({*topics_of(parts), *outputs_of(parts)})
    return [*(topic(kafka, name) for name in names), changelog(app_id(kafka), STATE_TABLE)]


def wrong_topics(kafka: KafkaConfig, parts: dict[str, Operator], counts: dict[str, int]) -> str | None:
    """What is wrong with the topics, in one sentence; None when the stream can work with them."""
    missing = [name for name in _used(kafka, parts) if name not in counts]
    if missing:
        return f"Kafka has no topic {', '.join(missing)}; create what is missing with `yolometer topics ensure`."
    state = changelog(app_id(kafka), STATE_TABLE)
    other = [name for name in topics_of(parts) if counts[topic(kafka, name)] != counts[state]]
    if other:
        listed = ", ".join(f"{topic(kafka, name)} has {counts[topic(kafka, name)]}" for name in other)
        return (
            f"{state} has {counts[state]} partitions and {listed}; they must be the same, so stop all workers, "
            "delete the changelog and create it with `yolometer topics ensure` (state is then made again from the store)."
        )
    return None
