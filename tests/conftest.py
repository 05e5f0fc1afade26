"""A test that draws its data does not fail because the machine is slow."""

from __future__ import annotations

import pytest
from _kafka import broker, kafka, prefix  # noqa: F401  # fixtures; Kafka starts at first use
from hypothesis import HealthCheck, settings

settings.register_profile("any-speed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any-speed")


FLEET = (
    "tests/agent/test_emit.py", "tests/agent/test_service.py", "tests/faults/", "tests/fleet/", "tests/sinks/test_dead.py",
    "tests/sinks/test_sink_service.py", "tests/stream/test_faust_runner.py", "tests/stream/test_first_fetch.py",
)  # fmt: skip


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What starts real services and kills them wants the machine for itself."""
    for item in items:
        if item.nodeid.startswith(FLEET):
            item.add_marker(pytest.mark.fleet)
