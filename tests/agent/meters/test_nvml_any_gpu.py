"""What holds of any NVIDIA GPU: on the stub in each run of the tests, and on the real ones of a machine with `pytest -m gpu`."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

import pytest

from yolometer_agent.meters._base import Reading
from yolometer_agent.meters._nvml_values import UNITS
from yolometer_agent.meters._nvml_wants import NAMES
from yolometer_agent.meters.nvml import Nvml

SAMPLES = 6
COUNTERS = [name for name, unit in UNITS.items() if unit.counts]


@pytest.fixture(params=["stub", pytest.param("hardware", marks=pytest.mark.gpu)])
def meter(request: pytest.FixtureRequest) -> Iterator[Nvml]:
    """A meter of the stub's node, or of this machine."""
    library, period_s = None, 0.5  # drivers renew their numbers some times in a second
    if request.param == "stub":
        node = request.getfixturevalue("stub")
        node.set("node", gpus=3)
        node.set(1, mig=1)
        node.set("1/2", uuid="MIG-1", sms=16)
        library, period_s = node.library, 0.1
    made = Nvml(library=library, period_s=period_s, processes_s=2 * period_s, slow_s=2 * period_s)
    yield made
    made.close()


def sampled(meter: Nvml, at_s: list[float] | None = None) -> list[Sequence[Reading]]:
    """Some samples, a period and a bit apart."""
    rows = []
    for _ in range(SAMPLES):
        rows.append(meter.sample(datetime.now(UTC)))
        if at_s is not None:
            at_s.append(time.monotonic())
        time.sleep(meter.period_s)
    return rows


def test_samples_of_any_gpu(meter: Nvml) -> None:
    rows = sampled(meter)
    assert rows[0]
    assert len({tuple(reading.device.uuid for reading in row) for row in rows}) == 1
    assert len({reading.device.uuid for reading in rows[0]}) == len(rows[0])
    for row in rows:
        for reading in row:
            assert reading.device.uuid.startswith(("GPU-", "MIG-"))
            assert reading.device.model
            assert set(reading.values) == {*NAMES, "lost"}
            assert reading.values["lost"] == 0.0
            for name, value in reading.values.items():
                unit = UNITS.get(name)
                assert value is None or unit is None or unit.least <= value <= unit.most, (name, value)
    assert meter.faults() == []
    assert meter.refused == {}


def test_what_a_card_knows_it_knows_always(meter: Nvml) -> None:
    rows = [[_known(reading) for reading in row] for row in sampled(meter)[1:]]
    assert all(row == rows[0] for row in rows)
    assert any({"gpu_util_ratio", "power_w", "temperature_c"} & known for known in rows[0])


def test_counters_only_grow_and_energy_follows_the_power(meter: Nvml) -> None:
    at_s: list[float] = []
    rows = sampled(meter, at_s)
    for before, after in itertools.pairwise(rows):
        for one, other in zip(before, after, strict=True):
            for name in COUNTERS:
                first, second = one.values[name], other.values[name]
                assert first is None or second is None or first <= second, name
    for gpu, last in enumerate(rows[-1]):
        first_j, last_j = rows[1][gpu].values["energy_j"], last.values["energy_j"]
        watts = [row[gpu].values["power_w"] for row in rows[1:]]
        if first_j is None or last_j is None or None in watts:
            continue
        mean_w = sum(watt or 0.0 for watt in watts) / len(watts)
        assert (last_j - first_j) / (at_s[-1] - at_s[1]) == pytest.approx(mean_w, rel=0.5, abs=30)
        assert last.device.energy_source in {"counter", "power"}


def test_the_inventory_of_any_gpu(meter: Nvml) -> None:
    (row,) = {tuple(reading.device.uuid for reading in meter.sample(datetime.now(UTC)))}
    inventory = meter.devices()
    assert [facts.uuid for facts in inventory] == list(row)
    for facts in inventory:
        assert facts.model
        assert facts.driver_version
        assert facts.pci_bus_id
        assert facts.parent_uuid is None or (0 < (facts.sm_share_ratio or 0) <= 1 and facts.parent_uuid in row)
        assert facts.memory_total_bytes is None or facts.memory_total_bytes > 2**28
    assert set(meter.processes()) <= set(row)


def test_a_sample_of_any_gpu_is_quick(meter: Nvml) -> None:
    sampled(meter)
    calls = meter.call_seconds
    samples, seconds, longest_s = calls["sample"]
    assert samples == SAMPLES
    assert seconds / samples < 0.25
    assert longest_s < 2.0
    assert "nvmlDeviceGetPcieThroughput" not in calls
    for name, spent in sorted(calls.items(), key=_by_seconds):
        print(f"{name}: {spent[0]} calls, {1e6 * spent[1] / spent[0]:.0f} us each, {1e6 * spent[2]:.0f} us at most")


def _by_seconds(item: tuple[str, tuple[int, float, float]]) -> float:
    return -item[1][1]


def _known(reading: Any) -> set[str]:
    return {name for name, value in reading.values.items() if value is not None}
