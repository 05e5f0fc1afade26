"""Whatever is given to the command: one sentence, the right exit code, one JSON document, and the rest of the work done."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from grow import SOAK, Answer, Command, yolometer

from yolometer.feed import captures

FINE, FAILED, USAGE, NOTHING = 0, 1, 2, 3
HEAD = "epoch,time,train/box_loss,metrics/mAP50(B),metrics/mAP50-95(B)\n"
TABLE = HEAD + "1,60,1.5,0.3,0.1\n2,120,1.4,0.4,0.2\n3,180,1.3,0.5,0.3\n"
SPARSE_BYTES = 2 << 30 if SOAK else 300 << 20


def one_sentence(answer: Answer, code: int, *words: str) -> None:
    """It ended with `code` and said one sentence on stderr, with these words, and nothing on stdout."""
    assert "Traceback" not in answer.err, answer.err
    assert answer.code == code, (answer.code, answer.err)
    assert answer.out == "", answer.out
    assert len(answer.sentences) == 1, answer.err
    assert answer.err.startswith("yolometer: ") and answer.err.rstrip().endswith("."), answer.err
    for word in words:
        assert word in answer.err, answer.err


@pytest.fixture(scope="module")
def zoo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with everything that is no training log, and some that are."""
    top = tmp_path_factory.mktemp("zoo") / "runs"

    def put(name: str, data: str | bytes) -> None:
        path = top / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data.encode() if isinstance(data, str) else data)

    rng = random.Random(5)
    console = (captures() / "yolov8n-early-stop" / "train.log").read_text(encoding="utf-8")
    put("good/results.csv", TABLE)
    put("utf16-table/results.csv", TABLE.replace("0.1", "0.11").encode("utf-16"))
    put("utf16-console/train.log", console.encode("utf-16"))
    put("crlf/results.csv", TABLE.replace("0.1", "0.12").replace("\n", "\r\n"))
    put("torn/results.csv", TABLE.replace("0.1", "0.13")[:-4])
    put("unknown-columns/results.csv", "a,b,c\n1,2,3\n2,3,4\n")
    longer = [f"{line},{at}\n" for at, line in enumerate(TABLE.replace("0.1", "0.14").splitlines())]
    put("more-columns/results.csv", "".join(longer))
    put("shifted/results.csv", HEAD + "60,1,1.5,0.3,0.15\n120,2,1.4,0.4\nx,y,z,,\n,,,,\n")
    put("nan/results.csv", TABLE.replace("0.1", "nan").replace("1.4", "inf").replace("1.3", "-inf"))
    put("empty/train.log", b"")
    put("binary/train.log", rng.randbytes(200_000))
    put("noise/results.csv", rng.randbytes(5_000))
    put("noise/args.yaml", rng.randbytes(5_000))
    put("nuls/train.log", bytes(100_000))
    put("malformed/args.yaml", "epochs: [1, 2\nbatch: }: {\n")
    bomb = [f"{b}: &{b} [{','.join([f'*{a}'] * 9)}]\n" for a, b in itertools.pairwise("abcdefghi")]
    put("aliases/args.yaml", "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(bomb))
    put("tags/args.yaml", "epochs: !!python/object/apply:os.system ['touch /tmp/yolometer-was-here']\nmodel: yolov8n.pt\n")
    put("deep/args.yaml", "a: " + "[" * 10_000 + "]" * 10_000 + "\n")
    put("deeper/opt.yaml", "".join(" " * at + "a:\n" for at in range(3_000)))
    put("large/args.yaml", "task: detect\nmode: train\nmodel: yolov8n.pt\n" + "x: y\n" * (1 << 20))
    numbers = f"epochs: 1e999\nbatch: {'9' * 30}\nimgsz: [a, {{b: c}}]\n"
    put("numbers/args.yaml", "task: detect\nmode: train\nmodel: yolov8n.pt\n" + numbers)
    put("numbers/results.csv", HEAD + f"{'9' * 400},60,1.5,0.3,0.1\n1,1e999,1,1,1\n-5,60,1,1,1\n1e3,60,1,1,1\n")
    huge = "9" * 25
    for at, (said, then) in enumerate((("/30 ", f"/{huge} "), ("24 train", f"{huge} train"), ("imgsz=96", f"imgsz={huge}"))):
        put(f"huge{at}/train.log", console.replace(said, then))
    put("huge-epoch/results.csv", HEAD + f"{'9' * 25},60,1.5,0.3,0.1\n{2**63 - 1},60,1.5,0.3,0.1\n")
    (top / "table-is-a-folder" / "results.csv").mkdir(parents=True)
    (top / "nothing").mkdir()
    (top / "loop").mkdir()
    (top / "loop" / "again").symlink_to(top)
    (top / "loop" / "self.log").symlink_to(top / "loop" / "self.log")
    (top / "loop" / "dangling.log").symlink_to(top / "nowhere.log")
    os.mkfifo(top / "loop" / "pipe.log")
    place = Path.cwd()
    try:  # the name of a socket is short
        os.chdir(top / "loop")
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind("socket.log")
    finally:
        os.chdir(place)
    put("sparse/train.log", b"")
    os.truncate(top / "sparse" / "train.log", SPARSE_BYTES)
    return top


def check_zoo(runs: list[dict[str, Any]]) -> None:
    by_epochs = sorted((run["framework"] or "", run["epochs_done"] or 0, run["best_map50_95"]) for run in runs)
    tables = [run for run in by_epochs if run[1] == 3 and run[2] == 0.3]
    assert len(tables) >= 4, by_epochs
    assert any(run["status"] == "stopped_early" for run in runs), "a console in UTF-16 is read"


def test_replay_reads_what_can_be_read_and_lists_the_rest(zoo: Path) -> None:
    answer = yolometer("replay", zoo, "--json", "--node", "n", seconds=120)
    assert answer.code == FINE, answer.err
    assert answer.err == ""
    check_zoo(answer.document["runs"])
    skipped = {os.path.relpath(item["path"], zoo): item["reason"] for item in answer.document["skipped"]}
    for name in ("empty/train.log", "binary/train.log", "noise/results.csv", "unknown-columns/results.csv", "sparse/train.log",
                 "loop/self.log", "loop/dangling.log", "loop/pipe.log", "loop/socket.log", "malformed/args.yaml"):  # fmt: skip
        assert skipped.get(name), (name, skipped)
    assert all(reason for reason in skipped.values())
    assert not Path("/tmp/yolometer-was-here").exists()
    assert answer.seconds < 60, f"it took {answer.seconds:.0f} s"
    names = {tuple(run["sources"]) for run in answer.document["runs"]}
    print(f"{answer.seconds:.1f} s, {len(answer.document['runs'])} runs, {len(skipped)} skipped, {names}")


def test_up_goes_on_beside_what_cannot_be_read(zoo: Path, tmp_path: Path) -> None:
    store = f"chdb://{tmp_path / 'store'}"
    with Command("up", "--store", store, "--watch", str(zoo), "--no-processes", "--port", "0", "--json") as command:
        command.until("stopped_early", 30)
        time.sleep(1)
        assert command.stop(signal.SIGTERM) == FINE, command.err
    assert b"Traceback" not in command.err
    newest = {line["run"]["run_id"]: line["run"] for line in map(json.loads, command.out.decode().splitlines()) if "run" in line}
    check_zoo(list(newest.values()))


@pytest.mark.parametrize(
    ("what", "code", "words"),
    [
        ("missing/path", NOTHING, ["missing/path"]),
        ("", USAGE, ["path"]),
        ("empty-folder", NOTHING, ["empty-folder"]),
        ("empty.log", NOTHING, ["It is empty"]),
        ("noise.bin.log", NOTHING, ["no training log"]),
        ("pipe", NOTHING, ["a pipe"]),
    ],
)
def test_replay_of_nothing(what: str, code: int, words: list[str], tmp_path: Path) -> None:
    (tmp_path / "empty-folder").mkdir()
    (tmp_path / "empty.log").touch()
    (tmp_path / "noise.bin.log").write_bytes(random.Random(1).randbytes(1000))
    os.mkfifo(tmp_path / "pipe")
    answer = yolometer("replay", what, "--json", cwd=tmp_path, seconds=30)
    assert answer.code == code, answer.err
    assert "Traceback" not in answer.err
    if code == USAGE:
        one_sentence(answer, USAGE, *words)
        return
    assert answer.document["runs"] == []
    said = json.dumps(answer.document["skipped"])
    for word in words:
        assert word in said


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["replay", ".", "--price", "abc"], ["--price", "'abc'"]),
        (["replay", ".", "--price", "-1"], ["--price"]),
        (["replay", ".", "--price", "nan"], ["--price"]),
        (["replay", ".", "--owner", "vision"], ["--owner", "KEY=VALUE"]),
        (["replay", ".", "--currency", "EURO"], ["--currency"]),
        (["roi", "wasted_token"], ["wasted_tokens"]),
        (["roi", "runs", "--param", "run"], ["--param", "NAME=VALUE"]),
        (["roi", "runs", "--param", "nope=1"], ["no parameter nope"]),
        (["replay", ".", "--store", "sqlite:///x"], ["sqlite"]),
        (["sql", "status", "--store", "nothing"], ["store"]),
        (["up", "--store", "chdb://"], ["chdb:///folder"]),
        (["demo", "--store", "clickhouse://"], ["clickhouse://"]),
    ],
)
def test_wrong_usage_is_one_sentence(arguments: list[str], words: list[str], tmp_path: Path) -> None:
    one_sentence(yolometer(*arguments, cwd=tmp_path), USAGE, *words)


