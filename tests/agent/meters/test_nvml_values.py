"""Where a number of NVML becomes a value: sentinels, the impossible, true zeros, counters that begin again, memory of B1."""

from __future__ import annotations

import pytest
from _nvml_node import GIB, Made, nulls, uuid
from _nvml_stub import Stub

from yolometer_agent.meters._nvml_values import SENTINELS

RAW = {
    "util": "gpu_util_ratio", "mem_util": "memory_util_ratio", "power_mw": "power_w", "limit_mw": "power_limit_w",
    "temp": "temperature_c", "sm_mhz": "sm_clock_mhz", "mem_mhz": "memory_clock_mhz", "reasons": "clock_event_reasons",
    "energy_mj": "energy_j", "policy_power_ns": "throttle_power_s", "sw_thermal_ns": "throttle_thermal_s",
    "hw_thermal_ns": "throttle_hw_thermal_s", "brake_ns": "throttle_brake_s", "policy_sync_ns": "throttle_sync_s",
    "pcie_gen": "pcie_gen", "pcie_width": "pcie_width", "pcie_replays": "pcie_replays", "ecc_corrected": "ecc_corrected",
    "ecc_uncorrected": "ecc_uncorrected", "link_crc": "nvlink_errors", "used_bytes": "memory_used_bytes",
    "total_bytes": "memory_total_bytes",
}  # fmt: skip
"""What the stub calls a number, and what value becomes of it."""


@pytest.mark.parametrize(("key", "name"), RAW.items())
def test_sentinels_are_null_and_counted(stub: Stub, made: Made, key: str, name: str) -> None:
    for sentinel in sorted(SENTINELS - {-1}):
        stub.set(0, **{key: sentinel})
        node = made()
        assert nulls(node.one()) == {name}
        assert node.reader.refused == {name: 1}
        stub.set(0, **{key: None})
        assert nulls(node.one(after_s=60)) == set()


@pytest.mark.parametrize(
    ("key", "number", "name"),
    [("util", 101, "gpu_util_ratio"), ("mem_util", 4000, "memory_util_ratio"), ("temp", 301, "temperature_c"),
     ("power_mw", 20_000_000, "power_w"), ("limit_mw", 0, "power_limit_w"), ("sm_mhz", 70_000, "sm_clock_mhz"),
     ("pcie_gen", 0, "pcie_gen"), ("pcie_width", 0, "pcie_width"), ("total_bytes", 0, "memory_total_bytes"),
     ("used_bytes", 90 * GIB, "memory_used_bytes"), ("reasons", 2**60, "clock_event_reasons")],
)  # fmt: skip
def test_what_no_card_can_mean_is_null_and_counted(stub: Stub, made: Made, key: str, number: int, name: str) -> None:
    stub.set(0, **{key: number})
    node = made()
    assert nulls(node.one()) == {name}
    assert node.reader.refused == {name: 1}
    stub.set(0, **{key: None})
    assert nulls(node.one(after_s=60)) == set()


def test_a_true_zero_stays_a_zero(stub: Stub, made: Made) -> None:
    stub.set(0, util=0, mem_util=0, used_bytes=0, reasons=0, sm_mhz=0, temp=0, power_mw=0)
    node = made()
    said = node.one().values
    assert [said[name] for name in ("gpu_util_ratio", "memory_util_ratio", "memory_used_bytes", "clock_event_reasons",
                                    "sm_clock_mhz", "temperature_c", "power_w", "processes")] == [0.0] * 8  # fmt: skip
    assert node.reader.refused == {}


def test_the_largest_possible_values_are_values(stub: Stub, made: Made) -> None:
    stub.set(0, util=100, mem_util=100, used_bytes=80 * GIB, total_bytes=80 * GIB, reserved_bytes=0, temp=300)
    said = made().one().values
    assert (said["gpu_util_ratio"], said["memory_util_ratio"], said["temperature_c"]) == (1.0, 1.0, 300.0)
    assert said["memory_used_bytes"] == said["memory_total_bytes"]


