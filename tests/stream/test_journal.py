"""What a journal writes is the state: whenever the worker ends, whoever goes on, and whatever a paused one writes later."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from random import Random

import pytest
from _worker import AT_MS, gpu_event, messages_of
from hypothesis import given, settings
from hypothesis import strategies as st
from laws import facts_of_a_place
from test_handle import Breaks

from yolometer.box import operators
from yolometer_core.errors import BadDeploy
from yolometer_core.events import Event, Settle
from yolometer_core.gpu import Gpu
from yolometer_core.service.limits import DeadLimit
from yolometer_stream import journal as module
from yolometer_stream.advance import States
from yolometer_stream.handle import handle
from yolometer_stream.journal import MOST_DELTAS, Journal, Name, Record
from yolometer_stream.operator import Operator, State
from yolometer_stream.partitions import Partitions, Taken
from yolometer_stream.runs.rows import Terms

OPERATORS = operators(Terms())
NAME = ("gpu", "n1")
Parts = Mapping[str, Operator]


@dataclass(frozen=True)
class Keeps:
    """An operator that remembers much: `pad` bytes that do not compress, NaN, and every seq."""

    pad: int = 0
    takes: tuple[type[Event], ...] = (Gpu,)
    gives: tuple[type[Event], ...] = ()

    def start(self) -> State:
        return {"seqs": [], "loss": math.nan, "noise": Random(1).randbytes(self.pad // 2).hex()}

    def step(self, state: State, event: Event) -> tuple[State, list[Event]]:
        if event.seq not in state["seqs"]:
            state["seqs"].append(event.seq)
        return state, []


class Log:
    """The topic: records in order, and what compaction leaves of them."""

    def __init__(self) -> None:
        self.records: list[Record] = []

    def write(self, records: list[Record]) -> None:
        self.records += records

    def compacted(self) -> list[Record]:
        newest = {key: at for at, (key, _) in enumerate(self.records)}
        return [record for at, record in enumerate(self.records) if newest[record[0]] == at]

    def read(self, parts: Parts, generation: int, compact: bool = False) -> Journal:
        journal = Journal(parts)
        for key, value in self.compacted() if compact else self.records:
            journal.apply(key, value)
        journal.begin(generation)
        return journal


def give(journal: Journal, raw: bytes, name: tuple[str, str] = NAME, parts: Parts = OPERATORS) -> States:
    bundle = journal.bundle(name)
    if bundle is None:
        bundle = journal.start(name, {})
    assert not handle(parts, bundle, name[1].encode(), raw, name[0]).failed
    journal.took(name, raw)
    return bundle


def raws(*seqs: int) -> list[bytes]:
    return [raw for _, _, raw in messages_of([gpu_event("n1", seq) for seq in seqs]) if raw is not None]


def same(one: States | None, other: States | None) -> bool:
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


@settings(max_examples=40)
@given(facts_of_a_place("p1"), st.data())
def test_a_state_is_what_it_was_whenever_a_worker_ends(events: list[Event], data: st.DataObject) -> None:
    facts = [event for event in events if not isinstance(event, Settle)]
    log, name = Log(), ("fact", "p1")
    journal, plain, unsaved = log.read(OPERATORS, 1), States(), 0
    for at, (topic, key, raw) in enumerate(messages_of(facts, 2)):
        assert raw is not None
        give(journal, raw, name)
        handle(OPERATORS, plain, key, raw, topic)
        unsaved += 1
        if data.draw(st.booleans(), label="save"):
            log.write(journal.save())
            unsaved = 0
        if not unsaved and data.draw(st.integers(0, 3), label="restart") == 0:
            journal = log.read(OPERATORS, at + 2, compact=data.draw(st.booleans(), label="compacted"))
        assert same(journal.bundle(name), plain)


def test_one_message_is_one_record_and_a_snapshot_comes_when_it_pays() -> None:
    parts: Parts = {"keeps": Keeps(20_000)}
    log = Log()
    journal = log.read(parts, 1)
    sizes = []
    for raw in raws(*range(MOST_DELTAS + 10)):
        give(journal, raw, parts=parts)
        records = journal.save()
        assert len(records) == 1
        sizes.append(len(records[0][1] or b""))
        log.write(records)
    assert sizes[0] > 10_000, "the first record is a snapshot"
    assert max(sizes[1:6]) < 3_000, "then come messages"
    snapshots = sum(size > 10_000 for size in sizes)
    assert 8 < snapshots < 16, "and a snapshot when the messages weigh as much as it does"
    again = log.read(parts, 2, compact=True)
    assert again.bundle(NAME)["keeps"]["n1"]["seqs"] == list(range(MOST_DELTAS + 10))  # type: ignore[index]


def test_a_small_state_is_written_as_it_is() -> None:
    log = Log()
    journal = log.read(OPERATORS, 1)
    for raw in raws(*range(20)):
        give(journal, raw)
        log.write(journal.save())
    assert len({key for key, _ in log.records}) == 1 and all(len(value or b"") < 400 for _, value in log.records)


def test_messages_of_one_batch_are_saved_together() -> None:
    log = Log()
    journal = log.read(OPERATORS, 1)
    for raw in raws(*range(20)):
        give(journal, raw)
    assert len(journal.save()) == 1
    assert journal.save() == []


def test_a_state_larger_than_a_record_is_written_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_RECORD_BYTES", 3000)
    parts: Parts = {"keeps": Keeps(20_000)}
    log = Log()
    journal = log.read(parts, 1)
    states = []
    for at, raw in enumerate(raws(0, 1, 2)):
        give(journal, raw, parts=parts)
        live = journal._live[NAME]
        live.written = live.written and at != 1  # the second one is a snapshot again
        log.write(journal.save())
        states.append(copy.deepcopy(journal.bundle(NAME)))
    assert len(log.records) == 9
    assert same(log.read(parts, 2, compact=True).bundle(NAME), states[-1])
    seen = set()
    for cut in range(len(log.records) + 1):  # killed between any two records
        partly = Log()
        partly.write(log.records[:cut])
        found = partly.read(parts, 2, compact=True).bundle(NAME)
        assert any(same(found, state) for state in [None, *states]), cut
        seen.add(json.dumps(found))
    assert len(seen) == 4


def test_a_new_owner_starts_over_and_clears_what_was_before() -> None:
    parts: Parts = {"keeps": Keeps(20_000)}
    log = Log()
    first = log.read(parts, 1)
    for raw in raws(0, 1, 2):
        give(first, raw, parts=parts)
        log.write(first.save())
    second = log.read(parts, 2)
    give(second, raws(3)[0], parts=parts)
    records = second.save()
    assert [value is None for _, value in records] == [False, True, True, True]
    log.write(records)
    assert len([value for _, value in log.compacted() if value is not None]) == 1
    assert log.read(parts, 3).bundle(NAME)["keeps"]["n1"]["seqs"] == [0, 1, 2, 3]  # type: ignore[index]


@pytest.mark.parametrize("extra", [1, 2, 3, 5, 6, 7, 12, MOST_DELTAS + 4])
def test_a_paused_worker_cannot_spoil_what_its_successor_wrote(extra: int) -> None:
    """The trap: the old owner wakes up with a batch in its hands, and writes after the new one has gone on for long."""
    parts = {"keeps": Keeps(6_000)}
    log = Log()
    zombie = log.read(parts, 1)
    for raw in raws(*range(5)):
        give(zombie, raw, parts=parts)
        log.write(zombie.save())
    for raw in raws(5, 6):
        give(zombie, raw, parts=parts)
    late = zombie.save()
    successor = log.read(parts, 2)
    for raw in raws(*range(5, 5 + extra)):
        give(successor, raw, parts=parts)
        log.write(successor.save())
    log.write(late)
    for compact in (False, True):
        assert log.read(parts, 3, compact=compact).bundle(NAME)["keeps"]["n1"]["seqs"] == list(range(5 + extra))  # type: ignore[index]


def test_the_epoch_grows_even_when_the_group_was_forgotten() -> None:
    log = Log()
    first = log.read(OPERATORS, 40)
    give(first, raws(0)[0])
    log.write(first.save())
    second = log.read(OPERATORS, 1)
    assert second.epoch == 41
    give(second, raws(1)[0])
    log.write(second.save())
    assert log.read(OPERATORS, 2).bundle(NAME)["coverage"]["n1"]["sources"]["meter"]["seq"] == 1  # type: ignore[index]


def test_records_may_come_again() -> None:
    log = Log()
    journal = log.read(OPERATORS, 1)
    for raw in raws(0, 1, 2):
        give(journal, raw)
        log.write(journal.save())
    before = copy.deepcopy(journal.bundle(NAME))
    for key, value in log.records:
        journal.apply(key, value)
    journal.begin(2)
    assert same(journal.bundle(NAME), before)


@pytest.mark.parametrize("missing", ["head", "middle"])
def test_a_state_with_a_hole_is_lost_and_says_so(missing: str) -> None:
    parts: Parts = {"keeps": Keeps(20_000)}
    log = Log()
    lost: list[Name] = []
    journal = log.read(parts, 1)
    for raw in raws(0, 1, 2):
        give(journal, raw, parts=parts)
        log.write(journal.save())
    del log.records[0 if missing == "head" else 1]
    again = Journal(parts, lost.append)
    for key, value in log.records:
        again.apply(key, value)
    again.begin(2)
    assert again.bundle(NAME) is None
    assert lost == [NAME]


def test_a_state_of_another_version_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    log = Log()
    journal = log.read(OPERATORS, 1)
    give(journal, raws(0)[0])
    log.write(journal.save())
    monkeypatch.setattr(module, "STATE_VERSION", module.STATE_VERSION + 1)
    assert log.read(OPERATORS, 2).bundle(NAME) is None


@pytest.mark.parametrize("key", [b"", b"\xc1", b"key", b"\x93\x01\x02\x03"])
def test_records_of_others_are_passed_over(key: bytes) -> None:
    journal = Journal(OPERATORS)
    journal.apply(key, b"x")
    journal.apply(key, None)
    assert len(journal) == 0


def test_undo_gives_back_what_was_before_the_message() -> None:
    parts = {"breaks": Breaks(3)}
    log = Log()
    journal = log.read(parts, 1)
    for raw in raws(0, 1):
        give(journal, raw, parts=parts)
    log.write(journal.save())
    give(journal, raws(2)[0], parts=parts)
    assert handle(parts, journal.bundle(NAME) or {}, b"n1", raws(3)[0], "gpu").failed
    assert journal.bundle(NAME) == {"breaks": {"n1": {"seen": 4}}}
    journal.undo(NAME)
    assert journal.bundle(NAME) == {"breaks": {"n1": {"seen": 3}}}
    log.write(journal.save())
    assert log.read(parts, 2).bundle(NAME) == {"breaks": {"n1": {"seen": 3}}}


def test_undo_of_a_state_that_was_told_gives_back_what_was_told() -> None:
    parts = {"breaks": Breaks(3)}
    journal = Log().read(parts, 1)
    bundle = journal.start(NAME, {"breaks": {"n1": {"seen": 10}}})
    assert handle(parts, bundle, b"n1", raws(3)[0], "gpu").failed
    journal.undo(NAME)
    assert journal.bundle(NAME) == {"breaks": {"n1": {"seen": 10}}}


def test_a_version_that_cannot_handle_old_messages_must_not_go_on() -> None:
    parts: dict[str, Operator] = {"breaks": Breaks(99), "keeps": Keeps(20_000)}
    log = Log()
    journal = log.read(parts, 1)
    for raw in raws(0, 1, 2):
        give(journal, raw, parts=parts)
        log.write(journal.save())
    with pytest.raises(BadDeploy, match="roll this version back"):
        log.read({**parts, "breaks": Breaks(1)}, 2).bundle(NAME)


def test_bundles_that_are_not_used_are_let_go_and_found_again() -> None:
    log = Log()
    journal = log.read(OPERATORS, 1)
    names = [("gpu", f"n{n}") for n in range(10)]
    for name in names:
        give(journal, messages_of([gpu_event(name[1], 0)])[0][2] or b"", name)
    journal.trim(3)
    assert journal.live == 10, "what is not saved is held"
    log.write(journal.save())
    journal.trim(3)
    assert journal.live == 3 and len(journal) == 10
    assert all(journal.bundle(name) for name in names)


# Partitions ---------------------------------------------------------------------------------------------------------------


def taken(raw: bytes | None, offset: int = 0, key: bytes | None = b"n1", ts_ms: int = AT_MS) -> Taken:
    return Taken("gpu", 0, offset, ts_ms, key, raw)


def test_a_partition_without_records_that_went_on_before_is_cold() -> None:
    work = Partitions(OPERATORS, DeadLimit(), cold_s=900)
    work.begin([0], 5)
    first = taken(raws(0)[0])
    assert work.unknown([first], lambda partition: True) == {(0, NAME): first.offset}
    work.told(0, NAME, None)
    work.take(first)
    assert work.cold
    records = work.save()[0]
    later = Partitions(OPERATORS, DeadLimit(), cold_s=900)
    for key, value in records:
        later.journal(0).apply(key, value)
    later.begin([0], 6)
    other = taken(messages_of([gpu_event("n2", 0)])[0][2], key=b"n2", ts_ms=AT_MS + 901_000)
    assert later.unknown([first], lambda partition: True) == {}
    assert later.unknown([other], lambda partition: True) == {(0, ("gpu", "n2")): other.offset}, "it is still asked for"
    later.told(0, ("gpu", "n2"), None)
    later.take(other)
    assert not later.cold, "but after the time (of the messages) it is warm"
    month = taken(messages_of([gpu_event("n3", 0)])[0][2], key=b"n3", ts_ms=AT_MS + 31 * 86_400_000)
    assert later.unknown([month], lambda partition: True) == {}, "and after 30 days an unknown name is a new one"


def test_a_new_deployment_is_not_cold() -> None:
    work = Partitions(OPERATORS, DeadLimit())
    work.begin([0], 1)
    assert work.unknown([taken(raws(0)[0])], lambda partition: False) == {}
    work.take(taken(raws(0)[0]))
    assert not work.cold


def test_what_went_away_is_not_remembered() -> None:
    work = Partitions(OPERATORS, DeadLimit())
    work.begin([0, 1], 1)
    work.take(taken(raws(0)[0]))
    work.save()
    work.begin([1], 2)
    work.begin([0, 1], 3)
    assert work.journal(0).bundle(NAME) is None


def test_a_limit_of_dead_messages_stops_the_worker() -> None:
    work = Partitions(OPERATORS, DeadLimit(max_consecutive=5))
    work.begin([0], 1)
    for offset in range(4):
        assert [output.topic for output in work.take(taken(b"bad", offset))] == ["dead"]
    with pytest.raises(BadDeploy):
        work.take(taken(b"bad", 4))


def test_a_failed_message_is_dead_and_the_state_goes_on() -> None:
    work = Partitions({"breaks": Breaks(1)}, DeadLimit())
    work.begin([0], 1)
    outputs = [output.topic for offset, raw in enumerate(raws(0, 1, 2)) for output in work.take(taken(raw, offset))]
    assert outputs == ["dead"]
    assert work.journal(0).bundle(NAME) == {"breaks": {"n1": {"seen": 2}}}
