"""The tail of a live training: with it a settle says what it says without it, and costs the same at any length."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import laws
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from yolometer_core.events import Epoch, Evaluation, Event, Incident, Progress, ResultRow, Run, Setting, SourceState
from yolometer_stream.advance import States, advance
from yolometer_stream.ops import run

LOG, TABLE = "train.log", "results.csv"


class Training:
    """Says the facts of one training, a Settle after each, and now and then something that does not just go on."""

    def __init__(self, rng: random.Random, oddity: float, table: bool = True) -> None:
        self.at = laws.Place("p")
        self.rng, self.oddity, self.table = rng, oddity, table
        self.events: list[Event] = []
        self.session = 0
        self.bar_s = rng.choice([0.2, 30.0])
        self.size = rng.choice([{"height_px": 640, "width_px": 640}, {}])

    def say(self, kind: type[Event], file: str = LOG, after_s: float = 1.0, **fields: Any) -> None:
        self.at.say(kind, file, after_s, session=self.session if file == LOG else 0, **fields)
        said = self.at.said[file][-1][1]
        self.events += [said, self.at.settle(said.ts)]

    def start(self, planned: int, **fields: Any) -> None:
        self.say(Setting, role="console", model="m", save_dir="p", started=True, epochs_planned=planned, images_per_epoch=40,
                 batch=4, val_images=8, **self.size, **fields)  # fmt: skip

    def epoch(self, number: int, done: int = 10, take: int = 0) -> None:
        losses = [self.rng.randint(10_000, 400_000) / 100_000 for _ in range(3)]
        told = {"epoch": number, "take": take, "epochs_total": 99, "iterations_total": 10, "height_px": 640, "width_px": 640}
        for upto in sorted({self.rng.randint(0, done), done}):
            seen = {"losses": tuple(losses), "train_s": self.bar_s * upto / 10, "resolution_s": 0.1}
            self.say(Progress, LOG, self.rng.choice([0.0, self.bar_s]), iterations_done=upto, **told, **seen)
        if done < 10:
            return
        score = self.rng.randint(0, 99) / 100
        self.odd(number)
        if self.rng.random() < 0.9:
            self.say(Evaluation, epoch=number, take=take, map50=score, map50_95=score, val_s=self.rng.choice([None, 0.5]))
        if self.table and self.rng.random() < 0.95:
            self.say(ResultRow, TABLE, epoch=number, time_s=self.at.now_s, losses=tuple(losses), map50_95=score)

    def odd(self, number: int) -> None:
        """Facts that come late, come anew, contradict, or tell of something else; each is rare."""
        earlier = self.rng.randint(1, number)
        odds: list[tuple[type[Event], str, dict[str, Any]]] = [
            (Progress, LOG, {"epoch": earlier, "iterations_done": 10, "iterations_total": 10}),
            (Progress, LOG, {"iterations_done": 3}),
            (Evaluation, LOG, {"epoch": earlier, "map50_95": 0.97}),
            (Evaluation, LOG, {"epoch": number + 1, "map50_95": 0.98}),
            (ResultRow, TABLE, {"epoch": earlier, "losses": (1.0, 2.0, 3.0)}),
            (ResultRow, TABLE, {"epoch": number + 1, "time_s": None, "losses": (1.0, 2.0, 3.0)}),
            (Setting, LOG, {"role": "console", "epochs_planned": self.rng.randint(1, 99)}),
            (Setting, LOG, {"role": "console", "images_per_epoch": 40}),
            (Setting, "args.yaml", {"role": "settings", "save_dir": "p", "batch": 4}),
            (Incident, LOG, {"what": "oom_retry", "epoch": number, "batch": 2}),
            (Incident, LOG, {"what": "error", "text": "KeyboardInterrupt"}),
            (SourceState, LOG, {"role": "console", "format": "f", "path": LOG, "size_bytes": 1, "open_for_writing": True}),
            (SourceState, LOG, {"role": "console", "format": "f", "path": LOG, "size_bytes": 1, "open_for_writing": False}),
            (Progress, "copy.log", {"epoch": number, "iterations_done": 1, "iterations_total": 10}),
        ]
        if self.rng.random() < self.oddity:
            kind, file, fields = self.rng.choice(odds)
            self.say(kind, file, 0.0, **fields)


def without_a_tail(events: list[Event]) -> tuple[list[Event], States]:
    """What is said when the tail is lost after each event, as it is when a state is written and read."""
    said, states = laws.fold(run.OPERATOR, events, restart=True)
    return said, states


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(rng=st.randoms(use_true_random=False), oddity=st.sampled_from([0.0, 0.1, 0.5]), table=st.booleans())
def test_the_tail_says_what_all_facts_say(rng: random.Random, oddity: float, table: bool) -> None:
    training = Training(rng, oddity, table)
    training.start(12)
    first = rng.choice([1, 1, 4])
    killed = rng.choice([None, rng.randint(first, 12)])
    for number in range(first, (killed or 13)):
        training.epoch(number)
        if rng.random() < 0.1:
            training.epoch(number, take=1)
    if killed:
        training.epoch(killed, done=rng.randint(0, 10))
        training.session = 1
        again = rng.randint(1, killed)
        training.start(14, **({"resumed": True, "resume_epoch": again} if again > 1 else {}))
        for number in range(again, 15):
            training.epoch(number)
    training.say(Incident, what="completed", loop_s=rng.choice([None, 99.0]), resolution_s=0.1)
    assert laws.fold(run.OPERATOR, training.events) == without_a_tail(training.events)


def a_bar_that_never_filled(training: Training) -> None:
    """The table has the epoch all the same: two rows of one name, which are said by turns."""
    training.epoch(9, done=9)
    training.say(ResultRow, TABLE, epoch=9, time_s=training.at.now_s, losses=(9.0, 9.0, 9.0))


def a_row_of_another_training(training: Training) -> None:
    training.table = False
    training.epoch(9)
    training.say(ResultRow, TABLE, epoch=9, time_s=training.at.now_s, losses=(9.0, 9.0, 9.0))


def a_row_without_a_clock(training: Training) -> None:
    """The seconds of all lines are those of the bars from now on."""
    training.epoch(9)
    training.say(ResultRow, TABLE, epoch=10, losses=(9.0, 9.0, 9.0))


@pytest.mark.parametrize("odd", [a_bar_that_never_filled, a_row_of_another_training, a_row_without_a_clock])
def test_what_changes_closed_lines_is_seen(odd: Callable[[Training], None]) -> None:
    training = Training(random.Random(3), 0.0)
    training.start(20)
    for number in range(1, 9):
        training.epoch(number)
    odd(training)
    for number in range(10, 16):
        training.epoch(number)
    assert laws.fold(run.OPERATOR, training.events) == without_a_tail(training.events)


def long(epochs: int) -> tuple[Training, States]:
    training, states = Training(random.Random(7), 0.0), States()
    training.start(2000)
    for number in range(1, epochs + 1):
        training.epoch(number)
    for event in training.events:
        advance({"run": run.OPERATOR}, states, event)
    training.events.clear()
    return training, states


def test_all_but_the_last_epochs_are_closed() -> None:
    _, states = long(30)
    state = states["run"]["p"]
    assert isinstance(state, run.Place)
    assert state.tail is not None
    assert state.tail.first >= 28
    assert [item.epoch for item in state.tail.session.tries] == [28, 29, 30]
    assert state.tail.closed.totals.kept == 27


def test_a_late_fact_of_a_closed_epoch_counts() -> None:
    training, states = long(30)
    training.say(Progress, epoch=3, iterations_done=10, iterations_total=10, gpu_memory_bytes=77)
    said = [row for event in training.events for row in advance({"run": run.OPERATOR}, states, event)]
    assert [(row.epoch, row.gpu_memory_bytes) for row in said if isinstance(row, Epoch)] == [(3, 77)]
    assert [row.gpu_memory_bytes for row in said if isinstance(row, Run)] == [77]


def calls_of_a_settle(epochs: int) -> int:
    """How many functions run for one more Progress and its Settle."""
    training, states = long(epochs)
    bar = {"epoch": epochs + 1, "iterations_total": 10, "losses": (1.0, 2.0, 3.0)}
    for done in (1, 2):
        training.say(Progress, iterations_done=done, **bar)
    for event in training.events[:2]:
        advance({"run": run.OPERATOR}, states, event)
    calls = 0

    def count(frame: object, what: str, argument: object) -> None:
        nonlocal calls
        calls += what in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        for event in training.events[2:]:
            advance({"run": run.OPERATOR}, states, event)
    finally:
        sys.setprofile(before)
    return calls


def test_a_settle_of_a_long_training_is_as_cheap_as_one_of_a_short_one() -> None:
    assert calls_of_a_settle(200) < 1.5 * calls_of_a_settle(20)


def test_lines_of_a_burst_are_placed_as_if_all_were_known() -> None:
    """A log that is read at once has one time for all: each line is moved before the next, also the closed ones."""
    training = Training(random.Random(1), 0.0, table=False)
    training.start(2000)
    training.bar_s = 30.0
    training.rng = random.Random(2)
    for number in range(1, 15):
        training.epoch(number)
    began = training.events[0].ts
    burst = [event.model_copy(update={"ts": began + timedelta(milliseconds=n)}) for n, event in enumerate(training.events)]
    said, _ = laws.fold(run.OPERATOR, burst)
    assert said == without_a_tail(burst)[0]
    last = [row for row in said if isinstance(row, Run)][-1]
    assert last.started_ts is not None
    assert last.started_ts < began - timedelta(seconds=13 * 30)
