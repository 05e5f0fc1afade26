"""What goes wrong under the NVML meter: lost GPUs, calls that hang, drivers that come and go, indices that change, XID errors."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from _nvml_node import Made, Node, nulls, uuid
from _nvml_stub import Stub

from yolometer_agent.meters._base import Reading
from yolometer_agent.meters._nvml_words import Fault, xid_words
from yolometer_core.errors import Unavailable


def whats(node: Node) -> list[tuple[str, str | None]]:
    return [(fault.what, fault.gpu_uuid) for fault in node.reader.faults()]


def seeing(node: Node) -> Sequence[Reading]:
    """The first sample that can be taken again."""
    until_s = time.monotonic() + 10
    while True:
        try:
            readings: Sequence[Reading] = node.sample()
            return readings
        except Unavailable:
            assert time.monotonic() < until_s
            time.sleep(0.02)


def test_one_lost_gpu_does_not_cost_the_others_their_sample(stub: Stub, made: Made) -> None:
    """B4: 8 GPUs, one of them lost from 30 s to 60 s, a sample each 10 s."""
    stub.set("node", gpus=8)
    stub.set(3, procs="71:1")
    node = made()
    good_s, lost_rows = 0, []
    for at_s in range(0, 60, 10):
        stub.set(3, lost=int(30 <= at_s < 60))
        readings = node.sample(after_s=10)
        assert [reading.device.uuid for reading in readings] == [uuid(gpu) for gpu in range(8)]
        good_s += 10 * sum(reading.values["lost"] == 0.0 and not nulls(reading) for reading in readings)
        lost_rows += [reading for reading in readings if reading.values["lost"] == 1.0]
    assert good_s == 7 * 60 + 30
    assert [row.device.uuid for row in lost_rows] == [uuid(3)] * 3
    for row in lost_rows:
        assert {name: value for name, value in row.values.items() if value is not None} == {"lost": 1.0}
        assert row.device.model == "NVIDIA Stub 80GB"
    assert whats(node) == [("lost", uuid(3))]
    assert uuid(3) not in node.reader.processes()
    assert len(node.reader.devices()) == 8
    stub.set(3, lost=0)
    assert nulls(node.sample(after_s=1)[3]) == set()
    assert whats(node) == [("back", uuid(3))]
    assert node.reader.processes()[uuid(3)] == ((71, 1),)


def test_a_gpu_that_waits_for_a_reset_is_lost(stub: Stub, made: Made) -> None:
    node = made()
    node.sample()
    stub.fail(0, "*", 16)
    assert node.one().values["lost"] == 1.0
    (fault,) = node.reader.faults()
    assert (fault.what, fault.gpu_uuid, fault.xid) == ("lost", uuid(0), None)
    assert fault.detail


def test_a_field_can_tell_that_a_gpu_is_lost(stub: Stub, made: Made) -> None:
    node = made()
    stub.fail_field(0, 83, 15)
    assert node.one().values["lost"] == 1.0


def test_a_lost_gpu_is_found_again_behind_a_new_handle(stub: Stub, made: Made) -> None:
    stub.set("node", gpus=2)
    stub.set(1, sticky=1)  # an old handle stays lost
    node = made(reopen_s=60)
    node.sample()
    stub.set(1, lost=1)
    assert node.sample()[1].values["lost"] == 1.0
    assert [reading.values["lost"] for reading in node.sample(after_s=61)] == [0.0, 1.0]  # opened anew; it is not listed
    stub.set(1, lost=0)
    assert [reading.values["lost"] for reading in node.sample()] == [0.0, 1.0]
    before, after = (node.sample(after_s=s)[1] for s in (30, 60))
    assert (before.values["lost"], after.values["lost"]) == (1.0, 0.0)
    assert nulls(after) == set()
    assert whats(node) == [("lost", uuid(1)), ("back", uuid(1))]
    opened = stub.calls("nvmlInitWithFlags")
    node.sample(after_s=600)
    assert stub.calls("nvmlInitWithFlags") == opened  # nobody is lost


def test_a_gpu_that_was_lost_before_anybody_knew_it(stub: Stub, made: Made) -> None:
    stub.set("node", gpus=3)
    stub.set(1, lost=1)
    node = made(reopen_s=60)
    assert [reading.device.uuid for reading in node.sample()] == [uuid(0), uuid(2)]
    assert whats(node) == [("lost", None)]
    node.sample(after_s=61)
    assert whats(node) == []  # said once
    stub.set(1, lost=0)
    assert {reading.device.uuid for reading in node.sample(after_s=61)} == {uuid(0), uuid(1), uuid(2)}


def test_a_handle_that_answers_nothing_is_taken_anew(stub: Stub, made: Made) -> None:
    node = made(reopen_s=60)
    node.sample()
    stub.fail(0, "*", 2)
    mute = node.one()
    assert nulls(mute) == set(mute.values) - {"lost"}  # nothing is repeated either
    opened = stub.calls("nvmlInitWithFlags")
    stub.fail(0, "nvmlDeviceGetUUID", 0)
    node.sample(after_s=61)
    assert stub.calls("nvmlInitWithFlags") == opened + 1
    stub.fail(0, "*", None)
    assert nulls(node.one()) == set()
    assert whats(node) == []  # nobody said that it was lost


def test_a_call_that_hangs_makes_the_meter_blind_and_nothing_is_repeated(stub: Stub, made: Made) -> None:
    stub.set("node", gpus=8)
    stub.set(5, util=11)
    node = made(hung_s=0.5)
    node.sample()
    stub.set(5, hang="nvmlDeviceGetTemperature")
    begun_s = time.monotonic()
    with pytest.raises(Unavailable, match=r"NVML does not answer.*; look for NVRM in dmesg"):
        node.sample()
    assert 0.4 < time.monotonic() - begun_s < 3.0
    for _ in range(3):  # it is still in that call: nobody waits for it again
        begun_s = time.monotonic()
        with pytest.raises(Unavailable):
            node.sample()
        assert time.monotonic() - begun_s < 0.4
    assert whats(node) == [("blind", None)]
    assert node.reader.processes() == {}
    assert len(node.reader.devices()) == 8  # what they are is still known
    stub.set(5, hang=None, util=77)
    assert seeing(node)[5].values["gpu_util_ratio"] == 0.77  # and not what that call came back with
    assert whats(node) == [("seeing", None)]


def test_a_meter_that_hangs_can_be_closed(stub: Stub, made: Made) -> None:
    node = made(hung_s=0.2)
    node.sample()
    stub.set(0, hang="nvmlDeviceGetClockInfo")
    with pytest.raises(Unavailable):
        node.sample()
    begun_s = time.monotonic()
    node.reader.close()
    assert time.monotonic() - begun_s < 2.0


def test_the_driver_may_come_and_go(stub: Stub, made: Made) -> None:
    stub.set("node", gpus=2, driver=0)
    node = made()
    with pytest.raises(Unavailable, match=r"The NVIDIA driver is not loaded; load it \(modprobe nvidia\)"):
        node.sample()
    stub.set("node", driver=1)
    with pytest.raises(Unavailable, match="not loaded"):
        node.sample(after_s=0.5)  # it is not tried at each tick
    assert len(node.sample()) == 2
    assert whats(node) == [("blind", None), ("seeing", None)]
    stub.set("node", driver=0)
    with pytest.raises(Unavailable, match="The NVIDIA driver went away; load it again"):
        node.sample()
    for after_s in (2, 4, 8, 16, 31, 31):
        with pytest.raises(Unavailable, match="not loaded"):
            node.sample(after_s)
    tries = stub.calls("nvmlInitWithFlags")
    for _ in range(29):
        with pytest.raises(Unavailable):
            node.sample()
    assert stub.calls("nvmlInitWithFlags") == tries  # ever more rarely, but at least each half minute
    stub.set("node", driver=1, boot=2)
    assert [nulls(reading) for reading in node.sample(after_s=2)] == [set(), set()]
    assert whats(node) == [("blind", None), ("seeing", None)]


def test_after_a_reload_the_same_gpus_have_other_indices_and_handles(stub: Stub, made: Made) -> None:
    stub.set("node", gpus=3)
    for gpu in range(3):
        stub.set(gpu, power_mw=100_000 * (gpu + 1), energy_mj=10**9)
    node = made()
    watts = {reading.device.uuid: reading.values["power_w"] for reading in node.sample()}
    stub.set("node", boot=2, order="2,0,1")
    stub.set("all", energy_mj=None)
    for gpu in range(3):
        stub.set(gpu, energy_mj=5)
    with pytest.raises(Unavailable):
        node.sample()
    readings = node.sample(after_s=2)
    assert {reading.device.uuid: reading.values["power_w"] for reading in readings} == watts
    assert [reading.device.uuid for reading in readings] == [uuid(0), uuid(1), uuid(2)]  # in the order they were first seen
    assert [facts.gpu_index for facts in node.reader.devices()] == [1, 2, 0]
    assert [nulls(reading) for reading in readings] == [set()] * 3  # its counter began again: that is no error
    assert node.reader.refused == {}


def test_a_gpu_that_is_missing_after_a_reload_is_lost(stub: Stub, made: Made) -> None:
    stub.set("node", gpus=3)
    node = made(reopen_s=60)
    node.sample()
    stub.set("node", boot=2, order="0,2")
    with pytest.raises(Unavailable):
        node.sample()
    assert [reading.values["lost"] for reading in node.sample(after_s=2)] == [0.0, 1.0, 0.0]
    assert [fault for fault in whats(node) if fault[1]] == [("lost", uuid(1))]
    stub.set("node", order=None)
    assert [reading.values["lost"] for reading in node.sample(after_s=61)] == [0.0, 0.0, 0.0]


@pytest.mark.parametrize(
    ("code", "said"),
    [(18, r"of different versions, as after an update; reboot the node"), (4, "give the user of the agent access to /dev/nvidia"),
     (999, r"could not be opened \(.+\); see what nvidia-smi says")],
)  # fmt: skip
def test_why_it_cannot_be_opened(stub: Stub, made: Made, code: int, said: str) -> None:
    stub.set("node", init=code)
    node = made()
    with pytest.raises(Unavailable, match=said):
        node.sample()
    stub.set("node", init=0)
    assert len(node.sample(after_s=2)) == 1


LATE_LIBRARY = """
import sys, time
from pathlib import Path
from yolometer_agent.meters.nvml import Nvml
from yolometer_core.errors import Unavailable
named = len(sys.argv) > 1
meter = Nvml(library=sys.argv[1] if named else None)
def sample():
    try:
        return len(meter.sample(None))
    except Unavailable as error:
        return str(error)
