"""Energy: the counter of the driver, or the power integrated; one method for each GPU, and it never changes."""

from __future__ import annotations

import pytest
from _nvml_node import Made, Node, uuid
from _nvml_stub import Stub
from hypothesis import given
from hypothesis import strategies as st

from yolometer_agent.meters._nvml_energy import Energy
from yolometer_core.errors import Unavailable

COUNTER = "nvmlDeviceGetTotalEnergyConsumption"


def without_counter(stub: Stub, gpu: int = 0) -> None:
    stub.fail(gpu, COUNTER)
    stub.fail_field(gpu, 83)


def joules(node: Node, after_s: float = 1.0) -> float | None:
    said: float | None = node.one(after_s).values["energy_j"]
    return said


def test_the_counter_is_the_integral_of_the_power(stub: Stub, made: Made) -> None:
    stub.set(0, power_mw=5_000_000, energy_mj=2**42)
    node = made()
    first = joules(node)
    second = joules(node)
    assert first is not None
    assert second is not None
    assert 2**42 / 1000 <= first < second
    assert node.one().device.energy_source == "counter"


@pytest.mark.parametrize("code", [3, 2])  # drivers that do not know a field call it an invalid argument
def test_a_field_that_is_missing_is_asked_as_a_call(stub: Stub, made: Made, code: int) -> None:
    stub.fail_field(0, 83, code)
    node = made()
    assert joules(node) is not None
    assert node.one().device.energy_source == "counter"


def test_without_a_counter_the_power_is_integrated(stub: Stub, made: Made) -> None:
    without_counter(stub)
    node = made()
    watts = [100, 300, 200, 200]
    said = []
    for power in watts:
        stub.set(0, power_mw=power * 1000)
        said.append(joules(node))
    assert said == [0.0, 200.0, 450.0, 650.0]
    assert node.one().device.energy_source == "power"
    assert node.reader.devices()[0].energy_source == "power"


def test_across_a_gap_nothing_is_known(stub: Stub, made: Made) -> None:
    without_counter(stub)
    stub.set(0, power_mw=100_000)
    node = made()
    assert [joules(node), joules(node)] == [0.0, 100.0]
    for function in ("nvmlDeviceGetPowerUsage",):
        stub.fail(0, function, 999)
    for number in (185, 186):
        stub.fail_field(0, number, 999)
    assert [joules(node), joules(node)] == [None, None]
    for number in (185, 186):
        stub.fail_field(0, number, None)
    assert [joules(node), joules(node)] == [None, 200.0]  # it goes on, without what nobody saw
    assert joules(node, after_s=2.0) == 400.0  # one sample came too late: still a trapeze
    assert joules(node, after_s=3.0) is None
    assert joules(node) == 500.0


def test_the_method_never_changes(stub: Stub, made: Made) -> None:
    stub.set("node", gpus=2)
    without_counter(stub, 0)
    node = made(reopen_s=1000)
    sources = [reading.device.energy_source for reading in node.sample()]
    assert sources == ["power", "counter"]
    stub.set("node", boot=2)  # another driver: now it is the other way round
    stub.fail(0, COUNTER, None)
    stub.fail_field(0, 83, None)
    without_counter(stub, 1)
    with pytest.raises(Unavailable):
        node.sample()
    readings = node.sample(after_s=2)
    assert [reading.device.energy_source for reading in readings] == ["power", "counter"]
    assert [reading.values["energy_j"] for reading in node.sample()][1] is None
    assert node.sample()[0].values["energy_j"] == pytest.approx(2 * 300.0)


def test_nothing_is_decided_by_a_failure(stub: Stub, made: Made) -> None:
    stub.fail_field(0, 83, 999)
    node = made()
    assert node.one().device.energy_source is None
    assert joules(node) is None
    stub.fail_field(0, 83, None)
    assert node.one().device.energy_source == "counter"


def test_a_lost_gpu_keeps_its_method(stub: Stub, made: Made) -> None:
    without_counter(stub)
    node = made()
    node.sample()
    stub.set(0, lost=1)
    lost = node.one()
    assert (lost.device.uuid, lost.device.energy_source, lost.values["energy_j"]) == (uuid(0), "power", None)
    stub.set(0, lost=0)
    assert [joules(node), joules(node)] == [None, 300.0]


def test_a_card_without_power_has_no_energy(stub: Stub, made: Made) -> None:
    without_counter(stub)
    stub.fail(0, "nvmlDeviceGetPowerUsage")
    for number in (185, 186):
        stub.fail_field(0, number)
    node = made()
    assert joules(node) is None
    assert node.one().device.energy_source is None


@given(st.lists(st.tuples(st.floats(0.05, 5), st.none() | st.floats(0, 2000)), max_size=60))
def test_integrated_energy_never_goes_back_and_adds_up(steps: list[tuple[float, float | None]]) -> None:
    energy = Energy(1.0)
    at_s, last, expected, begun = 0.0, None, 0.0, False
    for step_s, power in steps:
        at_s += step_s
        said = energy.integrated(power, at_s)
        if power is None:
            assert said is None
        elif not begun:
            begun = True
            assert said == 0.0
        elif last is None or at_s - last[0] > 2.5:
            assert said is None
        else:
            expected += (last[1] + power) / 2 * (at_s - last[0])
            assert said == pytest.approx(expected)
        last = None if power is None else (at_s, power)
