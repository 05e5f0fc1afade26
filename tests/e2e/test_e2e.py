"""A real training beside a real `yolometer up`: seen while it runs, stored as the trainer wrote it, not felt by the trainer."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import box
import pytest
import trainer

pytestmark = pytest.mark.e2e

PLAN = trainer.Plan()
ROUNDS = 3
SEEN_WITHIN_S = 5.0
CPU_RATIO_MAX = 0.05
"""Of a training on one core for 20 s, the worst case: the embedded engine alone idles at about 1 % of a core."""


@dataclass
class Story:
    """What happened: trainings with and without the box, taking turns."""

    watched: list[trainer.Trained] = field(default_factory=list)
    alone: list[trainer.Trained] = field(default_factory=list)
    box_cpu_s: list[float] = field(default_factory=list)
    stop_s: list[float] = field(default_factory=list)
    written: dict[int, float] = field(default_factory=dict)  # epoch of the first training: when the trainer had written it
    seen: list[tuple[float, int]] = field(default_factory=list)  # what `up` said of the first training, and when
    ended: float = 0.0  # when the first training ended
    rows: list[dict[str, Any]] = field(default_factory=list)


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Story:
    """Train `ROUNDS` times watched by the box and as often alone, by turns; the box stops and starts again between them."""
    folder, told = tmp_path_factory.mktemp("e2e"), Story()
    data = trainer.make_images(folder / "data", PLAN)

    def look(_: float) -> None:
        for epoch in range(1, len(trainer.results(folder / "runs" / "run0")) + 1):
            told.written.setdefault(epoch, time.monotonic())

    trainer.train(data, folder / "warm", "warm", trainer.Plan(epochs=1))  # file caches are warm for both sides
    for turn in range(ROUNDS):
        told.alone.append(trainer.train(data, folder / "alone", f"run{turn}", PLAN))
        with box.Box(folder / "store", folder / "runs", folder / "up.log") as up:
            before = up.cpu_s
            told.watched.append(trainer.train(data, folder / "runs", f"run{turn}", PLAN, each=look if turn == 0 else None))
            told.box_cpu_s.append(up.cpu_s - before)
            if turn == 0:
                told.ended = time.monotonic()
            time.sleep(3.0)
        if turn == 0:
            told.seen = up.epochs_seen("run0")
        told.stop_s.append(up.stop_s)
    told.rows = up.rows()
    return told


def test_an_epoch_is_seen_while_the_training_runs(story: Story) -> None:
    """After the second epoch the run shows two epochs, long before the training ends."""
    seen = next((at for at, epochs in story.seen if epochs >= 2), None)
    assert seen is not None, "up never said that two epochs were done"
    delay_s = seen - story.written[2]
    print(f"\nsecond epoch seen {delay_s:.2f} s after the trainer wrote it, {story.ended - seen:.1f} s before the training ended")
    assert delay_s < SEEN_WITHIN_S
    assert seen < story.ended


def test_the_stored_run_is_what_the_trainer_wrote(story: Story) -> None:
    """One run for each training, no more; epochs, images and tokens exactly; the best epoch as results.csv has it."""
    assert sorted(str(row["name"]) for row in story.rows) == [f"run{turn}" for turn in range(ROUNDS)]
    by_name = {row["name"]: row for row in story.rows}
    for trained in story.watched:
        row = by_name[trained.folder.name]
        assert len(trained.rows) == PLAN.epochs
        assert row["epochs_done"] == row["epochs_planned"] == PLAN.epochs
        assert row["images_per_epoch"] == PLAN.train_images
        assert row["images"] == PLAN.train_images * PLAN.epochs
        assert round(float(row["tokens_mtok"]) * 1e6) == PLAN.tokens
        assert float(row["tokens_mtok"]) == pytest.approx(PLAN.tokens / 1e6, rel=1e-12)
        assert float(row["wasted_mtok"]) == 0
        assert (row["status"], row["attempts"], row["batch"], row["imgsz"]) == ("finished", 1, PLAN.batch, PLAN.imgsz)
        assert 0 < float(row["train_seconds"]) <= float(trained.rows[-1]["time"]) + 1
        best = max(float(line["metrics/mAP50-95(B)"]) for line in trained.rows)
        if best > 0:
            assert float(row["best_map50_95"]) == pytest.approx(best, rel=1e-5)


def test_the_box_stops_in_time(story: Story) -> None:
    """SIGTERM ends it within ten seconds."""
    assert max(story.stop_s) < 10.0


def test_the_trainer_does_not_feel_it(story: Story) -> None:
    """The box uses under 5 % of a trainer's CPU; trainings with and without it differ less than trainings of one kind."""
    trainer_cpu_s = [trained.cpu_s for trained in story.watched]
    box_cpu_s = sum(story.box_cpu_s)
    ratio = box_cpu_s / sum(trainer_cpu_s)
    print(f"\nCPU: up {box_cpu_s:.2f} s, trainer {sum(trainer_cpu_s):.1f} s, ratio {ratio:.4f} (limit {CPU_RATIO_MAX})")
    for what in ("cpu_s", "wall_s"):
        alone = [getattr(trained, what) for trained in story.alone]
        watched = [getattr(trained, what) for trained in story.watched]
        noise = max(max(alone) - min(alone), max(watched) - min(watched))
        more = median(watched) - median(alone)
        print(f"{what}: alone {_list(alone)}, watched {_list(watched)}, difference {more:+.2f}, noise {noise:.2f}")
        assert more <= noise, f"the trainer's {what} grew by {more:.2f} with the box; the noise is {noise:.2f}"
    assert ratio < CPU_RATIO_MAX


def _list(values: list[float]) -> str:
    return " ".join(f"{value:.2f}" for value in values)
