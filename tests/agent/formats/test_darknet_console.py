"""darknet: iterations without epochs, several GPUs, random sizes, mAP, a crash and a restart."""

from __future__ import annotations

import math

import pytest
from _cut import CASES, facts_of, fields, learned

from yolometer_agent.formats.darknet_console import FORMAT
from yolometer_core.events import Evaluation, Incident, Progress, Setting


def test_a_run_on_the_cpu() -> None:
    facts = facts_of(FORMAT, (CASES / "darknet_console" / "v4-cpu.log").read_bytes())
    settings = learned(facts, Setting)
    assert (settings["model"], settings["batch"], settings["iterations_planned"], settings["gflops"]) == ("t", 8, 40, 0.362)
    assert (settings["height_px"], settings["width_px"], settings["started"]) == (96, 96, True)
    assert "gpus" not in settings
    last = fields(facts, Progress)[-1]
    assert (last["epoch"], last["iterations_done"], last["iterations_total"], last["images"]) == (None, 40, 40, 320)
    assert last["train_s"] == pytest.approx(32.0, abs=0.1)
    assert math.isnan(last["losses"][0])
    assert [incident["what"] for incident in fields(facts, Incident)] == ["completed"]


def test_gpus_sizes_evaluation_crash_and_restart() -> None:
    facts = facts_of(FORMAT, (CASES / "darknet_console" / "gpus-map-resize.log").read_bytes(), range(99))
    settings = learned(facts, Setting)
    assert (settings["batch"], settings["gpus"], settings["gpu_model"]) == (128, 2, "GeForce RTX 2080 Ti")
    assert (settings["height_px"], settings["width_px"]) == (320, 416)
    first, second, third = fields(facts, Progress, 0)
    assert (first["height_px"], first["width_px"], second["train_s"]) == (448, 608, 8.0)
    assert (third["height_px"], third["width_px"]) == (320, 416)
    assert third["pixels_mean_px"] == pytest.approx((2 * 448 * 608 + 320 * 416) / 3)
    assert fields(facts, Evaluation) == [{"epoch": None, "map50": 0.725}]
    assert [(fact.session, fact.fields["what"]) for fact in facts if fact.kind is Incident] == [(0, "error"), (1, "completed")]
    again = learned(facts, Setting, 1)
    assert (again["resumed"], again["model"], again["batch"]) == (True, "yolov4-custom", 128)
    assert [(row["iterations_done"], row["train_s"]) for row in fields(facts, Progress, 1)] == [(3, 2.5), (4, 5.0)]


@pytest.mark.parametrize(
    ("line", "done", "seconds", "images"),
    [
        (" 39: 1.2, 1.4 avg loss, 0.000026 rate, 0.805386 seconds, 312 images, 0.007636 hours left", 39, 0.805386, 312),
        ("1: 812.4, 812.4 avg, 0.000000 rate, 3.150000 seconds, 64 images", 1, 3.15, 64),
        (
            "5989: loss=0.390, avg loss=0.313, rate=0.000026, 103.801 milliseconds, 383296 images, time remaining=30 seconds",
            5989,
            0.103801,
            383296,
        ),
        ("1: -nan(ind), -nan(ind) avg loss, 0.000000 rate, 3.000000 seconds, 64 images", 1, 3.0, 64),
    ],
)
def test_the_line_of_its_heirs(line: str, done: int, seconds: float, images: int) -> None:
    [found] = fields(facts_of(FORMAT, line.encode() + b"\n"), Progress)
    assert (found["iterations_done"], found["images"]) == (done, images)
    assert found["train_s"] == pytest.approx(seconds)


def test_an_iteration_that_falls_is_a_new_session() -> None:
    line = "{0}: 1.0, 1.0 avg loss, 0.1 rate, 2.0 seconds, {1} images\n"
    data = "".join(line.format(number, 64 * number) for number in (1, 2, 3, 3, 4, 1)).encode()
    progress = [
        (fact.session, fact.fields["iterations_done"], fact.fields["train_s"])
        for fact in facts_of(FORMAT, data, range(9))
        if fact.kind is Progress
    ]
    assert progress == [(0, 1, 2.0), (0, 2, 4.0), (0, 3, 6.0), (1, 3, 2.0), (1, 4, 4.0), (2, 1, 2.0)]
