"""A test that draws its data does not fail because the machine is slow."""

from __future__ import annotations

from _kafka import broker, kafka, prefix  # noqa: F401  # fixtures; Kafka starts at first use
from hypothesis import HealthCheck, settings

settings.register_profile("any-speed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any-speed")
