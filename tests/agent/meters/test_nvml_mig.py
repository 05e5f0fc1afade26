"""MIG devices: each is a device of its own; what belongs to the whole GPU stays there."""

from __future__ import annotations

import pytest
from _nvml_node import GIB, Made, Node, nulls, uuid
from _nvml_stub import Stub

BOARD = {"power_w", "power_limit_w", "energy_j", "pcie_gen", "pcie_width", "pcie_replays", "ecc_corrected", "ecc_uncorrected",
         "nvlink_errors"}  # fmt: skip
UTIL = {"gpu_util_ratio", "memory_util_ratio"}


def sliced(stub: Stub) -> None:
    """Two GPUs; the second is cut into parts of 3, 2 and 1 of 7 slices, at places with a gap between them."""
    stub.set("node", gpus=2)
    stub.set("all", sms=132)
    stub.set(1, mig=1, power_mw=400_000, temp=70, sm_mhz=1410, reasons=4)
    for place, part, sms, gib, procs in ((0, "a", 60, 40, "71:100"), (2, "b", 32, 20, "72:5,73:-"), (3, "c", 16, 10, "")):
        stub.set(f"1/{place}", uuid=f"MIG-{part}", sms=sms, total_bytes=gib * GIB, used_bytes=gib * GIB // 2, reserved_bytes=0,
                 procs=procs, name=f"NVIDIA Stub 80GB MIG {part}")  # fmt: skip


def by_uuid(node: Node, after_s: float = 1.0) -> dict[str, dict[str, float | None]]:
    return {reading.device.uuid: dict(reading.values) for reading in node.sample(after_s)}


def test_each_mig_device_is_a_device_of_its_own(stub: Stub, made: Made) -> None:
    sliced(stub)
    node = made()
    whole, gpu, *parts = node.sample()
    assert [reading.device.uuid for reading in (gpu, *parts)] == [uuid(1), "MIG-a", "MIG-b", "MIG-c"]
    assert nulls(whole) == set()
    assert nulls(gpu) == UTIL  # NVML has no utilisation in MIG mode
    for part, gib, processes in zip(parts, (40, 20, 10), (1.0, 2.0, 0.0), strict=True):
        assert nulls(part) == UTIL | BOARD
        assert part.values["memory_total_bytes"] == float(gib * GIB)
        assert part.values["memory_used_bytes"] == float(gib * GIB / 2)
        assert part.values["processes"] == processes
        # these hold for each part of the GPU as for the whole
        assert [part.values[name] for name in ("temperature_c", "sm_clock_mhz", "clock_event_reasons")] == [70.0, 1410.0, 4.0]
        assert part.values["lost"] == 0.0
    assert (gpu.values["power_w"], gpu.values["processes"]) == (400.0, 0.0)
    assert (gpu.device.energy_source, parts[0].device.energy_source) == ("counter", None)
    assert node.reader.processes() == {
        uuid(0): (), uuid(1): (), "MIG-a": ((71, 100),), "MIG-b": ((72, 5), (73, None)), "MIG-c": ()
    }  # fmt: skip


def test_the_inventory_knows_the_parent_and_the_part(stub: Stub, made: Made) -> None:
    sliced(stub)
    node = made()
    node.sample()
    facts = {facts.uuid: facts for facts in node.reader.devices()}
    assert list(facts) == [uuid(0), uuid(1), "MIG-a", "MIG-b", "MIG-c"]
    assert facts["MIG-a"].model == "NVIDIA Stub 80GB MIG a"
    assert {facts[f"MIG-{part}"].parent_uuid for part in "abc"} == {uuid(1)}
    assert facts["MIG-a"].memory_total_bytes == 40 * GIB
    assert [facts[f"MIG-{part}"].sm_share_ratio for part in "abc"] == [60 / 132, 32 / 132, 16 / 132]
    assert (facts[uuid(1)].sm_share_ratio, facts[uuid(1)].parent_uuid, facts["MIG-a"].energy_source) == (None, None, None)