REFUSED = [["replay", ".", "--gpus", "0"], ["replay"], ["demo", "--seconds", "x"], ["up", "--port", "99999"], ["nope"]]


@pytest.mark.parametrize("arguments", REFUSED)
def test_options_that_the_parser_refuses(arguments: list[str], tmp_path: Path) -> None:
    answer = yolometer(*arguments, cwd=tmp_path)
    assert answer.code == USAGE
    assert answer.out == "" and "Traceback" not in answer.err and answer.sentences


def test_stores_that_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "photo.jpg").write_text("x")
    for path, words in (("file", "is a file"), ("file/below", "is a file"), ("other", "holds other files")):
        one_sentence(yolometer("replay", ".", "--store", f"chdb://{tmp_path / path}", "--json", cwd=tmp_path), FAILED, words)
    answer = yolometer("doctor", "--store", f"chdb://{tmp_path / 'file'}", "--json")
    assert answer.code == FAILED and answer.err == ""
    (check,) = [check for check in answer.document["checks"] if check["check"] == "store"]
    assert not check["ok"] and "is a file" in check["says"]
    assert len(answer.document["checks"]) == 5, "the other checks are done all the same"


def test_a_store_that_another_process_has_open_and_one_that_is_damaged(tmp_path: Path) -> None:
    """Both in one, for a filled store costs seconds."""
    runs, store = tmp_path / "runs", tmp_path / "store"
    shutil.copytree(captures() / "yolov8n-early-stop", runs / "a")
    url = f"chdb://{store}"
    with Command("up", "--store", url, "--watch", str(runs), "--no-processes", "--port", "0", "--json") as command:
        command.until("stopped_early", 30)
        for arguments in (["replay", str(runs), "--json"], ["roi", "runs", "--json"], ["sql", "status"]):
            one_sentence(yolometer(*arguments, "--store", url), FAILED, "another process", f"pid {command.pid}")
        assert command.stop(signal.SIGTERM) == FINE, command.err
    parts = [path for path in (store / "store").rglob("*") if path.is_file() and path.suffix in (".bin", ".cmrk2", ".cmrk4")]
    assert parts
    for path in parts:
        data = bytearray(path.read_bytes())
        for at in range(0, len(data), 7):
            data[at] ^= 0x5A
        path.write_bytes(bytes(data))
    one_sentence(yolometer("roi", "runs", "--store", url, "--json"), FAILED, "damaged")


