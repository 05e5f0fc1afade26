"""One line per epoch: which number epochs count from, losses in any order, several runs in one file."""

from __future__ import annotations

import math

import pytest
from _cut import CASES, facts_of, fields

from yolometer_agent.formats.plain_line import FORMAT
from yolometer_core.events import Evaluation, Incident, Progress


def test_the_line_that_articles_quote() -> None:
    [row] = fields(facts_of(FORMAT, (CASES / "plain_line" / "article.log").read_bytes()), Progress)
    assert row == {
        "epoch": 50, "epochs_total": 100, "iterations_done": 1, "iterations_total": 1, "losses": (1.245, 0.789, 0.321, 0.135),
        "gpu_memory_bytes": 7_230_000_000, "images_per_s": 142.5,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("lines", "epochs"),
    [
        (["0/1", "1/1"], [(1, 2), (2, 2)]),
        (["1/2", "2/2"], [(1, 2), (2, 2)]),
        (["49/99", "50/99"], [(50, 100), (51, 100)]),
        (["50/100"], [(50, 100)]),
        (["99/99"], [(100, 100)]),
        (["3/7"], [(4, 8)]),
    ],
)
def test_what_epochs_count_from(lines: list[str], epochs: list[tuple[int, int]]) -> None:
    data = "".join(f"Epoch {line} box_loss: 1.0 acc: 2\n" for line in lines).encode()
    assert [(row["epoch"], row["epochs_total"]) for row in fields(facts_of(FORMAT, data), Progress)] == epochs


def test_a_second_run_and_an_error() -> None:
    facts = facts_of(FORMAT, (CASES / "plain_line" / "from-zero-twice.log").read_bytes())
    assert [(fact.session, fact.fields["epoch"]) for fact in facts if fact.kind is Progress] == [(0, 1), (0, 2), (1, 1)]
    assert math.isnan(fields(facts, Progress)[1]["losses"][0])
    assert "gpu_memory_bytes" not in fields(facts, Progress)[2]
    assert [incident["what"] for incident in fields(facts, Incident, 1)] == ["error"]


def test_metrics_of_the_line() -> None:
    facts = facts_of(FORMAT, b"Epoch 0/9 loss: 1.0 val_loss: 2.0 mAP50: 0.5 mAP50-95: 0.25\n")
    assert fields(facts, Evaluation) == [{"epoch": 1, "map50": 0.5, "map50_95": 0.25}]
    assert fields(facts, Progress)[0]["losses"] == (1.0,)
