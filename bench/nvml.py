"""What the NVML meter costs: CPU of one sample, and seconds of each call, on the stub of the tests (no driver behind it).

    .venv/bin/python bench/nvml.py [--gpus 8] [--seconds 20] [--period 1.0] [--processes 1]

The meter samples as the agent has it do: once in a period, asleep between, process lists and slow reads at their own pace,
so caches are cold as they are in life. CPU is user and system time of the whole process, all threads, less that of a process
which only sleeps. Below that, each function of NVML: calls, mean and longest time of a call, through the Python binding.

Demanded: below 0.5 % of a core.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import resource
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

from _child import verdict

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from _nvml_stub import CONTROL, Stub  # found on the path above

from yolometer_agent.meters.nvml import Nvml

DEMANDED_PERCENT = 0.5
WARM_SAMPLES = 3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--gpus", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--period", type=float, default=1.0)
    parser.add_argument("--processes", type=int, default=1, help="on each GPU")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        stub = Stub(Path(folder), gpus=asked.gpus)
        stub.set("all", procs=",".join(f"{os.getpid() + at}:{2**30}" for at in range(asked.processes)))
        os.environ[CONTROL] = str(stub.control)
        begun = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        with contextlib.closing(Nvml(library=stub.library)) as meter:
            samples, cpu_s = measured(meter, asked.seconds, asked.period)
            report(meter, samples, cpu_s, asked.period, begun)


def measured(meter: Nvml, seconds: float, period_s: float) -> tuple[int, float]:
    """Sample for so long; returns the samples and their CPU seconds."""
    for _ in range(WARM_SAMPLES):
        meter.sample(datetime.now(UTC))
    samples, began_s, cpu_s = 0, time.monotonic(), time.process_time()
    while (passed_s := time.monotonic() - began_s) < seconds:
        time.sleep(max(0.0, samples * period_s - passed_s))
        readings = meter.sample(datetime.now(UTC))
        assert all(reading.values["power_w"] is not None for reading in readings)
        samples += 1
    return samples, time.process_time() - cpu_s


def report(meter: Nvml, samples: int, cpu_s: float, period_s: float, before_mib: float) -> None:
    """Print it."""
    peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    percent = 100 * cpu_s / samples / period_s
    print(f"{samples} samples of {len(meter.devices())} GPUs, each {period_s:g} s: {1e6 * cpu_s / samples:.0f} us CPU a sample,"
          f" {percent:.3f} % of a core; {verdict(percent, DEMANDED_PERCENT, at_most=True)}")  # fmt: skip
    print(f"memory: {peak_mib - before_mib:.1f} MiB for the binding, the library and the cards\n")
    print(f"{'function':46} {'calls':>7} {'a sample':>9} {'mean us':>8} {'longest us':>11}")
    for name, (calls, seconds, longest_s) in sorted(meter.call_seconds.items(), key=lambda item: -item[1][1]):
        each = calls / (samples + WARM_SAMPLES)
        print(f"{name:46} {calls:7} {each:9.2f} {1e6 * seconds / calls:8.1f} {1e6 * longest_s:11.1f}")


if __name__ == "__main__":
    main()