def test_the_part_goes_by_slices_where_multiprocessors_are_not_told(stub: Stub, made: Made) -> None:
    sliced(stub)
    stub.set("1/0", slices=3)
    stub.fail(1, "nvmlDeviceGetGpuInstanceProfileInfoV")
    node = made()
    node.sample()
    assert node.reader.devices()[2].sm_share_ratio == 3 / 7
    node.reader.close()
    stub.fail("1/0", "nvmlDeviceGetAttributes_v2")
    node = made()
    node.sample()
    assert node.reader.devices()[2].sm_share_ratio is None


@pytest.mark.parametrize("after_s", [1.0, 31.0])
def test_the_layout_may_change(stub: Stub, made: Made, after_s: float) -> None:
    sliced(stub)
    node = made(slow_s=30)
    by_uuid(node)
    by_uuid(node)
    stub.set("1/0", uuid=None)  # taken apart
    stub.set("1/5", uuid="MIG-d", sms=16, total_bytes=10 * GIB, used_bytes=0, reserved_bytes=0)
    if after_s < 30:  # its handle is worthless, which is seen in the next sample
        gone = by_uuid(node)["MIG-a"]
        assert {name for name, value in gone.items() if value is not None} <= {
            "temperature_c", "sm_clock_mhz", "memory_clock_mhz", "clock_event_reasons", "throttle_power_s", "throttle_sync_s",
            "throttle_thermal_s", "throttle_hw_thermal_s", "throttle_brake_s", "lost", "processes"
        }  # fmt: skip
    assert list(by_uuid(node, after_s)) == [uuid(0), uuid(1), "MIG-b", "MIG-c", "MIG-d"]
    assert [facts.uuid for facts in node.reader.devices()][2:] == ["MIG-b", "MIG-c", "MIG-d"]
    assert [fault.what for fault in node.reader.faults()] == []  # nobody lost anything


def test_the_mode_may_change(stub: Stub, made: Made) -> None:
    sliced(stub)
    node = made(slow_s=30)
    assert by_uuid(node)[uuid(1)]["gpu_util_ratio"] is None
    stub.set(1, mig=0, procs="99:1")
    by_uuid(node, after_s=31)
    said = by_uuid(node)
    assert list(said) == [uuid(0), uuid(1)]
    assert (said[uuid(1)]["gpu_util_ratio"], said[uuid(1)]["processes"], said[uuid(1)]["pcie_gen"]) == (0.5, 1.0, 5.0)
    stub.set(1, mig=1)
    by_uuid(node, after_s=31)
    said = by_uuid(node)
    assert len(said) == 5
    assert (said[uuid(1)]["gpu_util_ratio"], said[uuid(1)]["processes"]) == (None, 0.0)


def test_with_its_gpu_a_mig_device_is_lost(stub: Stub, made: Made) -> None:
    sliced(stub)
    node = made()
    node.sample()
    stub.set(1, lost=1)
    said = by_uuid(node)
    assert [values["lost"] for values in said.values()] == [0.0, 1.0, 1.0, 1.0, 1.0]
    assert said["MIG-a"] == {**dict.fromkeys(said["MIG-a"]), "lost": 1.0}
    assert node.reader.processes() == {uuid(0): ()}
    assert [fault.gpu_uuid for fault in node.reader.faults()] == [uuid(1)]
    stub.set(1, lost=0)
    assert [values["lost"] for values in by_uuid(node).values()] == [0.0] * 5


def test_sentinels_of_a_mig_device_are_null(stub: Stub, made: Made) -> None:
    sliced(stub)
    stub.set("1/0", used_bytes=2**64 - 1, procs="71:18446744073709551615")
    node = made()
    assert by_uuid(node)["MIG-a"]["memory_used_bytes"] is None
    assert node.reader.processes()["MIG-a"] == ((71, None),)
    assert node.reader.refused == {"memory_used_bytes": 1}


def test_a_card_without_mig_is_not_asked_for_it_again(stub: Stub, made: Made) -> None:
    stub.fail(0, "nvmlDeviceGetMigMode")
    node = made()
    before = stub.calls("nvmlDeviceGetMigMode")
    for _ in range(3):
        assert nulls(node.one(after_s=60)) == set()
    assert stub.calls("nvmlDeviceGetMigMode") == before + 1
