"""scalars.json and .log.json: where an iteration of the run lies inside its epoch."""

from __future__ import annotations

from typing import Any

import pytest
from _cut import CASES, facts_of, fields, learned

from yolometer_agent.formats._base import Found
from yolometer_agent.formats.mmengine_json import FORMAT
from yolometer_core.events import Evaluation, Progress, Setting


def read(name: str) -> list[Found]:
    facts: list[Found] = facts_of(FORMAT, (CASES / "mmengine_json" / name).read_bytes(), range(99))
    return facts


def told(facts: list[Found]) -> list[Any]:
    return [
        (row["epoch"], row["iterations_done"], row["iterations_total"], row.get("train_s")) for row in fields(facts, Progress)
    ]


def test_a_real_run() -> None:
    complete = [row for row in told(read("scalars.json")) if row[1] == row[2]]
    assert [row[:3] for row in complete] == [(1, 6, 6), (2, 6, 6), (3, 6, 6)]
    assert [row[3] for row in complete] == pytest.approx([0.01162, 0.01669, 0.07393], abs=1e-4)
    assert [(row["epoch"], row["map50_95"]) for row in fields(read("scalars.json"), Evaluation)] == [
        (1, 0.625),
        (2, 0.625),
        (3, 0.625),
    ]


def test_the_length_of_an_epoch_is_known_when_the_next_begins() -> None:
    assert told(read("tail-cut.json")) == [
        (1, 50, None, 25.0), (1, 100, None, 50.0), (1, 100, 100, 50.0), (1, 120, 120, 60.0),
        (2, 50, 120, 20.0), (2, 100, 120, 40.0), (2, 120, 120, 48.0),
    ]  # fmt: skip


def test_a_resumed_run_finds_its_place_from_two_lines() -> None:
    assert told(read("resumed.json")) == [(3, 50, 120, 20.0), (3, 100, 120, 40.0), (3, 120, 120, 48.0)]


def test_mmcv_counts_inside_the_epoch() -> None:
    facts = read("mmcv.log.json")
    settings = learned(facts, Setting)
    assert (settings["framework"], settings["batch"], settings["gpus"], settings["epochs_planned"]) == ("mmdet", 16, 2, 12)
    assert (settings["framework_version"], settings["model"]) == ("2.14.0", "yolox_s")
    assert [row[:3] for row in told(facts)] == [
        (1, 50, None),
        (1, 100, None),
        (1, 100, 100),
        (2, 50, None),
        (2, 50, 50),
        (3, 50, None),
    ]
    assert fields(facts, Evaluation) == [{"epoch": 1, "exact": True, "map50_95": 0.373, "map50": 0.58}]


def test_a_run_by_iterations() -> None:
    line = '{{"loss": 1.0, "time": 0.5, "iter": {0}, "step": {0}}}\n'
    facts = facts_of(FORMAT, "".join(line.format(number) for number in (50, 100, 50)).encode())
    assert told(facts) == [(None, 50, None, 25.0), (None, 100, None, 50.0), (None, 50, None, 25.0)]
    assert [fact.session for fact in facts if fact.kind is Progress] == [0, 0, 1]


@pytest.mark.parametrize(
    "line", ['{"iter": 1e400, "loss": 1}', '{"loss": 1, "iter": 5, "epoch": 0}', "[" * 5000, '{"a":' * 5000, "{}", "null"]
)
def test_strange_lines_say_no_epoch(line: str) -> None:
    assert [row for row in told(facts_of(FORMAT, line.encode() + b"\n")) if row[0] is not None] == []