def test_a_store_whose_metadata_is_damaged(tmp_path: Path) -> None:
    url = f"chdb://{tmp_path / 'store'}"
    assert yolometer("sql", "migrate", "--store", url).code == FINE
    for path in (tmp_path / "store" / "metadata").rglob("*.sql"):
        path.write_bytes(bytes(20))
    one_sentence(yolometer("roi", "runs", "--store", url, "--json"), FAILED, "damaged")


def test_a_full_disk(tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", str(small)], capture_output=True, check=False)
    if mounted.returncode:
        pytest.skip(f"no tmpfs can be mounted here: {mounted.stderr.decode().strip()}")
    try:
        url = f"chdb://{small / 'store'}"
        assert yolometer("sql", "migrate", "--store", url).code == FINE
        with (small / "filler").open("wb", buffering=0) as filler, contextlib.suppress(OSError):
            while filler.write(bytes(1 << 12)):
                pass
        one_sentence(yolometer("replay", captures(), "--store", url, "--json", seconds=120), FAILED, "full")
        (small / "filler").unlink()
        again = yolometer("replay", captures(), "--store", url, "--json", seconds=120)
        assert (again.code, len(again.document["runs"])) == (FINE, len(list(captures().iterdir()))), again.err
    finally:
        subprocess.run(["umount", "-l", str(small)], check=False)


def test_json_is_one_document_also_where_nothing_is_wrong(tmp_path: Path) -> None:
    for arguments, code in ((["parts"], FINE), (["roi"], FINE), (["roi", "runs"], FINE)):
        answer = yolometer(*arguments, "--json", env={"YOLOMETER_STORE": "chdb://memory"})
        assert (answer.code, answer.err) == (code, ""), answer.err
        assert answer.document
