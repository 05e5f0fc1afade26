"""MMEngine and MMDetection 2: epochs that end before their last line, settings inside the config, by-iteration runs."""

from __future__ import annotations

import math

import pytest
from _cut import CASES, facts_of, fields, learned

from yolometer_agent.formats.mmengine_console import FORMAT
from yolometer_core.events import Evaluation, Incident, Progress, Setting


@pytest.mark.parametrize("name", ["file.log", "console.log"])
def test_a_real_run(name: str) -> None:
    facts = facts_of(FORMAT, (CASES / "mmengine_console" / name).read_bytes())
    complete = [row for row in fields(facts, Progress) if row["iterations_done"] == 6]
    assert [(row["epoch"], row["iterations_total"]) for row in complete] == [(1, 6), (2, 6), (3, 6)]
    assert [row["train_s"] for row in complete] == pytest.approx([0.0116, 0.0166, 0.074])
    assert [(row["epoch"], row["map50_95"]) for row in fields(facts, Evaluation)] == [(1, 0.625), (2, 0.625), (3, 0.625)]
    settings = learned(facts, Setting)
    assert (settings["framework"], settings["framework_version"], settings["save_dir"]) == (
        "mmengine",
        "0.10.7",
        "/data/jobs/work",
    )
    assert "gpus" not in settings


def test_mmyolo_on_two_gpus_with_a_crash_and_a_resume() -> None:
    facts = facts_of(FORMAT, (CASES / "mmengine_console" / "mmyolo-8gpu.log").read_bytes(), range(99))
    settings = learned(facts, Setting)
    expected = {
        "framework": "mmyolo", "batch": 32, "gpus": 2, "epochs_planned": 2, "height_px": 480, "width_px": 640, "precision": "amp",
        "optimizer": "SGD", "gpu_model": "NVIDIA A100-SXM4-80GB", "model": "yolov5_s-v61", "task": "detect", "seed": 1,
    }  # fmt: skip
    assert {name: settings[name] for name in expected} == expected
    over = fields(facts, Progress, 0)[2]
    assert (over["iterations_done"], over["iterations_total"], over["train_s"]) == (120, 120, pytest.approx(53.0))
    assert over["gpu_memory_bytes"] == 5690 * 2**20
    assert math.isnan(over["losses"][0])
    assert fields(facts, Evaluation) == [{"epoch": 1, "val_s": pytest.approx(1.2), "map50_95": 0.373, "map50": 0.56}]
    [incident] = fields(facts, Incident)
    assert (incident["what"], incident["epoch"]) == ("error", 2)
    again = learned(facts, Setting, 1)
    assert (again["resumed"], again["resume_epoch"], again["started"]) == (True, 2, True)
    assert [row["iterations_done"] for row in fields(facts, Progress, 1)] == [50]


def test_mmdetection_2() -> None:
    facts = facts_of(FORMAT, (CASES / "mmengine_console" / "mmdet2.log").read_bytes(), range(99))
    settings = learned(facts, Setting)
    assert (settings["framework"], settings["framework_version"], settings["batch"], settings["gpus"]) == (
        "mmdet",
        "2.14.0",
        64,
        8,
    )
    assert (settings["model"], settings["epochs_planned"]) == ("yolox_s", 300)
    assert [(row["epoch"], row["iterations_done"]) for row in fields(facts, Progress)] == [(1, 50), (1, 100), (1, 110), (2, 50)]
    assert fields(facts, Progress)[2]["train_s"] == pytest.approx(0.555 * 50 + 0.5 * 60)
    assert fields(facts, Progress)[0]["losses"] == (1.2, 0.5, 0.7)
    assert fields(facts, Evaluation) == [{"epoch": 1, "map50_95": 0.373, "map50": 0.58}]


def test_a_run_by_iterations_goes_on_where_it_was_resumed() -> None:
    facts = facts_of(FORMAT, (CASES / "mmengine_console" / "by-iter.log").read_bytes())
    assert learned(facts, Setting)["iterations_planned"] == 10000
    told = [(row["epoch"], row["iterations_done"], row["train_s"]) for row in fields(facts, Progress)]
    assert told == [(None, 1050, 25.0), (None, 1100, 45.0)]
    assert fields(facts, Evaluation)[0]["epoch"] is None


def test_the_next_epoch_completes_the_one_before() -> None:
    head = "05/02 10:00:39 - mmengine - INFO - Epoch(train)  [{}][{}/120]  lr: 1e-3  time: 0.5  data_time: 0.01  loss: 2.1\n"
    data = "".join(head.format(*where) for where in [(1, 50), (1, 100), (2, 50), (1, 50)]).encode()
    facts = facts_of(FORMAT, data, range(9))
    told = [(fact.session, fact.fields["epoch"], fact.fields["iterations_done"]) for fact in facts if fact.kind is Progress]
    assert told == [(0, 1, 50), (0, 1, 100), (0, 1, 120), (0, 2, 50), (1, 1, 50)]