print(sample(), flush=True)
input()
time.sleep(1.1)
print(sample(), flush=True)
meter.close()
"""


@pytest.mark.parametrize("named", [False, True])
def test_the_library_may_come_later(stub: Stub, tmp_path: Path, named: bool) -> None:
    folder = tmp_path / "driver"
    folder.mkdir()
    file = folder / "libnvidia-ml.so.1"
    command = [sys.executable, "-c", LATE_LIBRARY, *([str(file)] if named else [])]
    environment = {**os.environ, "LD_LIBRARY_PATH": "" if named else str(folder)}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment) as child:
        assert child.stdout is not None
        assert child.stdin is not None
        first = child.stdout.readline()
        shutil.copy(stub.library, file)
        child.stdin.write("\n")
        child.stdin.flush()
        second = child.stdout.readline()
    assert child.returncode == 0
    if named:
        assert first.startswith(f"The library {file} of meters.nvml.library cannot be loaded")
    else:
        assert first.startswith("There is no libnvidia-ml.so.1 here; install the NVIDIA driver")
    assert second == "1\n"


def test_xid_errors(stub: Stub, made: Made) -> None:
    stub.set("node", gpus=4)
    node = made()
    node.sample()
    stub.xid(2, 79)
    stub.xid(1, 31)
    begun_s = time.monotonic()
    node.sample()
    assert time.monotonic() - begun_s < 2.0  # nobody waits for an event
    found = node.reader.faults()
    assert sorted(found, key=lambda fault: fault.xid or 0) == [
        Fault("xid", uuid(1), 31, "the program used memory that is not its own"),
        Fault("xid", uuid(2), 79, "the GPU has fallen off the bus"),
    ]
    node.sample()
    assert node.reader.faults() == []
    stub.xid(2, 79)  # the same again is another event
    stub.set(2, lost=1)  # and the GPU is lost by it
    node.sample()
    assert sorted(whats(node)) == [("lost", uuid(2)), ("xid", uuid(2))]
    assert xid_words(12345) == ""


def test_a_gpu_without_events_costs_the_others_nothing(stub: Stub, made: Made) -> None:
    stub.set("node", gpus=2)
    stub.fail(0, "nvmlDeviceRegisterEvents")
    node = made()
    node.sample()
    stub.xid(0, 13)
    stub.xid(1, 13)
    node.sample()
    assert whats(node) == [("xid", uuid(1))]
