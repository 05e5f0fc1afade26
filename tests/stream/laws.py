"""The laws every operator keeps, and for each operator a Hypothesis strategy of plausible histories of one key.

A law takes an operator and events and asserts. What is compared are *final rows*: of every `event_id` the event with the
highest version, the last said of equals, with all its fields. Left out is only what counts deliveries (COUNTERS): a
second delivery of an event is what these fields are there to show.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import strategies as st

from yolometer_core.events import Evaluation, Event, Incident, Progress, Rate, ResultRow, Setting, Settle, SourceState, Work
from yolometer_core.gpu import Gpu
from yolometer_stream.advance import States, advance
from yolometer_stream.operator import Operator

START = datetime(2026, 3, 1, 12, tzinfo=UTC)
COUNTERS: dict[type[Event], set[str]] = {Rate: {"late", "duplicates"}}


def fold(operator: Operator, events: Iterable[Event], restart: bool = False) -> tuple[list[Event], States]:
    """Everything said, and the states at the end; `restart` writes and reads all states as JSON after every event."""
    said: list[Event] = []
    states: States = {}
    for event in events:
        said += advance({"op": operator}, states, event)
        if restart:
            states = json.loads(json.dumps(states, allow_nan=False))
    return said, states


def rows(said: Iterable[Event]) -> dict[str, dict[str, Any]]:
    """Final rows by event_id."""
    final: dict[str, Event] = {}
    for event in said:
        before = final.get(event.event_id)
        if before is None or getattr(event, "version", 0) >= getattr(before, "version", 0):
            final[event.event_id] = event
    return {name: event.model_dump(exclude=COUNTERS.get(type(event))) for name, event in final.items()}


def after(operator: Operator, events: Iterable[Event]) -> dict[str, dict[str, Any]]:
    return rows(fold(operator, events)[0])


# The laws ---------------------------------------------------------------------------------------------------------------


def restart_changes_nothing(operator: Operator, events: Sequence[Event]) -> None:
    said, states = fold(operator, events)
    said_again, states_again = fold(operator, events, restart=True)
    assert said_again == said, "what is said must not depend on whether the state was written and read in between"
    assert states_again == states, "a state must be what it is after a JSON round trip: no tuples, no int keys, no NaN"


def repeated_at_once_changes_nothing(operator: Operator, events: Sequence[Event]) -> None:
    assert after(operator, [event for event in events for _ in range(2)]) == after(operator, events)


def replay_changes_nothing(operator: Operator, events: Sequence[Event], back_to: int, at: int) -> None:
    """After `at` events the source fell back and delivers those from `back_to` on again.

    At the end that is (0, all): the whole history twice. In between a Settle does not come again, for no source holds
    it: the runner says it anew after every batch, and where it comes decides what is said when.
    """
    again = events[back_to:at] if at == len(events) else [event for event in events[back_to:at] if not isinstance(event, Settle)]
    assert after(operator, [*events[:at], *again, *events[at:]]) == after(operator, events), (
        f"events {back_to} to {at} came twice"
    )


def other_keys_change_nothing(operator: Operator, mixed: Sequence[Event], *alone: Sequence[Event]) -> None:
    apart: dict[str, dict[str, Any]] = {}
    for events in alone:
        apart |= after(operator, events)
    assert after(operator, mixed) == apart


def events_stay_as_they_are(operator: Operator, events: Sequence[Event]) -> None:
    before = [event.model_dump_json() for event in events]
    fold(operator, events)
    assert [event.model_dump_json() for event in events] == before


def only_what_is_announced(operator: Operator, events: Sequence[Event]) -> None:
    assert {type(event) for event in events} & set(operator.takes), "the strategy of this operator never gives it anything"
    surprises = {type(event).__name__ for event in fold(operator, events)[0] if not isinstance(event, operator.gives)}
    assert not surprises, f"given but not in `gives`: {surprises}"


# The histories ----------------------------------------------------------------------------------------------------------

Draw = Callable[[st.SearchStrategy[Any]], Any]


@st.composite
def work_of_a_run(draw: Draw, run_id: str) -> list[Event]:
    """Samples of two attempts: mostly one after the other, some as points, after a pause, or late, seconds to half an hour."""
    events: list[Event] = []
    now, attempt, seq = 0.0, 1, 0
    for _ in range(draw(st.integers(1, 25))):
        if attempt == 1 and draw(st.integers(0, 9)) == 0:
            attempt, seq = 2, 0
        seq += draw(st.integers(1, 40))
        now += draw(st.sampled_from([0.0, 0.0, 0.0, 4.0, 90.0, 4000.0]))
        duration_s = draw(st.sampled_from([0.0, 0.25, 1.0, 5.0, 7.5, 10.0, 60.0, 700.0]))
        now += duration_s
        late_s = draw(st.sampled_from([0.0, 0.0, 0.0, 0.0, 3.0, 200.0, 1800.0]))
        amount = draw(st.integers(0, 4000)) / 8
        ts = START + timedelta(seconds=now - late_s)
        source = {"node": "n1", "source": "train.log", "seq": seq, "run_id": run_id}
        events.append(Work(ts=ts, attempt=attempt, duration_s=duration_s, amount_mtok=amount, **source))
    return events


@st.composite
def rates_of_a_node(draw: Draw, node: str) -> list[Event]:
    """Rates of up to three runs in any order between runs; within a run and window they get newer."""
    events: list[Event] = []
    now = dict.fromkeys(["r1", "r2", "r3"][: draw(st.integers(1, 3))], 0)
    for n in range(draw(st.integers(1, 25))):
        run = draw(st.sampled_from(sorted(now)))
        now[run] += 5 * draw(st.sampled_from([1, 1, 1, 2, 5, 30, 200]))
        events += [a_rate(node, run, now[run], window_s, draw(st.integers(0, 800)) / 8, n) for window_s in (60, 300)]
    return events


def a_rate(node: str, run: str | None, at_s: int, window_s: int, rate: float, seq: int = 0) -> Rate:
    said = {"node": node, "source": "train.log", "seq": seq, "run_id": run, "window_s": window_s}
    return Rate(ts=START + timedelta(seconds=at_s), rate_mtok_s=rate, coverage_ratio=0.5, active_rate_mtok_s=2 * rate, **said)


@dataclass
class Place:
    """Writes the facts of one training directory as its sources would say them."""

    place: str
    now_s: float = 0.0
    seqs: dict[str, int] = field(default_factory=dict)
    said: dict[str, list[tuple[float, Event]]] = field(default_factory=dict)

    def say(self, kind: type[Event], file: str, after_s: float = 1.0, **fields: Any) -> None:
        self.now_s += after_s
        self.said.setdefault(file, []).append((self.now_s, self._event(kind, file, fields)))

    def settle(self, ts: datetime) -> Event:
        return self._event(Settle, "runner", {}).model_copy(update={"ts": ts})

    def _event(self, kind: type[Event], file: str, fields: dict[str, Any]) -> Event:
        self.seqs[file] = self.seqs.get(file, -1) + 1 + 7 * len(self.seqs)
        base = {"node": "n1", "source": f"{self.place}/{file}", "seq": self.seqs[file], "place": self.place}
        return kind(ts=START + timedelta(seconds=self.now_s), **base, **fields)


@st.composite
def facts_of_a_place(draw: Draw, place: str) -> list[Event]:
    """A training: a console, perhaps a NaN replay, perhaps a kill and a second console, and one results table.

    The second console resumes where the last checkpoint was, or starts afresh (a new run) when that is epoch 1. As it
    happened, or source by source as a replay of finished files reads it; Settle here and there and at the end.
    """
    at = Place(place)
    epochs, images, batch = draw(st.integers(2, 5)), draw(st.integers(8, 40)), draw(st.integers(2, 16))
    killed = draw(st.none() | st.integers(2, epochs))
    nan = draw(st.none() | st.integers(1, epochs))
    plan = {"epochs": epochs, "images": images, "batch": batch, "nan": nan}
    _leg(draw, at, "train.log", 1, plan, killed)
    if killed is not None:
        first = killed - draw(st.integers(0, 1))  # the last checkpoint may be older than the last epoch
        at.now_s += 300
        _leg(draw, at, "resume.log", first, plan, None)
    if draw(st.booleans()):
        events = [event for _, event in sorted((pair for said in at.said.values() for pair in said), key=lambda pair: pair[0])]
    else:
        events = [event for file in draw(st.permutations(sorted(at.said))) for _, event in at.said[file]]
    settled: list[Event] = []
    for event in events:
        settled.append(event)
        if draw(st.integers(0, 5)) == 0:
            settled.append(at.settle(event.ts))
    return [*settled, at.settle(events[-1].ts)]


def _leg(draw: Draw, at: Place, file: str, first: int, plan: dict[str, Any], killed: int | None) -> None:
    """One training process: from epoch `first` to the end, or until it is killed in the middle of an epoch."""
    epochs, total = plan["epochs"], math.ceil(plan["images"] / plan["batch"])
    resumed = {"resumed": True, "resume_epoch": first} if first > 1 else {}
    known = {"framework": "ultralytics", "task": "detect", "model": "yolo11n", "height_px": 640, "width_px": 640}
    size = {"batch": plan["batch"], "images_per_epoch": plan["images"], "val_images": 8, "epochs_planned": epochs}
    at.say(SourceState, file, role="console", format="ultralytics_console", path=file, size_bytes=0, open_for_writing=True)
    at.say(Setting, file, role="console", save_dir=at.place, **known, **size, **resumed)
    at.say(Setting, file, role="console", started=True, epochs_planned=epochs)
    began_s = at.now_s
    for epoch in range(first, epochs + 1):
        for take in range(2 if epoch == plan["nan"] and not resumed else 1):
            lost = epoch == plan["nan"] and not resumed and take == 0
            upto = max(total - 1, 0) if epoch == killed else total
            # a loss that is no number is null in an event
            table = [None if lost else draw(st.integers(10_000, 400_000)) / 100_000 for _ in range(3)]
            console = tuple(None if loss is None else float(f"{loss:.4g}") for loss in table)
            for done in sorted({*draw(st.lists(st.integers(0, upto), max_size=3)), upto}):
                seen = {"losses": console, "gpu_memory_bytes": 2_000_000_000, "train_s": 1.5 * done, "resolution_s": 0.1}
                where = {"epoch": epoch, "take": take, "epochs_total": epochs, "height_px": 640, "width_px": 640}
                at.say(Progress, file, 2.0, iterations_done=done, iterations_total=total, **where, **seen)
            if lost:
                at.say(Incident, file, what="nan_replay", epoch=epoch, take=take, text="NaN recovery attempt 1/3")
        if epoch == killed:
            break
        map50, map50_95 = (draw(st.integers(0, 9999)) / 10_000 for _ in range(2))
        at.say(Evaluation, file, epoch=epoch, take=take, images=8, map50=map50, map50_95=map50_95, val_s=0.5)
        row = {"losses": tuple(table), "map50": map50, "map50_95": map50_95}
        at.say(ResultRow, "results.csv", epoch=epoch, time_s=at.now_s - began_s, **row)
    else:
        done_s = {"epochs_completed": epochs + 1 - first, "loop_s": at.now_s - began_s, "resolution_s": 3.6}
        at.say(Incident, file, what="completed", **done_s)
    at.say(SourceState, file, role="console", format="ultralytics_console", path=file, size_bytes=9, open_for_writing=False)


# module of the operator -> the key of a history -> strategy of its events
HISTORIES: dict[str, Callable[[str], st.SearchStrategy[list[Event]]]] = {
    "rate": work_of_a_run,
    "rate_box": rates_of_a_node,
    "run": facts_of_a_place,
}


@st.composite
def samples_of_a_node(draw: Draw, node: str) -> list[Event]:
    """Messages of up to two meters: mostly without a gap, sometimes after minutes, hours or with a clock that went back."""
    events: list[Event] = []
    for source in ["meter", "other"][: draw(st.integers(1, 2))]:
        now_ms, seq = draw(st.integers(0, 3_600_000)), 0
        for _ in range(draw(st.integers(1, 20))):
            gpus, ticks, period_s = draw(st.integers(1, 3)), draw(st.integers(1, 6)), draw(st.sampled_from([0.5, 1.0, 10.0]))
            offsets_ms = tuple(int(1000 * period_s) * tick for tick in range(ticks))
            seq += draw(st.integers(1, 3))
            nothing = (None,) * gpus
            events.append(
                Gpu(ts=START + timedelta(milliseconds=now_ms), node=node, source=source, seq=seq, period_s=period_s,
                    offsets_ms=offsets_ms, gpu_uuid=tuple(f"GPU-{n}" for n in range(gpus)), gpu_model=nothing, run_id=nothing,
                    user=nothing, team=nothing, attribution_source=nothing, columns={})
            )  # fmt: skip
            late_ms = draw(st.sampled_from([0, 0, 0, 60_000, 7_200_000, 20_000_000, -30_000, -20_000_000]))
            now_ms = max(now_ms + offsets_ms[-1] + int(1000 * period_s) + late_ms, 0)
    return events


HISTORIES["coverage"] = samples_of_a_node
