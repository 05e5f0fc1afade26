"""The host's CPU, memory, disk and network: rates from counters, from a folder of files, and on the host that runs the test."""

from __future__ import annotations

import os
from pathlib import Path

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from yolometer_agent.meters.host import Counters, Host, disk_of, reading

NOTHING = Counters(0.0)


class Files:
    """A host as files: /proc and /sys of a test."""

    def __init__(self, folder: Path) -> None:
        self.proc, self.system = folder / "proc", folder / "sys"
        (self.proc / "net").mkdir(parents=True)
        device = folder.stat().st_dev
        (self.system / "devices" / "sdz1").mkdir(parents=True)
        (self.system / "dev" / "block").mkdir(parents=True)
        (self.system / "dev" / "block" / f"{os.major(device)}:{os.minor(device)}").symlink_to(self.system / "devices" / "sdz1")
        (self.proc / "meminfo").write_text(
            "MemTotal: 1000 kB\nMemFree: 100 kB\nMemAvailable: 600 kB\nBuffers: 10 kB\nCached: 20 kB\nShmem: 1 kB\n"
            "Active: 1 kB\nInactive: 1 kB\nSlab: 1 kB\nSReclaimable: 1 kB\n"
        )

    def hardware(self, nic: str) -> None:
        (self.system / "class" / "net" / nic / "device").mkdir(parents=True)

    def write(self, ticks: str, disk: tuple[int, int, int], network: dict[str, tuple[int, int]]) -> None:
        """CPU in ticks, the disk's sectors read and written and its busy ms, bytes received and sent of each interface."""
        (self.proc / "stat").write_text(f"cpu  {ticks}\ncpu0 {ticks}\nbtime 1\n")
        read, written, busy_ms = disk
        (self.proc / "diskstats").write_text(
            "   8  16 sdy 9 9 9 9 9 9 9 9 9 9 9\n"
            f"   8  33 sdz1 1 0 {read} 5 1 0 {written} 5 0 {busy_ms} 5\n"
        )  # fmt: skip
        rows = "".join(f"{nic}: {got} 1 0 0 0 0 0 0 {sent} 1 0 0 0 0 0 0\n" for nic, (got, sent) in network.items())
        (self.proc / "net" / "dev").write_text(f"Inter-| Receive | Transmit\n face |bytes |bytes\n{rows}")


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Files:
    made = Files(tmp_path)
    monkeypatch.setattr(psutil, "PROCFS_PATH", str(made.proc))
    return made


def test_rates_of_a_host(files: Files, tmp_path: Path) -> None:
    files.hardware("eth0")
    clock = iter([100.0, 102.0])
    host = Host(tmp_path, clock=lambda: next(clock), system=files.system)
    # user nice system idle iowait irq softirq steal guest guest_nice
    files.write("1000 0 0 5000 100 0 0 0 500 0", (0, 0, 0), {"lo": (7, 7), "eth0": (1000, 50), "docker0": (9, 9)})
    first = host.read()
    assert (first.memory_total_bytes, first.memory_used_bytes, first.disk) == (1000 * 1024, 400 * 1024, "sdz1")
    assert [first[at] for at in (0, 1, 5, 6, 7, 8, 9)] == [None] * 7
    network = {"lo": (9999, 9999), "eth0": (5000, 250), "docker0": (999, 9)}
    files.write("1050 0 10 5100 140 0 0 0 600 0", (2048, 4096, 500), network)
    second = host.read()
    assert second.cpu_ratio == pytest.approx(60 / 200)
    assert second.iowait_ratio == pytest.approx(40 / 200)
    assert (second.disk_read_bytes_per_s, second.disk_write_bytes_per_s) == (2048 * 512 / 2, 4096 * 512 / 2)
    assert second.disk_busy_ratio == pytest.approx(0.25)
    assert (second.network_received_bytes_per_s, second.network_sent_bytes_per_s) == (2000.0, 100.0)


def test_without_hardware_all_interfaces_but_the_loopback_count(files: Files) -> None:
    clock = iter([1.0, 2.0])
    host = Host(clock=lambda: next(clock), system=files.system)
    files.write("1 0 0 1 0 0 0 0 0 0", (0, 0, 0), {"lo": (0, 0), "eth0": (0, 0), "net1": (0, 0)})
    host.read()
    files.write("2 0 0 2 0 0 0 0 0 0", (0, 0, 0), {"lo": (50, 50), "eth0": (3, 2), "net1": (30, 20)})
    said = host.read()
    assert (said.network_received_bytes_per_s, said.network_sent_bytes_per_s) == (33.0, 22.0)
    assert (said.disk, said.disk_busy_ratio) == (None, None)  # no folder was named


def test_what_a_kernel_does_not_tell_is_null(files: Files, tmp_path: Path) -> None:
    (files.proc / "meminfo").unlink()
    said = Host(tmp_path / "missing", system=files.system).read()
    assert tuple(said) == (None,) * 10
    assert disk_of(tmp_path, tmp_path / "nowhere") is None


def test_the_host_of_this_test(tmp_path: Path) -> None:
    host = Host(tmp_path)
    host.read()
    sum(range(3_000_000))
    said = host.read()
    assert said.cpu_ratio is None or 0 <= said.cpu_ratio <= 1
    assert said.memory_total_bytes is not None
    assert said.memory_used_bytes is not None
    assert 2**20 < said.memory_used_bytes < said.memory_total_bytes
    for rate in said[5:]:
        assert rate is None or (isinstance(rate, float) and rate >= 0)


def test_a_counter_that_went_back_is_null_once() -> None:
    before = Counters(10.0, 100.0, 50.0, 5.0, 1, 2, "sda", 1000, 1000, 5.0, 1000, 1000)
    said = reading(before, before._replace(at_s=11.0, cpu_s=110.0, idle_s=40.0, read_bytes=0, received_bytes=1))
    assert (said.cpu_ratio, said.disk_read_bytes_per_s, said.network_received_bytes_per_s) == (None, None, None)
    assert (said.disk_write_bytes_per_s, said.network_sent_bytes_per_s, said.iowait_ratio) == (0.0, 0.0, 0.0)


def test_another_disk_or_no_time_gives_no_rate() -> None:
    before = Counters(10.0, disk="sda", read_bytes=10, written_bytes=10, busy_s=1.0, sent_bytes=1)
    said = reading(before, before._replace(at_s=11.0, disk="sdb", read_bytes=500))
    assert (said.disk, said.disk_read_bytes_per_s, said.disk_busy_ratio) == ("sdb", None, None)
    assert said.network_sent_bytes_per_s == 0.0
    assert reading(before, before).network_sent_bytes_per_s is None


SOME = st.none() | st.integers(0, 2**50)
TIME = st.none() | st.floats(0, 1e9)
DISK = st.sampled_from([None, "a", "b"])
COUNTERS = st.builds(Counters, st.floats(0, 1e9), TIME, TIME, TIME, SOME, SOME, DISK, SOME, SOME, TIME, SOME, SOME)


@given(st.none() | COUNTERS, COUNTERS)
def test_rates_are_never_negative_and_ratios_never_beyond_one(before: Counters | None, now: Counters) -> None:
    said = reading(before, now)
    for ratio in (said.cpu_ratio, said.iowait_ratio, said.disk_busy_ratio):
        assert ratio is None or 0 <= ratio <= 1
    for rate in said[5:]:
        assert rate is None or rate >= 0
