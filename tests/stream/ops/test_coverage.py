"""Coverage counts every sample once, and expects every tick that there should have been."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from yolometer_core.delivery import Coverage
from yolometer_core.gpu import Gpu
from yolometer_stream.ops.coverage import OPERATOR

HOUR = datetime(2026, 3, 1, 12, tzinfo=UTC)


def message(seq: int, at_s: float, ticks: int = 5, gpus: int = 2, period_s: float = 1.0, source: str = "meter") -> Gpu:
    nothing = (None,) * gpus
    offsets_ms = tuple(round(1000 * period_s * tick) for tick in range(ticks))
    return Gpu(
        ts=HOUR + timedelta(seconds=at_s), node="n1", source=source, seq=seq, period_s=period_s, offsets_ms=offsets_ms,
        gpu_uuid=tuple(f"GPU-{n}" for n in range(gpus)), gpu_model=nothing, run_id=nothing, user=nothing, team=nothing,
        attribution_source=nothing, columns={},
    )  # fmt: skip


def after(*messages: Gpu) -> dict[int, tuple[int, int, int]]:
    """What is said at last of each hour, counted from 12:00: samples, expected, messages."""
    said: dict[int, Coverage] = {}
    state = OPERATOR.start()
    for each in messages:
        state, rows = OPERATOR.step(state, each)
        for row in rows:
            assert isinstance(row, Coverage)
            hour = (row.ts - HOUR) // timedelta(hours=1)
            assert row.version > (said[hour].version if hour in said else -1)
            said[hour] = row
    return {hour: (row.samples, row.samples_expected, row.messages) for hour, row in sorted(said.items())}


LATER = 10_000  # seconds after which everything before is said, in an hour of its own


def test_a_meter_without_gaps_is_covered_whole() -> None:
    assert after(*(message(n, 5 * n) for n in range(720)), message(720, 3600)) == {0: (7200, 7200, 720), 1: (10, 10, 1)}


def test_the_row_is_said_once_a_minute() -> None:
    state, said = OPERATOR.start(), []
    for n in range(60):
        state, rows = OPERATOR.step(state, message(n, 5 * n))
        said.append(len(rows))
    assert sum(said) == 5
    assert said[0] == 1, "a new meter is seen at once"


def test_a_gap_counts_as_missing_in_its_hour() -> None:
    assert after(message(0, 0), message(1, 65))[0] == (20, 2 * 70, 2)


def test_a_gap_over_hours_is_split_between_them() -> None:
    found = after(message(0, 3595), message(1, 2 * 3600 + 10), message(2, 2 * 3600 + 70))
    assert found[0] == (10, 10, 1)
    assert found[1] == (0, 2 * 3600, 0)
    assert found[2] == (20, 2 * 75, 2)


def test_a_gap_is_expected_no_further_back_than_the_hours_that_are_kept() -> None:
    found = after(message(0, 0), message(1, 100 * 3600))
    assert sorted(found) == [0, 98, 99, 100]
    assert found[98] == (0, 2 * 3600, 0)


def test_a_message_over_the_edge_of_an_hour_counts_in_both() -> None:
    found = after(message(0, 3598), message(1, LATER))
    assert found[0] == (4, 4, 1)
    assert found[1][0] == 6


@pytest.mark.parametrize("seqs", [(3, 3), (3, 2)])
def test_a_seq_that_was_passed_changes_nothing(seqs: tuple[int, int]) -> None:
    first, again = (message(seq, 0) for seq in seqs)
    assert after(first, again, message(9, 65)) == after(first, message(9, 65))


def test_each_source_has_its_own_rows() -> None:
    state, rows = OPERATOR.start(), []
    for source in ("a", "b"):
        state, said = OPERATOR.step(state, message(0, 0, source=source))
        rows += said
    assert [row.source for row in rows] == ["a", "b"]
    assert len({row.event_id for row in rows}) == 2


def test_fewer_gpus_expect_less() -> None:
    assert after(message(0, 0, gpus=8), message(1, 5, gpus=4), message(2, 60, gpus=4))[0] == (80, 40 + 20 + 55 * 4, 3)


def test_a_clock_that_was_far_ahead_does_not_end_the_counting() -> None:
    ahead = 365 * 86_400
    found = after(message(0, 0), message(1, ahead), message(2, 60), *(message(n, 60 * n) for n in range(3, 6)))
    assert found[0][0] >= 30


@given(st.lists(st.tuples(st.integers(1, 12), st.integers(0, 9000)), min_size=1, max_size=12))
def test_every_tick_of_a_grid_is_expected_once(pieces: list[tuple[int, int]]) -> None:
    """Messages of any length with any gap between them, all on one grid of seconds: an oracle counts the grid."""
    at, messages, seen = 3000, [], set()
    for seq, (ticks, gap) in enumerate(pieces):
        at += gap if seq else 0
        messages.append(message(seq, at, ticks=ticks, gpus=1))
        seen |= set(range(at, at + ticks))
        at += ticks
    state: Any = OPERATOR.start()
    for each in messages:
        state, _ = OPERATOR.step(state, each)
    epoch_hour = int(HOUR.timestamp()) // 3600
    hours = {int(hour) - epoch_hour: counts for hour, counts in state["sources"]["meter"]["hours"].items()}
    newest = (at - 1) // 3600
    for hour in range(newest - 2, newest + 1):
        grid = range(max(hour * 3600, 3000), min((hour + 1) * 3600, at))
        assert hours.get(hour, [0, 0, 0])[:2] == [sum(second in seen for second in grid), len(grid)]


def test_it_costs_little() -> None:
    messages = [message(n, 5 * n, gpus=8) for n in range(2000)]
    state = OPERATOR.start()
    began = time.process_time()
    for each in messages:
        state, _ = OPERATOR.step(state, each)
    assert (time.process_time() - began) / len(messages) < 100e-6, "it takes about 8 us on a quiet machine"
