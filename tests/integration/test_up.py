"""`yolometer up` as a process: how it ends, what it says, what it remembers."""

from __future__ import annotations

import json
import shutil
import signal
import socket
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from grow import TERMS, Command, Rows, rows_of, without, yolometer

from yolometer import up
from yolometer.feed import captures
from yolometer_core.service.stopping import Stop

CAPTURE = "yolov8n-early-stop"
EPOCHS = "SELECT * EXCEPT (ts, seq, version) FROM epochs ORDER BY run_id, attempt, epoch, take"
SLOW_S = 20.0


def options(folder: Path, *more: str, port: int = 0) -> list[str]:
    store, watch = f"chdb://{folder / 'store'}", str(folder / "runs")
    return ["up", "--store", store, "--watch", watch, "--no-processes", "--port", str(port), "--node", "n", *more]


def fill(folder: Path, name: str = CAPTURE) -> Path:
    return Path(shutil.copytree(captures() / name, folder / "runs" / name))


def runs_in(folder: Path) -> list[dict[str, Any]]:
    answer = yolometer("roi", "runs", "--store", f"chdb://{folder / 'store'}", "--json")
    assert answer.code == 0, answer.err
    rows: list[dict[str, Any]] = answer.document["rows"]
    return rows


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def get(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_within_10_s_with_everything_stored(number: int, tmp_path: Path) -> None:
    log = fill(tmp_path) / "train.log"
    data = log.read_bytes()
    log.write_bytes(data[:-900])
    with Command(*options(tmp_path, "--json")) as command:
        command.until('"run"', SLOW_S)
        log.write_bytes(data)
        late = fill(tmp_path, "yolo11n-nan")
        began = time.monotonic()
        code = command.stop(number)
        took = time.monotonic() - began
        assert (code, command.err) == (0, b"")
    print(f"{signal.Signals(number).name} took {took:.1f} s")
    found = {row["name"]: row for row in runs_in(tmp_path)}
    assert len(found) == 2, f"what was written just before the end is read: {late}"
    assert {row["status"] for row in found.values()} == {"stopped_early", "failed"}
    lines = [line["run"] for line in map(json.loads, command.out.decode().splitlines()) if "run" in line]
    assert all(line["run_id"] for line in lines)


def test_one_process_one_store(tmp_path: Path) -> None:
    fill(tmp_path)
    with Command(*options(tmp_path, "--json")) as command:
        command.until('"run"', SLOW_S)
        second = yolometer(*options(tmp_path))
        assert (second.code, second.out, len(second.sentences)) == (1, "", 1), second.err
        assert "another process" in second.err
        assert f"pid {command.pid}" in second.err
        assert command.stop(signal.SIGTERM) == 0


def test_the_page_is_on_loopback_only(tmp_path: Path) -> None:
    fill(tmp_path)
    port = free_port()
    with Command(*options(tmp_path, port=port)) as command:
        command.until("stopped_early", SLOW_S)
        assert command.out == b""
        page = f"http://127.0.0.1:{port}"
        assert f"Page: {page}/" in command.err.decode()
        assert get(f"{page}/healthz") == (200, "ok\n")
        code, text = get(f"{page}/")
        assert code == 200 and "earlystop" in text and "<table>" in text
        code, text = get(f"{page}/runs.json")
        (run,) = json.loads(text)["runs"]
        assert (code, run["status"], run["epochs_done"]) == (200, "stopped_early", 3)
        assert get(f"{page}/else")[0] == 404
        listening = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
        mine = [line[1] for line in listening if line[3] == "0A" and line[1].endswith(f":{port:04X}")]
        assert mine == [f"0100007F:{port:04X}"]
        taken = yolometer("up", "--store", "chdb://memory", "--watch", str(tmp_path), "--no-processes", "--port", str(port))
        assert (taken.code, taken.out, len(taken.sentences)) == (2, "", 1), taken.err
        assert f"Port {port} cannot be used" in taken.err
        assert command.stop(signal.SIGTERM) == 0


def test_a_restart_goes_on_where_it_stopped(tmp_path: Path) -> None:
    folder = fill(tmp_path)
    data = (folder / "train.log").read_bytes()
    cut = len(data) * 3 // 4
    (folder / "train.log").write_bytes(data[:cut])
    with Command(*options(tmp_path, "--json")) as command:
        command.until('"run"', SLOW_S)
        assert command.stop(signal.SIGTERM) == 0, command.err
    checkpoint = tmp_path / "store" / "yolometer" / "up.json"
    state = json.loads(json.loads(checkpoint.read_text())["state"]["state"])
    (entry,) = [source for name, source in state["agent"]["sources"].items() if name.endswith("train.log")]
    assert 0 < entry["reader"]["follow"]["offset"] <= cut
    facts = "SELECT count() AS facts FROM progress"
    before = rows_of(f"chdb://{tmp_path / 'store'}", facts)[0][0]["facts"]
    with (folder / "train.log").open("ab") as log:
        log.write(data[cut:])
    with Command(*options(tmp_path, "--json")) as command:
        command.until('"stopped_early"', SLOW_S)
        assert command.stop(signal.SIGTERM) == 0, command.err
    after = rows_of(f"chdb://{tmp_path / 'store'}", "SELECT count() AS facts, uniqExact(event_id) AS ids FROM progress")[0][0]
    assert after["facts"] == after["ids"] > before, "no fact was told twice"
    (run,) = runs_in(tmp_path)
    assert (run["status"], run["epochs_done"]) == ("stopped_early", 3)
    with Command(*options(tmp_path, "--json")) as command:
        time.sleep(4)
        assert command.stop(signal.SIGTERM) == 0, command.err
    assert command.out == b"", "nothing is new, so nothing is said"


@pytest.mark.parametrize("damage", ["flipped", "empty"])
def test_a_damaged_checkpoint_is_reported_and_all_is_read_again(damage: str, tmp_path: Path) -> None:
    fill(tmp_path)
    with Command(*options(tmp_path, "--json")) as command:
        command.until('"stopped_early"', SLOW_S)
        assert command.stop(signal.SIGTERM) == 0, command.err
    whole, epochs = runs_in(tmp_path), rows_of(f"chdb://{tmp_path / 'store'}", EPOCHS)
    checkpoint = tmp_path / "store" / "yolometer" / "up.json"
    for path in (checkpoint, checkpoint.with_name("up.json.bak")):
        if path.exists():
            data = path.read_bytes()
            flipped = data[:200] + bytes([data[200] ^ 1]) + data[201:]
            path.write_bytes(flipped if damage == "flipped" else b"")
    with Command(*options(tmp_path)) as command:
        command.until("checkpoint", SLOW_S)
        command.until("stopped_early", SLOW_S)
        assert command.stop(signal.SIGTERM) == 0, command.err
    said = command.err.decode()
    assert "is damaged" in said and "all is read again" in said and "Traceback" not in said
    assert runs_in(tmp_path) == whole
    assert rows_of(f"chdb://{tmp_path / 'store'}", EPOCHS) == epochs


def test_a_folder_that_does_not_exist_yet_is_waited_for(tmp_path: Path) -> None:
    with Command(*options(tmp_path, "--json")) as command:
        time.sleep(3)
        assert command.process.poll() is None, command.err
        fill(tmp_path)
        command.until('"stopped_early"', SLOW_S)
        assert command.stop(signal.SIGTERM) == 0, command.err


def test_progress_inside_an_epoch_is_seen_before_any_newline(tmp_path: Path) -> None:
    """A trainer redraws its bar with CR and ESC[K: a whole epoch is one line."""
    data = (captures() / "yolov8n-long" / "train.log").read_bytes()
    first = data.index(b"Starting training")
    bars = data.index(b"\r", first)
    line_end = data.index(b"\n", bars)
    assert data.count(b"\r", bars, line_end) > 1
    log = tmp_path / "runs" / "live" / "train.log"
    log.parent.mkdir(parents=True)
    log.write_bytes(data[:bars])
    frames = data[bars:line_end].split(b"\r")[1:]
    middle = [frame for frame in frames if b"/3 " in frame and b"3/3" not in frame][-1]
    seen: list[tuple[int | None, int | None]] = []

    class Rounds(Stop):
        def wait(self, seconds: float) -> bool:
            if len(seen) == 1:
                with log.open("ab") as file:
                    file.write(b"\r" + middle)
            return super().wait(0.6)

    stop, store = Rounds(), Rows()

    def beat(told: up.Beat) -> None:
        seen.extend((run.epoch_now, run.iterations_done) for run in told.runs.values())
        if len(seen) > 3:
            stop.set()

    up.run(
        store, TERMS, watch=[str(tmp_path / "runs")], node="n", stop=stop, checkpoint=None, processes=False, seconds=20, beat=beat
    )
    assert b"\n" not in middle
    assert (1, 1) in seen


def test_the_same_folder_by_replay_says_the_same(tmp_path: Path) -> None:
    folder = fill(tmp_path)
    with Command(*options(tmp_path, "--json")) as command:
        command.until('"stopped_early"', SLOW_S)
        assert command.stop(signal.SIGTERM) == 0, command.err
    replayed = yolometer("replay", folder, "--node", "n", "--json").document["runs"]
    assert without(runs_in(tmp_path)) == without(replayed)
    assert command.out.startswith(b"{"), command.out
    last = json.loads(command.out.decode().splitlines()[-1])["run"]
    assert last == replayed[0]
