"""results.txt: rows of 15 columns, epochs from 0 in the file and from 1 in the facts."""

from __future__ import annotations

from _cut import CASES, facts_of, fields

from yolometer_agent.formats.results_txt import FORMAT
from yolometer_core.events import ResultRow

ROW = b"".join(
    b"%10s" % cell for cell in b"17/299 7.23G 0.05779 0.00414 nan 0.08836 28 640 0.9 0.8 0.7 0.5 0.1158 0.007035 0.03733".split()
)


def test_the_rows_of_a_run() -> None:
    data = (CASES / "results_txt" / "yolov7.txt").read_bytes()
    rows = fields(facts_of(FORMAT, data), ResultRow)
    assert [row["epoch"] for row in rows] == [1, 2, 3]
    assert rows[1] == {
        "epoch": 2, "epochs_total": 3, "losses": (0.07799, 0.004791, 0.02875), "gpu_memory_bytes": None,
        "width_px": 96, "map50": 0.001222, "map50_95": 0.0001532,
    }  # fmt: skip
    assert FORMAT.recognise(data.decode()) > 90


def test_a_torn_row_says_nothing_until_it_is_complete() -> None:
    for end in range(len(ROW)):
        assert facts_of(FORMAT, ROW[:end]) == []
        assert FORMAT.peek({}, ROW[:end]) == []
    assert facts_of(FORMAT, ROW[:100] + b"\n") == []
    [row] = fields(facts_of(FORMAT, ROW + b"\r\n"), ResultRow)
    assert (row["epoch"], row["epochs_total"], row["gpu_memory_bytes"]) == (18, 300, 7_230_000_000)


def test_columns_that_lost_their_blank_are_cut_by_width() -> None:
    cells = ["17/299", "1.02e+03G", "-1.234e+05", "-1.234e+05", "0", "1", "28", "640", *"0000000"]
    [row] = fields(facts_of(FORMAT, "".join(f"{cell:>10}" for cell in cells).encode() + b"\n"), ResultRow)
    assert row["losses"] == (-123400.0, -123400.0, 0.0)


def test_a_restart_in_the_same_file_is_left_to_the_operator() -> None:
    data = (CASES / "results_txt" / "yolov7.txt").read_bytes()
    found = facts_of(FORMAT, data + data)
    assert [row["epoch"] for row in fields(found, ResultRow)] == [1, 2, 3, 1, 2, 3]
    assert {fact.session for fact in found} == {0}
