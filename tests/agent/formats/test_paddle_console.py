"""PaddleDetection: epochs and steps from 0, batch from images/s, evaluations from the COCO summary."""

from __future__ import annotations

import pytest
from _cut import CASES, facts_of, fields, learned

from yolometer_agent.formats.paddle_console import FORMAT
from yolometer_core.events import Evaluation, Progress, Setting

QUOTED = (
    "[09/24 10:52:30] ppdet.engine INFO: Epoch: [0] [1600/1832] learning_rate: 0.0017 loss: 3.70 loss_cls: 1.73 loss_iou: 0.45 "
    "loss_dfl: 1.64 eta: 1 day, 17:06:44 batch_cost: 0.2671 data_cost: 0.0010 ips: 29.95 images/s\n"
)


def test_a_run_on_two_gpus() -> None:
    facts = facts_of(FORMAT, (CASES / "paddle_console" / "ppyoloe.log").read_bytes(), range(99))
    settings = learned(facts, Setting)
    assert (settings["gpus"], settings["batch"], settings["val_images"], settings["model"]) == (2, 16, 4952, "ppyoloe_crn_s")
    rows = fields(facts, Progress)
    assert [(row["epoch"], row["iterations_done"]) for row in rows] == [(1, 1), (1, 101), (1, 130), (2, 1)]
    assert rows[2]["train_s"] == pytest.approx(2.0 + 129 * 0.2671)
    assert rows[1]["gpu_memory_bytes"] == 5680 * 2**20
    assert fields(facts, Evaluation) == [{"epoch": 1, "map50_95": 0.433, "map50": 0.601}]


def test_the_line_as_it_is_quoted() -> None:
    facts = facts_of(FORMAT, QUOTED.encode())
    [row] = fields(facts, Progress)
    assert (row["epoch"], row["iterations_done"], row["iterations_total"], row["images_per_s"]) == (1, 1601, 1832, 29.95)
    assert row["losses"] == (3.70, 1.73, 0.45, 1.64)
    assert learned(facts, Setting)["batch"] == 8


def test_the_mean_of_pascal_voc_and_an_epoch_that_goes_back() -> None:
    voc = "[09/24 10:53:00] ppdet.metrics.metrics INFO: mAP(0.50, 11point) = 72.35%\n"
    facts = facts_of(FORMAT, (QUOTED + voc + QUOTED).encode())
    assert fields(facts, Evaluation) == [{"epoch": 1, "map50": pytest.approx(0.7235)}]
    assert [(fact.session, fact.fields["iterations_done"]) for fact in facts if fact.kind is Progress] == [
        (0, 1601),
        (0, 1832),
        (1, 1601),
    ]
