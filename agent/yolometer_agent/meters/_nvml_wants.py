"""What the meter wants to know of a card, and the ways to ask for it, the best one first.

Numbers of fields are those of NVIDIA's nvml.h; they are written here and not taken from the Python binding, because they
depend on the driver that runs and not on the binding that was installed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

_MEMORY_V2 = 0x02000028  # the version and the size of the structure that the newer memory call fills
_SM, _MEMORY = 1, 2  # clocks
_CORRECTED, _UNCORRECTED, _SINCE_LOADED = 0, 1, 0  # ECC errors


class Call(NamedTuple):
    """A function of NVML for one card; `pick` takes the numbers out of what it returns."""

    function: str
    args: tuple[int, ...] = ()
    pick: Callable[[Any], tuple[float, ...]] = lambda said: (said,)


class Fields(NamedTuple):
    """Fields that one call can read together with all others; their sum is the number. `per_link`: of each NVLink."""

    ids: tuple[int, ...]
    per_link: bool = False


class Want(NamedTuple):
    """Values that are asked for together, by the names of METRICS, and the ways to ask."""

    names: tuple[str, ...]
    ways: tuple[Call | Fields, ...]


def throttle_ids(driver_version: str | None) -> tuple[int, int, int] | None:
    """The fields of the time slowed by software for heat, by hardware for heat, by hardware for power; None: it has none.

    They came as 251 to 253 with driver 575, and moved to 269 to 271 with 590, where 251 to 253 are settings of another kind.
    What a version between the known ones does is not known, so it is not asked.
    """
    major = driver_version.split(".", 1)[0] if driver_version else ""
    if not major.isdigit():
        return None
    if int(major) >= 590:
        return 269, 270, 271
    return (251, 252, 253) if 575 <= int(major) <= 580 else None


def _violation(policy: int) -> Call:
    return Call("nvmlDeviceGetViolationStatus", (policy,), lambda said: (said.violationTime,))


MEMORY = Want(
    ("memory_total_bytes", "memory_used_bytes"),
    (
        Call("nvmlDeviceGetMemoryInfo", (_MEMORY_V2,), lambda said: (said.total, said.used)),
        Call("nvmlDeviceGetMemoryInfo", (), lambda said: (said.total, said.used)),
    ),
)
ENERGY = Want(("energy_j",), (Fields((83,)), Call("nvmlDeviceGetTotalEnergyConsumption")))
POWER = Want(("power_w",), (Fields((185,)), Call("nvmlDeviceGetPowerUsage"), Fields((186,))))
"""The mean of the last second where there is one, for that is what a sample each second should say."""


def each_tick(driver_version: str | None) -> tuple[Want, ...]:
    """What is read with each sample: cheap calls only."""
    ids = throttle_ids(driver_version)
    software, hardware, brake = [(Fields((number,)),) for number in ids] if ids else [(), (), ()]
    return (
        Want(("gpu_util_ratio", "memory_util_ratio"),
             (Call("nvmlDeviceGetUtilizationRates", (), lambda said: (said.gpu, said.memory)),)),
        MEMORY,
        POWER,
        ENERGY,
        Want(("sm_clock_mhz",), (Call("nvmlDeviceGetClockInfo", (_SM,)),)),
        Want(("memory_clock_mhz",), (Call("nvmlDeviceGetClockInfo", (_MEMORY,)),)),
        Want(("temperature_c",), (Call("nvmlDeviceGetTemperature", (0,)),)),
        Want(("clock_event_reasons",),
             (Call("nvmlDeviceGetCurrentClocksEventReasons"), Call("nvmlDeviceGetCurrentClocksThrottleReasons"))),
        Want(("throttle_power_s",), (Fields((74,)), _violation(0))),
        Want(("throttle_sync_s",), (Fields((76,)), _violation(2))),
        Want(("throttle_thermal_s",), (*software, Fields((75,)), _violation(1))),
        Want(("throttle_hw_thermal_s",), hardware),
        Want(("throttle_brake_s",), brake),
    )  # fmt: skip


NOW_AND_THEN: tuple[Want, ...] = (
    Want(("power_limit_w",), (Call("nvmlDeviceGetEnforcedPowerLimit"),)),
    Want(("pcie_gen",), (Call("nvmlDeviceGetCurrPcieLinkGeneration"),)),
    Want(("pcie_width",), (Call("nvmlDeviceGetCurrPcieLinkWidth"),)),
    Want(("pcie_replays",), (Fields((94,)), Call("nvmlDeviceGetPcieReplayCounter"))),
    Want(("ecc_corrected",), (Fields((3,)), Call("nvmlDeviceGetTotalEccErrors", (_CORRECTED, _SINCE_LOADED)))),
    Want(("ecc_uncorrected",), (Fields((4,)), Call("nvmlDeviceGetTotalEccErrors", (_UNCORRECTED, _SINCE_LOADED)))),
    # errors of checksums, replays and recoveries: of all links together, of each, and as NVLink 5 counts them
    Want(("nvlink_errors",), (Fields((38, 45, 52, 59)), Fields((161, 162, 163), True), Fields((208, 215), True))),
)
"""What changes rarely or costs more. The throughput of PCIe is not here: drivers take 20 ms to measure it."""

OF_THE_SLICE = ("sm_clock_mhz", "memory_clock_mhz", "temperature_c", "clock_event_reasons", "throttle_power_s",
                "throttle_sync_s", "throttle_thermal_s", "throttle_hw_thermal_s", "throttle_brake_s")  # fmt: skip
"""What is true of each part of a GPU when it is true of the whole."""

NAMES = (*(name for want in (*each_tick(None), *NOW_AND_THEN) for name in want.names), "processes")
"""All names that a reading of this meter has, beside `lost`."""


__all__ = ["ENERGY", "MEMORY", "NAMES", "NOW_AND_THEN", "OF_THE_SLICE", "POWER", "Call", "Fields", "Want", "each_tick",
           "throttle_ids"]  # fmt: skip
