"""The DCGM meter on pages that a real HTTP server gives, in the form of dcgm-exporter."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from yolometer_agent.meters._base import Meter
from yolometer_agent.meters._dcgm_page import FOUND
from yolometer_agent.meters._nvml_values import UNITS
from yolometer_agent.meters._nvml_words import Fault
from yolometer_agent.meters.dcgm import METER, Dcgm
from yolometer_core.errors import Unavailable

NOW = datetime(2026, 12, 1, 12, tzinfo=UTC)
GIB = 2**30


class Page(HTTPServer):
    """A page that a test sets."""

    text, status, location = b"", 200, ""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/metrics"


class _Handler(BaseHTTPRequestHandler):
    server: Page

    def do_GET(self) -> None:
        self.send_response(self.server.status)
        if self.server.location:
            self.send_header("Location", self.server.location)
        self.send_header("Content-Length", str(len(self.server.text)))
        self.end_headers()
        self.wfile.write(self.server.text)

    def log_message(self, *_: object) -> None:
        """Be silent."""


@pytest.fixture
def page() -> Iterator[Page]:
    with Page(("127.0.0.1", 0), _Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def lines(gpu: int, more: str = "", **fields: object) -> str:
    """The lines of one GPU as the exporter writes them."""
    labels = (f'gpu="{gpu}",UUID="GPU-{gpu}",pci_bus_id="00000000:0{gpu + 1}:00.0",device="nvidia{gpu}",'
              f'modelName="NVIDIA H100 80GB HBM3",Hostname="n"{more}')  # fmt: skip
    return "".join(f"# HELP DCGM_FI_{field} {field}.\n# TYPE DCGM_FI_{field} gauge\nDCGM_FI_{field}{{{labels}}} {value}\n"
                   for field, value in fields.items())  # fmt: skip


FULL = {
    "DEV_GPU_UTIL": 87, "DEV_MEM_COPY_UTIL": 40, "DEV_FB_USED": 30720, "DEV_FB_FREE": 50176, "DEV_FB_RESERVED": 1024,
    "DEV_POWER_USAGE": "412.345000", "DEV_ENFORCED_POWER_LIMIT": 700, "DEV_TOTAL_ENERGY_CONSUMPTION": 123456789,
    "DEV_SM_CLOCK": 1755, "DEV_MEM_CLOCK": 2619, "DEV_GPU_TEMP": 61, "DEV_CLOCKS_EVENT_REASONS": 4,
    "DEV_POWER_VIOLATION": 2500000000, "DEV_THERMAL_VIOLATION": 1000000000, "DEV_SYNC_BOOST_VIOLATION": 0,
    "DEV_PCIE_LINK_GEN": 5, "DEV_PCIE_LINK_WIDTH": 16, "DEV_PCIE_REPLAY_COUNTER": 3, "DEV_ECC_SBE_VOL_TOTAL": 7,
    "DEV_ECC_DBE_VOL_TOTAL": 1, "DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL": 2, "DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL": 3,
    "PROF_GR_ENGINE_ACTIVE": "0.5", "PROF_DRAM_ACTIVE": "0.25", "DEV_XID_ERRORS": 0,
}  # fmt: skip


def values(page: Page, text: str, meter: Dcgm | None = None) -> dict[str, float | None]:
    page.text = text.encode()
    (reading,) = (meter or Dcgm(url=page.url)).sample(NOW)
    return dict(reading.values)


def test_it_reads_a_whole_page(page: Page) -> None:
    version = ',DCGM_FI_DRIVER_VERSION="580.65.06"'
    page.text = ("# some text\ngo_goroutines 7\n" + lines(0, version, **FULL) + lines(1, version, DEV_GPU_UTIL=0)).encode()
    meter = Dcgm(url=page.url)
    assert isinstance(meter, Meter)
    assert METER is Dcgm
    first, second = meter.sample(NOW)
    assert dict(first.values) == {
        "gpu_util_ratio": 0.87, "memory_util_ratio": 0.4, "memory_used_bytes": 30.0 * GIB, "memory_total_bytes": 80.0 * GIB,
        "power_w": pytest.approx(412.345), "power_limit_w": 700.0, "energy_j": 123456.789, "sm_clock_mhz": 1755.0,
        "memory_clock_mhz": 2619.0, "temperature_c": 61.0, "clock_event_reasons": 4.0, "throttle_power_s": 2.5,
        "throttle_thermal_s": 1.0, "throttle_sync_s": 0.0, "pcie_gen": 5.0, "pcie_width": 16.0, "pcie_replays": 3.0,
        "ecc_corrected": 7.0, "ecc_uncorrected": 1.0, "nvlink_errors": 5.0,
    }  # fmt: skip
    assert set(first.values) == set(FOUND) <= set(UNITS)
    assert {name: value for name, value in second.values.items() if value is not None} == {"gpu_util_ratio": 0.0}
    assert [(reading.device.uuid, reading.device.energy_source) for reading in (first, second)] == [
        ("GPU-0", "counter"), ("GPU-1", None)
    ]  # fmt: skip
    assert meter.devices()[0][:] == ("GPU-0", "NVIDIA H100 80GB HBM3", None, None, 80 * GIB, "580.65.06", "00000000:01:00.0", 0,
                                     "counter")  # fmt: skip
    assert (meter.refused, meter.faults()) == ({}, [])


def test_profiling_stands_in_where_there_is_no_utilisation(page: Page) -> None:
    said = values(page, lines(0, PROF_GR_ENGINE_ACTIVE="0.981", PROF_DRAM_ACTIVE="0.5", PROF_SM_ACTIVE="0.7"))
    assert said["gpu_util_ratio"] == pytest.approx(0.981)
    assert said["memory_util_ratio"] == 0.5


BLANKS = ("2147483632", "2147483634", "9223372036854775794", "9.223372036854776e+18", "140737488355330.000000", "NaN", "+Inf")


@pytest.mark.parametrize("blank", BLANKS)
def test_blanks_are_null(page: Page, blank: str) -> None:
    said = values(page, lines(0, **{**dict.fromkeys(FULL, blank), "DEV_GPU_TEMP": 40}))
    assert {name: value for name, value in said.items() if value is not None} == {"temperature_c": 40.0}


def test_a_blank_of_one_way_leaves_the_other(page: Page) -> None:
    said = values(page, lines(0, DEV_GPU_UTIL="9223372036854775794", PROF_GR_ENGINE_ACTIVE="0.25"))
    assert said["gpu_util_ratio"] == 0.25


def test_a_long_time_of_throttling_is_no_blank(page: Page) -> None:
    # 2^47 as a whole number of nanoseconds are 39 hours
    assert values(page, lines(0, DEV_POWER_VIOLATION=200 * 3600 * 10**9))["throttle_power_s"] == 200 * 3600.0


def test_the_impossible_is_null_and_counted(page: Page) -> None:
    meter = Dcgm(url=page.url)
    said = values(page, lines(0, DEV_GPU_UTIL=140, DEV_GPU_TEMP=-5, DEV_POWER_USAGE=99999, DEV_SM_CLOCK=900), meter)
    assert {name: value for name, value in said.items() if value is not None} == {"sm_clock_mhz": 900.0}
    assert meter.refused == {"gpu_util_ratio": 1, "temperature_c": 1, "power_w": 1}


def test_counters_that_begin_again_are_null_once(page: Page) -> None:
    meter = Dcgm(url=page.url)
    said = [values(page, lines(0, DEV_TOTAL_ENERGY_CONSUMPTION=mj), meter)["energy_j"] for mj in (5000, 6000, 10, 20)]
    assert said == [5.0, 6.0, None, 0.02]
    assert meter.devices()[0].energy_source == "counter"


def test_a_gpu_in_mig_mode_gives_what_is_of_the_whole(page: Page) -> None:
    parts = "".join(lines(0, f',GPU_I_PROFILE="1g.10gb",GPU_I_ID="{part}"', DEV_FB_USED=part, PROF_GR_ENGINE_ACTIVE="0.5",
                          DEV_POWER_USAGE=300, DEV_GPU_TEMP=50) for part in (7, 8))  # fmt: skip
    said = values(page, parts)
    assert {name: value for name, value in said.items() if value is not None} == {"power_w": 300.0, "temperature_c": 50.0}


def test_a_gpu_that_several_pods_share_is_one_gpu(page: Page) -> None:
    said = values(page, "".join(lines(0, f',pod="{pod}"', DEV_GPU_UTIL=30) for pod in "ab"))
    assert said["gpu_util_ratio"] == 0.3


def test_a_bad_line_costs_the_others_nothing(page: Page) -> None:
    meter = Dcgm(url=page.url)
    bad = 'DCGM_FI_DEV_SM_CLOCK{gpu="0",UUID="GPU-0" 900\nDCGM_FI_DEV_MEM_CLOCK{UUID="GPU-0"} many\nDCGM_FI_DEV_GPU_TEMP\n'
    said = values(page, bad + 'DCGM_FI_DEV_GPU_TEMP{nvswitch="1"} 3\n' + lines(0, DEV_GPU_UTIL=30), meter)
    assert {name: value for name, value in said.items() if value is not None} == {"gpu_util_ratio": 0.3}
    assert meter.refused == {"line": 3}


def test_an_xid_error_is_told_when_it_comes(page: Page) -> None:
    meter = Dcgm(url=page.url)
    for xid in (13, 13, 79, 79, 0, 31):  # the first stood there before
        values(page, lines(0, DEV_XID_ERRORS=xid), meter)
    assert meter.faults() == [
        Fault("xid", "GPU-0", 79, "the GPU has fallen off the bus"),
        Fault("xid", "GPU-0", 31, "the program used memory that is not its own"),
    ]
    assert meter.faults() == []


@pytest.mark.parametrize("text", ["", "<html>no</html>", "up 1\n", "# HELP DCGM_FI_DEV_GPU_UTIL x\n"])
def test_a_page_without_gpus(page: Page, text: str) -> None:
    page.text = text.encode()
    with pytest.raises(Unavailable, match=r"names no GPU; correct meters.dcgm.url"):
        Dcgm(url=page.url).sample(NOW)


def test_no_page(page: Page) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        with pytest.raises(Unavailable, match=r"cannot be read \(.*refused.*\); start dcgm-exporter"):
            Dcgm(url=f"http://127.0.0.1:{taken.getsockname()[1]}/metrics").sample(NOW)
    page.status = 503
    with pytest.raises(Unavailable, match="was refused with 503"):
        Dcgm(url=page.url).sample(NOW)


def test_it_is_not_led_to_another_address(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")  # nor asked of a proxy
    page.status, page.location = 302, "http://example.com/metrics"
    with pytest.raises(Unavailable, match="was refused with 302"):
        Dcgm(url=page.url).sample(NOW)


def test_a_page_that_breaks_off_or_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("yolometer_agent.meters.dcgm._LIMIT_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as server:
        meter = Dcgm(url=f"http://127.0.0.1:{server.getsockname()[1]}/metrics")
        begun_s = time.monotonic()
        with pytest.raises(Unavailable, match="cannot be read"):
            meter.sample(NOW)  # nobody accepts it
        assert time.monotonic() - begun_s < 2.0

        def broken() -> None:
            while True:
                connection, _ = server.accept()
                with connection:
                    if connection.recv(4096):
                        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\nDCGM_FI")
                        return

        thread = threading.Thread(target=broken)
        thread.start()
        with pytest.raises(Unavailable, match=r"cannot be read|names no GPU"):
            meter.sample(NOW)
        thread.join(5)


@pytest.mark.parametrize("url", ["http://10.0.0.1:9400/metrics", "https://127.0.0.1/", "file:///etc/passwd", "127.0.0.1:94", ""])
def test_only_a_page_of_this_node(url: str) -> None:
    with pytest.raises(ValueError, match="it must begin with http:// and name this node"):
        Dcgm(url=url)
