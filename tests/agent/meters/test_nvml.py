"""The NVML meter through the real binding, on a node that a text describes: what it reads, how often, and in which ways."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from _nvml_node import GIB, Made, nulls, uuid
from _nvml_stub import Stub

from yolometer_agent.meters._base import Meter
from yolometer_agent.meters._nvml_values import UNITS
from yolometer_agent.meters.nvml import METER, Nvml
from yolometer_core.gpu import METRICS

NOW = datetime(2026, 12, 1, 12, tzinfo=UTC)


def test_it_reads_everything_a_card_has(stub: Stub, made: Made) -> None:
    stub.set("node", gpus=2)
    stub.set(0, util=37, mem_util=12, total_bytes=80 * GIB, used_bytes=30 * GIB, power_mw=412345, limit_mw=650000, temp=61,
             sm_mhz=1755, mem_mhz=2619, reasons=0x24, energy_mj=12_345_678, policy_power_ns=2_500_000_000,
             sw_thermal_ns=1_000_000_000, hw_thermal_ns=250_000_000, brake_ns=125_000_000, policy_sync_ns=500_000_000,
             pcie_gen=4, pcie_width=8, pcie_replays=9, ecc_corrected=7, ecc_uncorrected=2, link_crc=1, link_replay=4,
             procs="71:1048576,72:-", mps_procs="73:2048")  # fmt: skip
    node = made()
    first, second = node.sample()
    said = dict(first.values)
    energy_j = said.pop("energy_j")
    assert energy_j is not None
    assert 12_345.678 <= energy_j < 12_345.678 + 412.345 * 60
    assert said == {
        "gpu_util_ratio": 0.37, "memory_util_ratio": 0.12, "memory_total_bytes": 80.0 * GIB, "memory_used_bytes": 30.0 * GIB,
        "power_w": 412.345, "power_limit_w": 650.0, "temperature_c": 61.0, "sm_clock_mhz": 1755.0, "memory_clock_mhz": 2619.0,
        "clock_event_reasons": 36.0, "throttle_power_s": 2.5, "throttle_thermal_s": 1.0, "throttle_hw_thermal_s": 0.25,
        "throttle_brake_s": 0.125, "throttle_sync_s": 0.5, "pcie_gen": 4.0, "pcie_width": 8.0, "pcie_replays": 9.0,
        "ecc_corrected": 7.0, "ecc_uncorrected": 2.0, "nvlink_errors": 5.0, "processes": 3.0, "lost": 0.0,
    }  # fmt: skip
    assert (first.device.uuid, first.device.model, first.device.run_id) == (uuid(0), "NVIDIA Stub 80GB", None)
    assert second.device.uuid == uuid(1)
    assert second.values["processes"] == 0.0
    assert node.reader.processes() == {uuid(0): ((71, 1048576), (72, None), (73, 2048)), uuid(1): ()}
    assert node.reader.refused == {}


def test_the_meter_is_a_meter(stub: Stub) -> None:
    meter = Nvml(library=stub.library)
    assert isinstance(meter, Meter)
    assert METER is Nvml
    assert (meter.devices(), meter.faults(), meter.processes(), meter.call_seconds, meter.refused) == ([], [], {}, {}, {})
    try:
        (reading,) = meter.sample(NOW)
        assert reading.device.uuid == uuid(0)
        assert set(reading.values) == set(UNITS) | {"processes", "lost"}
        assert set(reading.values) <= set(METRICS)
        assert (len(meter.devices()), meter.faults(), meter.processes(), meter.refused) == (1, [], {uuid(0): ()}, {})
        meter.close()
        assert len(meter.sample(NOW)) == 1  # it opens again
    finally:
        meter.close()


def test_settings_are_frozen_and_alike_when_they_say_the_same() -> None:
    assert Nvml() == Nvml()
    assert Nvml(slow_s=20).slow_s == 20.0
    with pytest.raises(ValueError, match="greater than or equal"):
        Nvml(period_s=0)
    with pytest.raises(ValueError, match="frozen"):
        Nvml().period_s = 2.0


def test_the_inventory_says_what_each_gpu_is(stub: Stub, made: Made) -> None:
    stub.set("node", gpus=2, version="590.44.01")
    stub.set(1, name="NVIDIA H200", total_bytes=141 * GIB)
    node = made()
    assert node.reader.devices() == []  # nobody has looked yet
    node.sample()
    assert node.reader.devices()[1]._asdict() == {
        "uuid": uuid(1), "model": "NVIDIA H200", "parent_uuid": None, "sm_share_ratio": None, "memory_total_bytes": 141 * GIB,
        "driver_version": "590.44.01", "pci_bus_id": "00000000:02:00.0", "gpu_index": 1, "energy_source": "counter",
    }  # fmt: skip


@pytest.mark.parametrize("gpus", [0, 1, 8, 16])
def test_any_number_of_gpus(stub: Stub, made: Made, gpus: int) -> None:
    stub.set("node", gpus=gpus)
    for gpu in range(gpus):
        stub.set(gpu, power_mw=100_000 + gpu * 1000)
    node = made()
    readings = node.sample()
    assert [reading.device.uuid for reading in readings] == [uuid(gpu) for gpu in range(gpus)]
    assert [reading.values["power_w"] for reading in readings] == [100.0 + gpu for gpu in range(gpus)]
    assert len(node.reader.devices()) == gpus
    assert node.reader.faults() == []


NULLS = {
    "nvmlDeviceGetUtilizationRates": {"gpu_util_ratio", "memory_util_ratio"},
    "nvmlDeviceGetClockInfo": {"sm_clock_mhz", "memory_clock_mhz"},
    "nvmlDeviceGetTemperature": {"temperature_c"},
    "nvmlDeviceGetEnforcedPowerLimit": {"power_limit_w"},
    "nvmlDeviceGetCurrPcieLinkGeneration": {"pcie_gen"},
    "nvmlDeviceGetCurrPcieLinkWidth": {"pcie_width"},
}


@pytest.mark.parametrize("code", [3, 4, 13])
@pytest.mark.parametrize(("function", "names"), NULLS.items())
def test_what_a_card_cannot_give_is_null_and_not_asked_again(
    stub: Stub, made: Made, function: str, names: set[str], code: int
) -> None:
    stub.fail(0, function, code)
    node = made()
    before = stub.calls(function)
    assert nulls(node.one()) == names
    asked = stub.calls(function) - before
    assert asked == (2 if function == "nvmlDeviceGetClockInfo" else 1)  # of two clocks
    stub.fail(0, function, None)
    for _ in range(3):
        assert nulls(node.one(after_s=60)) == names
    assert stub.calls(function) - before == asked
    stub.set("node", boot=2)  # another driver may know
    with pytest.raises(Exception, match="driver went away"):
        node.sample()
    assert nulls(node.one(after_s=60)) == set()


@pytest.mark.parametrize(("function", "names"), NULLS.items())
def test_what_fails_is_null_now_and_asked_again(stub: Stub, made: Made, function: str, names: set[str]) -> None:
    node = made()
    for code in (999, 10, 20):
        stub.fail(0, function, code)
        assert nulls(node.one(after_s=60)) == names
        stub.fail(0, function, None)
        assert nulls(node.one(after_s=60)) == set()


def test_a_field_that_fails_costs_the_other_fields_nothing(stub: Stub, made: Made) -> None:
    node = made()
    stub.fail_field(0, 74, 999)
    assert nulls(node.one()) == {"throttle_power_s"}
    stub.fail_field(0, 74, None)
    assert nulls(node.one()) == set()
    stub.fail_field(0, 252, 3)
    assert nulls(node.one()) == {"throttle_hw_thermal_s"}
    stub.fail_field(0, 252, None)
    assert nulls(node.one()) == {"throttle_hw_thermal_s"}  # for good


def test_what_is_read_now_and_then_is_not_repeated_after_it_failed(stub: Stub, made: Made) -> None:
    stub.set(0, procs="71:1", pcie_gen=3)
    node = made(slow_s=30, processes_s=12)
    assert node.one().values["pcie_gen"] == 3.0
    stub.set(0, pcie_gen=1, procs="71:1,72:1")
    said = node.one(after_s=11).values
    assert (said["pcie_gen"], said["processes"]) == (3.0, 1.0)  # repeated
    assert node.one().values["processes"] == 2.0
    stub.fail(0, "nvmlDeviceGetCurrPcieLinkGeneration", 999)
    stub.fail(0, "nvmlDeviceGetComputeRunningProcesses_v3", 999)
    said = node.one(after_s=18).values
    assert (said["pcie_gen"], said["processes"]) == (None, None)
    assert node.reader.processes() == {}
    stub.fail(0, "nvmlDeviceGetCurrPcieLinkGeneration", None)
    stub.fail(0, "nvmlDeviceGetComputeRunningProcesses_v3", None)
    assert node.one(after_s=11).values["pcie_gen"] is None  # it is not its time yet
    said = node.one(after_s=20).values
    assert (said["pcie_gen"], said["processes"]) == (1.0, 2.0)


@pytest.mark.parametrize(("version", "known"), [("550.54.15", False), ("570.86", False), ("575.57.08", True), ("580.65.06", True),
                                                ("585.1", False), ("590.44", True), ("615.20", True), ("?", False)])  # fmt: skip
def test_the_fields_of_throttling_are_those_of_the_driver(stub: Stub, made: Made, version: str, known: bool) -> None:
    # 251 to 253 are settings of power smoothing on some drivers and times on others
    stub.set("node", version=version)
    stub.set(0, sw_thermal_ns=3 * 10**9, policy_thermal_ns=3 * 10**9, hw_thermal_ns=2 * 10**9, brake_ns=10**9, smoothing=1)
    said = made().one().values
    assert said["throttle_thermal_s"] == 3.0
    assert (said["throttle_hw_thermal_s"], said["throttle_brake_s"]) == ((2.0, 1.0) if known else (None, None))


def test_older_drivers_are_asked_in_older_ways(stub: Stub, made: Made) -> None:
    for function in ("nvmlDeviceGetMemoryInfo_v2", "nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetFieldValues",
                     "nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetMPSComputeRunningProcesses_v3"):  # fmt: skip
        stub.fail(0, function, 13)
    stub.set(0, procs="71:5", policy_sync_ns=10**9, reserved_bytes=GIB, used_bytes=2 * GIB)
    node = made()
    reading = node.one()
    assert nulls(reading) == {"throttle_hw_thermal_s", "throttle_brake_s", "nvlink_errors"}
    assert reading.values["memory_used_bytes"] == 3.0 * GIB  # the first version counts the reserved part
    assert (reading.values["processes"], reading.values["throttle_sync_s"]) == (1.0, 1.0)
    assert node.reader.devices()[0].energy_source == "counter"


def test_newer_links_are_asked_one_by_one(stub: Stub, made: Made) -> None:
    for number in (38, 45, 52, 59):
        stub.fail_field(0, number)
    stub.set(0, links=18)
    assert made().one().values["nvlink_errors"] == 54.0  # three kinds of errors, one of each on each link
    stub.set(0, link_received=2)  # NVLink 5
    assert made().one().values["nvlink_errors"] == 36.0
    stub.set(0, links=0, link_received=0)
    assert made().one().values["nvlink_errors"] is None


def test_nothing_dear_is_called(stub: Stub, made: Made) -> None:
    before = stub.calls("nvmlDeviceGetPcieThroughput")
    node = made()
    node.sample()
    slow = ("nvmlDeviceGetEnforcedPowerLimit", "nvmlDeviceGetCurrPcieLinkGeneration", "nvmlDeviceGetMigMode",
            "nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetUUID", "nvmlDeviceGetHandleByIndex_v2")  # fmt: skip
    counts = [stub.calls(function) for function in slow]
    fields = stub.calls("nvmlDeviceGetFieldValues")
    node.sample()
    assert [stub.calls(function) for function in slow] == counts  # it is not their time yet
    assert stub.calls("nvmlDeviceGetFieldValues") == fields + 1  # all fields in one call
    node.sample(after_s=60)
    assert stub.calls("nvmlDeviceGetPcieThroughput") == before


def test_each_call_is_timed(stub: Stub, made: Made) -> None:
    stub.set("node", gpus=2, delay_us=2000)
    node = made()
    node.sample()
    node.sample()
    calls = node.reader.call_seconds
    assert (calls["sample"][0], calls["nvmlDeviceGetUtilizationRates"][0], calls["nvmlDeviceGetMigMode"][0]) == (2, 4, 2)
    for name, (count, seconds, longest_s) in calls.items():
        assert 0 < longest_s <= seconds <= count * longest_s, name
    assert calls["nvmlDeviceGetUtilizationRates"][1] >= 4 * 0.002
