"""nvitop and gpustat read the same node through the same library, as programs of their own, and agree with the meter."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import pytest
from _nvml_node import GIB, Made, uuid
from _nvml_stub import Stub

from yolometer_agent.meters._base import Reading

NVITOP = """
import json
from nvitop import Device, NA

def of(device):
    known = lambda value: None if value is NA else value
    return {
        "uuid": device.uuid(), "name": known(device.name()), "util": known(device.gpu_utilization()),
        "memory_util": known(device.memory_utilization()), "used": known(device.memory_used()),
        "total": known(device.memory_total()),
        "power": known(device.power_usage()), "limit": known(device.power_limit()), "temp": known(device.temperature()),
        "sm": known(device.sm_clock()), "memory_clock": known(device.memory_clock()),
        "ecc": known(device.total_volatile_uncorrected_ecc_errors()), "bus": known(device.bus_id()),
        "processes": {pid: known(process.gpu_memory()) for pid, process in device.processes().items()},
    }
print(json.dumps([of(leaf) for device in Device.all() for leaf in [device, *device.mig_devices()]]))
"""


def output(stub: Stub, *command: str) -> str:
    python = [sys.executable, "-W", "ignore"]
    done = subprocess.run([*python, *command], env=stub.environment(), capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def scaled(reading: Reading, name: str, per: float) -> float | None:
    """A value of ours in the unit of the others."""
    value = reading.values[name]
    return None if value is None else value * per


def busy(stub: Stub) -> None:
    """Four GPUs, none like another; the last one can say little."""
    stub.set("node", gpus=4)
    for gpu in range(4):
        stub.set(gpu, util=10 + gpu, mem_util=gpu, used_bytes=(gpu + 1) * GIB, total_bytes=80 * GIB,
                 power_mw=200_000 + 1000 * gpu, limit_mw=700_000 - 1000 * gpu, temp=40 + gpu, sm_mhz=1500 + gpu,
                 mem_mhz=2600 + gpu, ecc_uncorrected=gpu, procs=f"{4_190_000 + gpu}:{gpu * 2**20}")  # fmt: skip
    stub.set(1, procs="")
    for function in ("UtilizationRates", "PowerUsage", "EnforcedPowerLimit", "PowerManagementLimit", "Temperature",
                     "TemperatureV", "ClockInfo", "TotalEccErrors"):  # fmt: skip
        stub.fail(3, f"nvmlDeviceGet{function}")
    for number in (185, 186, 4):
        stub.fail_field(3, number)


def test_nvitop_agrees(stub: Stub, made: Made) -> None:
    busy(stub)
    node = made()
    ours = node.sample()
    facts = {facts.uuid: facts for facts in node.reader.devices()}
    theirs: Sequence[dict[str, Any]] = json.loads(output(stub, "-c", NVITOP))
    assert [row["uuid"] for row in theirs] == [uuid(gpu) for gpu in range(4)]
    for row, reading in zip(theirs, ours, strict=True):
        assert row == {
            "uuid": reading.device.uuid, "name": reading.device.model, "bus": facts[reading.device.uuid].pci_bus_id,
            "util": scaled(reading, "gpu_util_ratio", 100), "memory_util": scaled(reading, "memory_util_ratio", 100),
            "used": scaled(reading, "memory_used_bytes", 1), "total": scaled(reading, "memory_total_bytes", 1),
            "power": scaled(reading, "power_w", 1000), "limit": scaled(reading, "power_limit_w", 1000),
            "temp": scaled(reading, "temperature_c", 1), "sm": scaled(reading, "sm_clock_mhz", 1),
            "memory_clock": scaled(reading, "memory_clock_mhz", 1), "ecc": scaled(reading, "ecc_uncorrected", 1),
            "processes": {str(pid): memory for pid, memory in node.reader.processes()[reading.device.uuid]},
        }  # fmt: skip
    assert "200W / 700W" in output(stub, "-m", "nvitop", "--once", "--ascii")


def test_nvitop_finds_the_same_mig_devices(stub: Stub, made: Made) -> None:
    stub.set(0, mig=1)
    for place in (0, 1):  # nvitop ends at the first free place
        stub.set(f"0/{place}", uuid=f"MIG-{place}", sms=16, total_bytes=10 * GIB, used_bytes=(place + 1) * GIB,
                 name="NVIDIA Stub 80GB MIG 1g.10gb", procs=f"419000{place}:{2**20}")  # fmt: skip
    node = made()
    ours = node.sample()
    theirs = json.loads(output(stub, "-c", NVITOP))
    assert [row["uuid"] for row in theirs] == [reading.device.uuid for reading in ours] == [uuid(0), "MIG-0", "MIG-1"]
    for row, reading in list(zip(theirs, ours, strict=True))[1:]:
        assert (row["used"], row["total"], row["util"], row["power"]) == (
            reading.values["memory_used_bytes"], reading.values["memory_total_bytes"], None, None
        )  # fmt: skip
        assert row["processes"] == {str(pid): memory for pid, memory in node.reader.processes()[reading.device.uuid]}


def test_gpustat_agrees(stub: Stub, made: Made) -> None:
    busy(stub)
    node = made()
    ours = node.sample()
    page = json.loads(output(stub, "-m", "gpustat", "--json"))
    assert page["driver_version"] == node.reader.devices()[0].driver_version
    for row, reading in zip(page["gpus"], ours, strict=True):
        power_w, limit_w = reading.values["power_w"], reading.values["power_limit_w"]
        assert (row["uuid"], row["name"]) == (reading.device.uuid, reading.device.model)
        assert (row["utilization.gpu"], row["temperature.gpu"], row["power.draw"], row["enforced.power.limit"]) == (
            scaled(reading, "gpu_util_ratio", 100), reading.values["temperature_c"], power_w, limit_w
        )  # fmt: skip
        assert row["memory.used"] * 2**20 == pytest.approx(reading.values["memory_used_bytes"], abs=2**20)
        assert row["memory.total"] * 2**20 == reading.values["memory_total_bytes"]
