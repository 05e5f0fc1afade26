"""YOLOX: settings of two tables, sizes that change, a crash that claims to be done, a resume that is."""

from __future__ import annotations

import pytest
from _cut import CASES, facts_of, fields, learned

from yolometer_agent.formats.yolox_console import FORMAT
from yolometer_core.events import Evaluation, Incident, Progress, Setting

DATA = (CASES / "yolox_console" / "train_log.txt").read_bytes()


def test_settings() -> None:
    settings = learned(facts_of(FORMAT, DATA), Setting)
    expected = {
        "framework": "yolox", "task": "detect", "model": "yolox_s", "batch": 64, "gpus": 8,
        "precision": "amp", "epochs_planned": 2,
        "height_px": 640, "width_px": 640, "params": 8970000, "gflops": 26.93, "multi_scale": True, "name": "yolox_s",
        "save_dir": "./YOLOX_outputs/yolox_s",
    }  # fmt: skip
    assert {name: settings[name] for name in expected} == expected


def test_sizes_and_times_of_an_epoch() -> None:
    rows = fields(facts_of(FORMAT, DATA, range(99)), Progress, 0)
    assert [(row["epoch"], row["iterations_done"]) for row in rows] == [(1, 10), (1, 20), (1, 25), (2, 10)]
    assert (rows[0]["height_px"], rows[1]["width_px"], "pixels_mean_px" in rows[0]) == (640, 480, False)
    assert rows[2]["pixels_mean_px"] == pytest.approx((10 * 640**2 + 15 * 480**2) / 25)
    assert rows[2]["train_s"] == pytest.approx(10 * 0.512 + 15 * 0.4)
    assert (rows[0]["losses"][0], rows[0]["gpu_memory_bytes"], rows[0]["epochs_total"]) == (10.1, 4000 * 2**20, 2)


def test_done_is_believed_only_at_the_end() -> None:
    facts = facts_of(FORMAT, DATA)
    told = [(fact.session, fact.fields["what"]) for fact in facts if fact.kind is Incident]
    assert told == [(0, "error"), (1, "completed")]
    assert fields(facts, Evaluation) == [{"epoch": 1, "map50_95": 0.1, "map50": 0.2}]
    again = learned(facts, Setting, 1)
    assert (again["resumed"], again["resume_epoch"], again["precision"]) == (True, 2, "fp32")
