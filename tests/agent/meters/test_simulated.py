"""The simulated node: what it says follows from the time alone, and its energy from its power."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from pydantic import ValidationError

from yolometer_agent.config import AgentConfig, meters_of
from yolometer_agent.meters._base import Meter
from yolometer_agent.meters.simulated import Simulated
from yolometer_core.errors import BadConfig
from yolometer_core.gpu import METRICS

NOW = datetime(2026, 12, 1, 12, tzinfo=UTC)


def test_the_same_time_gives_the_same_samples() -> None:
    meter = Simulated(gpus=3, seed=7, run_id="r")
    assert isinstance(meter, Meter)
    assert meter.sample(NOW) == Simulated(gpus=3, seed=7, run_id="r").sample(NOW)
    assert meter.sample(NOW) != meter.sample(NOW + timedelta(seconds=1))
    assert meter.sample(NOW) != Simulated(gpus=3, seed=8, run_id="r").sample(NOW)
    readings = meter.sample(NOW)
    assert len({reading.device.uuid for reading in readings}) == 3
    assert all(set(reading.values) <= set(METRICS) for reading in readings)


def test_its_energy_is_its_power_over_time() -> None:
    meter = Simulated(gpus=4)
    for gpu in range(4):
        rows = [meter.sample(NOW + timedelta(seconds=at / 10))[gpu].values for at in range(1201)]
        power = [float(row["power_w"] or 0) for row in rows]
        energy = [float(row["energy_j"] or 0) for row in rows]
        assert all(a < b for a, b in pairwise(energy))
        trapezes = sum((a + b) / 2 * 0.1 for a, b in pairwise(power))
        assert energy[-1] - energy[0] == pytest.approx(trapezes, rel=1e-4)
        assert all(0 <= float(row["gpu_util_ratio"] or 0) <= 1 for row in rows)


def test_meters_come_from_the_settings() -> None:
    assert meters_of(AgentConfig()) == {}
    found = meters_of(AgentConfig(meters={"simulated": {"gpus": 2}}))
    assert found == {"simulated": Simulated(gpus=2)}
    with pytest.raises(BadConfig, match=r"There is no meter 'sim'; the meters are .*simulated"):
        meters_of(AgentConfig(meters={"sim": {}}))
    with pytest.raises(BadConfig, match=r"The key 'meters.simulated.gpus' is wrong .*; correct it"):
        meters_of(AgentConfig(meters={"simulated": {"gpus": 0}}))
    with pytest.raises(ValidationError):
        found["simulated"].gpus = 3  # type: ignore[attr-defined]
