"""The numbers: what is exported is the list, what was never set is absent, a label cannot run away."""

from __future__ import annotations

import subprocess
import sys
import threading
from typing import get_args

import pytest
from prometheus_client.parser import text_string_to_metric_families

from yolometer_core.errors import BadUsage
from yolometer_core.service.metrics import DEFINITIONS, MOST_REASONS, Metrics, Service, full_name

SERVICES: tuple[Service, ...] = get_args(Service)


def samples(metrics: Metrics) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    text = metrics.rendered()[0].decode()
    found = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    return {(sample.name, tuple(sorted(sample.labels.items()))): sample.value for sample in found}


def value(metrics: Metrics, name: str, **labels: str) -> float | None:
    return samples(metrics).get((full_name(metrics.service, name), tuple(sorted(labels.items()))))


def set_all(metrics: Metrics) -> None:
    metrics.success(1000.5)
    metrics.dropped("spool_full", 2)
    metrics.dead("unknown_version", 3)
    if metrics.service == "agent":
        metrics.lane_lag("logs", 7)
        metrics.spool("logs", size_bytes=10, messages=2)
    else:
        metrics.lag("yolometer.events.v1", 3, 41)
    if metrics.service == "stream":
        metrics.cold(True)
    if metrics.service == "sink":
        metrics.inserted(5000, 0.2)


@pytest.mark.parametrize("service", SERVICES)
def test_what_is_exported_is_the_list_and_the_numbers_of_the_process(service: Service) -> None:
    metrics = Metrics(service)
    set_all(metrics)
    ends = {"histogram": ("_bucket", "_sum", "_count")}
    own = [each for each in DEFINITIONS if service in each.services]
    expected = {full_name(service, each.name) + end for each in own for end in ends.get(each.kind, ("",))}
    names = {name for name, _ in samples(metrics)}
    assert {name for name in names if name.startswith("yolometer_")} == expected
    assert {"process_cpu_seconds_total", "process_resident_memory_bytes"} <= names


@pytest.mark.parametrize("service", SERVICES)
def test_what_was_never_set_is_absent_and_not_0(service: Service) -> None:
    own = {name for name, _ in samples(Metrics(service)) if name.startswith("yolometer_")}
    assert own == {full_name(service, "info"), full_name(service, "events_total")}


def test_values_arrive_and_unknown_takes_them_away() -> None:
    sink, agent = Metrics("sink", wall=lambda: 99.0), Metrics("agent", release="1.2.3")
    set_all(sink)
    assert value(sink, "lag", topic="yolometer.events.v1", partition="3") == 41
    sink.lag("yolometer.events.v1", 3, None)
    sink.lag("yolometer.events.v1", 4, None)
    assert value(sink, "lag", topic="yolometer.events.v1", partition="3") is None
    sink.success()
    assert value(sink, "last_success_timestamp_seconds") == 99
    sink.events("ok", 10)
    assert [value(sink, "events_total", result=each) for each in ("ok", "dead", "dropped", "duplicate")] == [10, 3, 2, 0]
    assert value(sink, "batch_rows_bucket", le="16384.0") == 1 and value(sink, "batch_rows_bucket", le="4096.0") == 0
    assert value(agent, "info", version="1.2.3") == 1
    agent.spool("gpu", size_bytes=None, messages=None)
    assert value(agent, "spool_bytes", lane="gpu") is None


def test_a_number_of_another_service_is_refused() -> None:
    with pytest.raises(BadUsage, match="agent has no number 'cold'"):
        Metrics("agent").cold(True)
    with pytest.raises(BadUsage, match="agent has no number 'lag' with 2 labels"):
        Metrics("agent").lag("t", 0, 1)
    with pytest.raises(BadUsage, match="sink has no lanes"):
        Metrics("sink").lane_lag("logs", 1)
    with pytest.raises(BadUsage, match="stream has no number 'batch_rows'"):
        Metrics("stream").inserted(1, 1.0)
    with pytest.raises(BadUsage, match="stream has no number 'spool_bytes'"):
        Metrics("stream").spool("logs", size_bytes=1, messages=1)


def test_a_label_that_is_no_plain_word_or_one_too_many_counts_as_other() -> None:
    metrics = Metrics("sink")
    for wrong in ("/var/log/train.log", "Row 7: bad", "4711", "", "x" * 41, 'a"b\nc'):
        metrics.dead(wrong)
    assert value(metrics, "dead_letters_total", reason="other") == 6
    for number in range(100):
        metrics.dropped(f"reason_{number}")
    found = {labels: count for (name, labels), count in samples(metrics).items() if name == "yolometer_sink_dropped_total"}
    assert len(found) == MOST_REASONS + 1 and sum(found.values()) == 100
    metrics.lag("a topic\n", 1, 5)
    assert value(metrics, "lag", topic="other", partition="other") == 5


def test_no_name_and_no_label_of_the_list_is_a_pid_a_path_or_a_run() -> None:
    labels = {label for each in DEFINITIONS for label in each.labels}
    assert labels == {"version", "topic", "partition", "lane", "result", "reason"}
    assert all(each.help.endswith(".") for each in DEFINITIONS)


def test_two_services_and_many_threads_do_not_disturb_each_other() -> None:
    one, other = Metrics("stream"), Metrics("stream")

    def count() -> None:
        for _ in range(500):
            one.dead("late")

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert value(one, "dead_letters_total", reason="late") == 2000 and value(other, "dead_letters_total", reason="late") is None


def test_the_client_is_loaded_only_by_who_counts() -> None:
    code = (
        "import sys, yolometer_core.service.metrics as m, yolometer_core.service.health, yolometer_core.service.logs as l\n"
        "assert not {'prometheus_client', 'structlog'} & set(sys.modules)\n"
        "m.Metrics('agent'); assert 'prometheus_client' in sys.modules and 'structlog' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