def test_a_counter_that_goes_back_is_null_once(stub: Stub, made: Made) -> None:
    stub.set(0, policy_power_ns=9_000_000_000, ecc_corrected=5, energy_mj=5_000_000)
    node = made()
    node.sample()
    stub.set(0, policy_power_ns=1_000_000_000, ecc_corrected=0, energy_mj=1000)
    names = {"throttle_power_s", "energy_j", "ecc_corrected"}
    assert nulls(node.one(after_s=60)) == names
    assert node.reader.refused == dict.fromkeys(names, 1)
    after = node.one(after_s=60).values
    assert (after["throttle_power_s"], after["ecc_corrected"]) == (1.0, 0.0)
    assert after["energy_j"] is not None
    assert node.reader.refused == dict.fromkeys(names, 1)


def test_a_counter_cannot_grow_faster_than_it_can(stub: Stub, made: Made) -> None:
    node = made()
    node.sample()
    stub.set(0, sw_thermal_ns=3600 * 10**9, energy_mj=10**11)  # an hour in a second, and 100 MJ
    assert nulls(node.one()) == {"throttle_thermal_s", "energy_j"}
    assert nulls(node.one()) == set()
    stub.set(0, sw_thermal_ns=7200 * 10**9)
    assert nulls(node.one(after_s=3600)) == set()  # an hour in an hour


def test_memory_of_a_part_that_has_none_of_its_own(stub: Stub, made: Made) -> None:
    """B1: no size; used is what the processes hold; the GPU is there, its utilisation stays a true 0."""
    for function in ("nvmlDeviceGetMemoryInfo", "nvmlDeviceGetMemoryInfo_v2"):
        stub.fail(0, function)
    stub.set(0, util=0, temp=39, procs=f"1200:{1200 * 2**20}")
    node = made()
    reading = node.one()
    assert nulls(reading) == {"memory_total_bytes"}
    assert reading.values["memory_used_bytes"] == 1200.0 * 2**20
    assert (reading.values["gpu_util_ratio"], reading.values["temperature_c"], reading.values["lost"]) == (0.0, 39.0, 0.0)
    assert node.reader.devices()[0].memory_total_bytes is None
    # one of the processes does not tell, and then nobody computes, which says nothing of the memory
    for procs in ("1200:1048576,1201:-", "1201:-", ""):
        stub.set(0, procs=procs)
        assert nulls(node.one(after_s=60)) == {"memory_total_bytes", "memory_used_bytes"}


def test_memory_that_fails_now_is_not_made_up_of_the_processes(stub: Stub, made: Made) -> None:
    stub.set(0, procs="1200:1048576")
    node = made()
    stub.fail(0, "nvmlDeviceGetMemoryInfo_v2", 999)
    assert nulls(node.one()) == {"memory_total_bytes", "memory_used_bytes"}


def test_a_card_that_can_say_nothing_is_still_there(stub: Stub, made: Made) -> None:
    stub.set("node", gpus=2)
    names = ["UtilizationRates", "MemoryInfo", "MemoryInfo_v2", "FieldValues", "PowerUsage", "TotalEnergyConsumption",
             "ClockInfo", "Temperature", "CurrentClocksEventReasons", "CurrentClocksThrottleReasons", "ViolationStatus",
             "EnforcedPowerLimit", "CurrPcieLinkGeneration", "CurrPcieLinkWidth", "PcieReplayCounter", "TotalEccErrors",
             "MigMode", "Name", "PciInfo_v3",
             *(f"{kind}RunningProcesses_v{version}" for kind in ("Compute", "MPSCompute") for version in (2, 3))]  # fmt: skip
    for name in names:
        stub.fail(0, f"nvmlDeviceGet{name}")
    stub.fail(0, "nvmlDeviceRegisterEvents")
    node = made()
    mute, whole = node.sample()
    assert {name: value for name, value in mute.values.items() if value is not None} == {"lost": 0.0}
    assert (mute.device.uuid, mute.device.model, mute.device.energy_source) == (uuid(0), None, None)
    assert nulls(whole) == set()
    assert node.reader.processes() == {uuid(1): ()}
    assert node.reader.faults() == []
    node.sample(after_s=200)
    assert node.reader.call_seconds["nvmlDeviceGetTotalEccErrors"][0] == 2  # for the two kinds, and never again
