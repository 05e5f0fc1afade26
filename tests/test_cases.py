"""Cases from the field: small logs with right answers, in tests/cases/synthetic, written out as trainers write them.

A case is `what` it is about, its `files` in pieces, and the `runs` that are true. A piece is a line of text, or one of
`start` (all that a process prints before its first epoch), `epoch` (a bar with its redraws, and the validation),
`end` (what a process prints after its last epoch), `table` (rows of results.csv) and `raw` (text without a line end).
"""

# ruff: noqa: E501 - the lines that trainers write are long
from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from _replayed import NODE, Memory, Rows, essence, facts_of, mismatch, only, replayed, runs_from

from yolometer.box import formats
from yolometer_agent.agent import Agent
from yolometer_agent.tail.writers import Writers
from yolometer_core.events import Fact, Progress

CASES = Path(__file__).parent / "cases" / "synthetic"
NAMES = sorted(path.stem for path in CASES.glob("*.yaml"))
ARGS = (
    "amp=True, batch={batch}, cache=False, close_mosaic=10, cos_lr=False, data=coco.yaml, deterministic=True, device={device}, epochs={epochs}, "
    "exist_ok=False, fraction=1.0, freeze=None, imgsz={imgsz}, iou=0.7, lr0=0.01, mixup=0.0, mode=train, model={model}, momentum=0.937, "
    "mosaic=1.0, multi_scale={multi_scale}, name={name}, nbs=64, optimizer=auto, patience=100, project=None, rect={rect}, resume={resume}, "
    "save_dir={save_dir}, seed=0, single_cls=False, task=detect, time={time}, val=True, workers=8"
)
HEADER = "\n      Epoch    GPU_mem   box_loss   cls_loss   dfl_loss  Instances       Size\n"
VALIDATION = "                 Class     Images  Instances      Box(P          R      mAP50  mAP50-95)"
COLUMNS = (
    "epoch,time,train/box_loss,train/cls_loss,train/dfl_loss,metrics/precision(B),metrics/recall(B),metrics/mAP50(B),"
    "metrics/mAP50-95(B),val/box_loss,val/cls_loss,val/dfl_loss,lr/pg0,lr/pg1,lr/pg2"
)


def losses_of(epoch: int, shift: float) -> tuple[float, float, float]:
    """Losses that differ from epoch to epoch and, by `shift`, from run to run."""
    return 1.6 - 0.011 * epoch + shift, 2.3 - 0.017 * epoch + shift, 1.2 - 0.007 * epoch + shift


def map_of(epoch: int) -> float:
    return round(0.1 + 0.01 * epoch, 5)


def clock(seconds: float) -> str:
    """Seconds as the bar of Ultralytics prints them."""
    if seconds < 60:
        return f"{seconds:.1f}s"
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def banner(version: str, gpus: Sequence[str]) -> str:
    head = f"Ultralytics {'YOLOv' if version < '8.3' else ''}{version} 🚀 Python-3.11.7 torch-2.4.1+cu121 "
    if not gpus:
        return f"{head}CPU (Intel Xeon Processor)\n"
    lines = [f"CUDA:{number} ({gpu})" for number, gpu in enumerate(gpus)]
    return head + ("\n" + " " * len(head)).join(lines) + "\n"


def start(piece: Mapping[str, Any]) -> str:
    """All that a process prints before its first epoch."""
    told = {"version": "8.4.190", "gpus": [], "batch": 64, "epochs": 10, "imgsz": 640, "images": 640, "val_images": 64, "model": "yolo11n.yaml",
            "save_dir": "/data/runs/detect/train", "device": None, "resume": False, "multi_scale": 0.0, "rect": False, "time": None,
            "args": True, "between": "", **piece}  # fmt: skip
    told.setdefault("name", told["save_dir"].rstrip("/").rsplit("/", 1)[-1])
    arguments = ARGS.format(**told)
    parent = banner(told["version"], told["gpus"])
    text = parent + (f"\x1b[34m\x1b[1mengine/trainer: \x1b[0m{arguments}\n" if told["args"] else "") + told.get("ddp", "")
    if "ddp" in told:
        text += parent  # rank 0 prints the banner again, without arguments
    text += "Overriding model.yaml nc=80 with nc=3\n\nYOLO11n summary: 181 layers, 2,590,425 parameters, 2,590,409 gradients, 6.5 GFLOPs\n\n"
    scan = f"\x1b[34m\x1b[1mtrain: \x1b[0mScanning /data/coco/labels/train.cache... {told['images']} images, 0 backgrounds, 0 corrupt: "
    text += f"\r\x1b[K{scan}100% ━━━━━━━━━━━━ {told['images']}/{told['images']} 3.1Kit/s 0.2s\n" + told["between"]
    text += "\x1b[34m\x1b[1moptimizer:\x1b[0m SGD(lr=0.01, momentum=0.9) with parameter groups 81 weight(decay=0.0), 88 weight(decay=0.0005)\n"
    if told["resume"]:
        text += (
            f"Resuming training {told['save_dir']}/weights/last.pt from epoch {told['from']} to {told['epochs']} total epochs\n"
        )
    text += f"Using {told['images']} train, {told['val_images']} val images for fraction=1.0 at imgsz={told['imgsz']}\n"
    text += f"Using 8 dataloader workers\nLogging results to \x1b[1m{told['save_dir']}\x1b[0m\n"
    return (
        f"{text}Starting training for {told['time']} hours...\n"
        if told["time"]
        else f"{text}Starting training for {told['epochs']} epochs...\n"
    )


def epoch(piece: Mapping[str, Any]) -> str:
    """One epoch: header, redraws at the counters `at`, and the validation unless `val` is false or the bar was cut."""
    told = {"of": 10, "total": 10, "seconds": 30.0, "size": 640, "memory": "7.23G", "shift": 0.0, "style": "own", "val": True, "val_seconds": 1.2,
            "val_images": 64, "map": map_of(piece["n"]), "header": True, **piece}  # fmt: skip
    number, total, seconds = told["n"], told["total"], float(told["seconds"])
    counters = told.get("at", [0, max(total // 2, 1), total])
    sizes = told.get("sizes", [told["size"]] * len(counters))
    box, cls, dfl = losses_of(number, told["shift"])
    text = HEADER if told["header"] else ""
    position = f"{number}/{told['of']}"
    for done, size in zip(counters, sizes, strict=True):
        desc = f"{position:>11}{told['memory']:>11}{box:>11.4g}{cls:>11.4g}{dfl:>11.4g}{37:>11}{size:>11}"
        percent, spent = told.get("percent", {}).get(done, 100 * done // total), seconds * done / total
        if told["style"] == "tqdm":
            text += f"\r{desc}: {percent:>3}%|█████     | {done}/{total} [{clock_tqdm(spent)}<{clock_tqdm(seconds - spent)}, {total / seconds:5.2f}it/s]"
        else:
            left = "" if done in (0, total) else f"<{clock(seconds - spent)}"
            rate = f"{total / seconds:.1f}it/s" if total > seconds else f"{seconds / total:.1f}s/it"
            lead = "" if told["style"] == "ci" else "\r\x1b[K"
            text += f"{lead}{desc}: {percent}% ━━━━━━────── {done}/{total} {rate if done else ''} {clock(spent)}{left}"
    if told.get("cut"):
        return text
    text += "\n"
    if told["val"] and counters[-1] == total:
        text += f"\r\x1b[K{VALIDATION}: 100% ━━━━━━━━━━━━ 2/2 {2 / told['val_seconds']:.1f}it/s {clock(told['val_seconds'])}\n"
        text += all_row(told["val_images"], told["map"])
    return text


def clock_tqdm(seconds: float) -> str:
    return f"{int(seconds) // 60:02}:{int(seconds) % 60:02}"


def all_row(images: int, score: float, name: str = "all") -> str:
    return f"{name:>22}{images:>11}{3 * images:>11}{0.6:>11.3g}{0.5:>11.3g}{score + 0.2:>11.3g}{score:>11.3g}\n"


def end(piece: Mapping[str, Any]) -> str:
    """What a process prints after its last epoch: the validation of the best weights is no epoch."""
    told = {
        "version": "8.4.190",
        "gpus": [],
        "hours": "0.083",
        "save_dir": "/data/runs/detect/train",
        "map": 0.9,
        "val_images": 64,
        **piece,
    }
    text = f"\n{told['epochs']} epochs completed in {told['hours']} hours.\nOptimizer stripped from {told['save_dir']}/weights/last.pt, 5.4MB\n"
    text += (
        f"Optimizer stripped from {told['save_dir']}/weights/best.pt, 5.4MB\n\nValidating {told['save_dir']}/weights/best.pt...\n"
    )
    text += banner(told["version"], told["gpus"])
    text += "YOLO11n summary (fused): 100 layers, 2,582,737 parameters, 0 gradients, 6.4 GFLOPs\n"
    text += f"\r\x1b[K{VALIDATION}: 100% ━━━━━━━━━━━━ 2/2 1.7it/s 1.2s\n{all_row(told['val_images'], told['map'])}"
    text += "".join(all_row(20, told["map"], name) for name in ("person", "traffic light", "bus"))
    return (
        text
        + f"Speed: 0.1ms preprocess, 4.5ms inference, 0.0ms loss, 0.2ms postprocess per image\nResults saved to \x1b[1m{told['save_dir']}\x1b[0m\n"
    )


def table(piece: Mapping[str, Any]) -> str:
    """Rows of results.csv: `epochs`, their `time`, and what a row says of the validation."""
    shift = piece.get("shift", 0.0)
    text = "" if piece.get("header") is False else COLUMNS + "\n"
    for number, time in zip(piece["epochs"], piece["time"], strict=True):
        box, cls, dfl = losses_of(number, shift)
        score = piece.get("map", {}).get(number, map_of(number))
        text += f"{number},{time:.6g},{box:.6g},{cls:.6g},{dfl:.6g},0.6,0.5,{score + 0.2:.6g},{score:.6g},1.1,1.2,0.9,0.01,0.01,0.01\n"
    return text


PIECES: dict[str, Callable[[Any], str]] = {"start": start, "epoch": epoch, "end": end, "table": table, "raw": str}


def written(pieces: Sequence[Any], root: Path) -> bytes:
    """The bytes of a file; `{ROOT}` stands for the folder that all files of the case lie in."""
    text = ""
    for piece in pieces:
        if isinstance(piece, str):
            text += piece + "\n"
        else:
            ((kind, what),) = piece.items()
            text += PIECES[kind](what)
    return text.replace("{ROOT}", str(root)).encode()


def case(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((CASES / f"{name}.yaml").read_text())
    return loaded


def laid_out(files: Mapping[str, Any], root: Path) -> Path:
    for name, pieces in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        content = written(pieces, root)
        if name.endswith(".crlf.csv"):
            content = content.replace(b"\n", b"\r\n")
        (root / name).write_bytes(content)
    return root


@pytest.mark.parametrize("name", NAMES)
def test_case(name: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    told = case(name)
    root = laid_out(told["files"], tmp_path)
    store = Memory()
    runs = replayed(root, store=store, **told.get("terms", {}))
    assert not mismatch(runs, told["runs"])
    assert essence(replayed(root, store=store, **told.get("terms", {}))) == essence(runs)


def drained(agent: Agent) -> list[Fact]:
    agent.scan()
    facts: list[Fact] = []
    more = True
    while more:
        found, more = agent.poll()
        facts += found
    return facts


def watching(root: Path, written: Callable[[], bool] = lambda: False) -> Agent:
    """An agent that sees a process write every file of `root` while `written` says so, and none otherwise."""

    def look() -> Writers:
        seen = [path.stat() for path in root.rglob("*") if path.is_file()] if written() else []
        return Writers({(stat.st_dev, stat.st_ino): frozenset({1}) for stat in seen}, True, (), Path("/proc"))

    return Agent([str(root)], formats(), node=NODE, look=look)


def test_a_table_made_again_is_a_new_run(tmp_path: Path) -> None:
    """CASES A3 c: three rows were read, the file is deleted, a new one has the same header and one row."""
    path = tmp_path / "results.csv"
    path.write_text(table({"epochs": [1, 2, 3], "time": [60, 120, 180]}))
    agent = watching(tmp_path)
    facts = drained(agent)
    path.unlink()
    path.write_text(table({"epochs": [1], "time": [50], "shift": 0.3}))
    facts += drained(agent)
    agent.close()
    runs = sorted(runs_from(facts), key=lambda run: run["epochs_done"])
    assert [(run["epochs_done"], run["train_seconds"]) for run in runs] == [(1, 50.0), (3, 180.0)]


def early_100_percent() -> tuple[str, str, str]:
    """CASES A4: what stands in the log before the epoch is over, its last redraw, and what follows."""
    before = start({"epochs": 1, "images": 6400, "batch": 16})
    bar = {"n": 1, "of": 1, "total": 400, "seconds": 560, "percent": {398: 100, 399: 100}}
    early = epoch({**bar, "at": [398, 399], "cut": True})
    last = epoch({**bar, "at": [400], "header": False, "cut": True})
    rest = "\n" + epoch({**bar, "at": [400], "header": False}).partition("\n")[2] + end({"epochs": 1})
    return before + early, last, rest


def test_an_epoch_is_over_by_its_count_not_its_percentage(tmp_path: Path) -> None:
    early, last, rest = early_100_percent()
    log = tmp_path / "train.log"
    log.write_text(early)
    agent = watching(tmp_path)
    facts = drained(agent)
    told = [fact for fact in facts if isinstance(fact, Progress)]
    assert (told[-1].iterations_done, told[-1].iterations_total) == (399, 400), "live progress before the line ends"
    assert only(runs_from(facts))["epochs_done"] == 0
    with log.open("a") as file:
        file.write(last)
    facts += drained(agent)
    assert only(runs_from(facts))["epochs_done"] == 1
    with log.open("a") as file:
        file.write(rest)
    facts += drained(agent)
    agent.close()
    run = only(runs_from(facts))
    assert (run["epochs_done"], run["images"], run["tokens_mtok"], run["status"]) == (1, 6400, 6400 * 0.4096, "finished")


def test_a_complete_epoch_is_one_event(tmp_path: Path) -> None:
    early, last, rest = early_100_percent()
    log = tmp_path / "train.log"
    agent = watching(tmp_path)
    facts: list[Fact] = []
    for text in (early, last, rest):
        with log.open("a") as file:
            file.write(text)
        facts += drained(agent)
    agent.close()
    complete = {fact.event_id for fact in facts if isinstance(fact, Progress) and fact.iterations_done == fact.iterations_total}
    assert len(complete) == 1


@pytest.mark.parametrize("name", NAMES)
def test_a_case_that_grows_line_by_line_ends_the_same(name: str, tmp_path: Path) -> None:
    """Read piece by piece, as the trainer wrote it, a case has the same right answer."""
    told = case(name)
    root = laid_out(told["files"], tmp_path / "whole")
    grown = tmp_path / "whole"
    contents = {path: path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}
    for path in contents:
        path.unlink()
    left = len(contents)
    agent = watching(grown, lambda: left > 0)
    facts: list[Fact] = []
    for path, content in sorted(contents.items(), key=lambda item: item[0].suffix != ".yaml"):
        path.touch()
        pieces = [content] if path.suffix == ".yaml" else content.splitlines(keepends=True)
        for piece in pieces:
            with path.open("ab") as file:
                file.write(piece)
            facts += drained(agent)
        left -= 1
    facts += drained(agent) + agent.stands(digest=True)
    agent.close()
    truths = [{k: v for k, v in run.items() if not k.startswith(("gpu_seconds", "k_s_per"))} for run in told["runs"]]
    assert not mismatch(runs_from(facts), truths)


@pytest.mark.parametrize(("rate", "per_s"), [("1.4s/it", 1 / 1.4), ("0.7it/s", 0.7)])
def test_both_forms_of_a_rate_give_the_seconds(rate: str, per_s: float, tmp_path: Path) -> None:
    bar = epoch({"n": 1, "of": 1, "total": 400, "at": [400], "cut": True}).rpartition(" 400/400")[0]
    (tmp_path / "train.log").write_text(
        f"{start({'epochs': 1})}{bar} 400/400 {rate} {clock(400 / per_s)}\n{end({'epochs': 1, 'hours': '0.159'})}"
    )
    run = only(replayed(tmp_path))
    assert run["train_seconds"] == pytest.approx(400 / per_s, rel=0.05)


def test_two_mebibytes_of_redraws_without_a_line_end(tmp_path: Path) -> None:
    """CASES A4: an epoch of 20,000 redraws is one line; the epoch counts once and what follows is read."""
    total = 20_000
    bar = {"n": 1, "of": 2, "total": total, "seconds": 3200}
    text = start({"epochs": 2, "images": 2 * total, "batch": 2}) + epoch({**bar, "at": range(total + 1)})
    assert len(text) > 2 << 20
    (tmp_path / "train.log").write_text(text + epoch({**bar, "n": 2}) + end({"epochs": 2, "hours": "1.778"}))
    run = only(replayed(tmp_path))
    assert (run["epochs_done"], run["images"], run["wasted_mtok"], run["status"]) == (2, 4 * total, 0.0, "finished")


def test_a_log_elsewhere_finds_its_directory_by_the_process_that_writes_it(tmp_path: Path) -> None:
    """The log names a relative directory; the process that writes it was started somewhere else than the log lies."""
    logs, project = tmp_path / "logs", tmp_path / "projects" / "detector"
    home = project / "runs" / "detect" / "train"
    logs.mkdir()
    home.mkdir(parents=True)
    (home / "results.csv").write_text(table({"epochs": [1, 2], "time": [31, 62]}))
    text = start({"epochs": 3, "save_dir": "runs/detect/train"}) + epoch({"n": 1, "of": 3}) + epoch({"n": 2, "of": 3})
    code = "import sys; sys.stdout.write(open(sys.argv[1]).read()); sys.stdout.flush(); print('-', file=sys.stderr, flush=True); sys.stdin.read()"
    (tmp_path / "text").write_text(text)
    with (logs / "job-17.out").open("w") as log:
        child = subprocess.Popen(
            [sys.executable, "-c", code, str(tmp_path / "text")],
            cwd=project,
            stdout=log,
            stderr=subprocess.PIPE,
            stdin=subprocess.PIPE,
        )
    assert child.stderr is not None
    assert child.stdin is not None
    try:
        child.stderr.readline()
        agent = Agent([str(logs), str(home)], formats(), node=NODE)
        facts = drained(agent) + agent.stands()
        agent.close()
    finally:
        child.stdin.close()
        child.wait(10)
        child.stderr.close()
    run = only(runs_from(facts))
    assert run["place"] == f"{NODE}:{os.path.realpath(home)}"
    assert (run["epochs_done"], run["status"]) == (2, "running")
    assert run["train_seconds"] == pytest.approx(62 - 2 * 1.2, rel=0.01)


def test_facts_of_a_case_are_there() -> None:
    """The folder of cases is not empty, and every case says what it is about."""
    assert NAMES
    assert all(isinstance(case(name)["what"], str) for name in NAMES)


def rows_by_epoch(runs: Rows) -> list[Any]:
    return sorted((run["epochs_done"], run["tokens_mtok"]) for run in runs)


def test_a_run_is_one_whichever_half_comes_first(tmp_path: Path) -> None:
    """stdout and stderr apart (tqdm on stderr): the order in which the halves are read does not matter."""
    told = case("stdout-and-stderr-apart")
    root = laid_out(told["files"], tmp_path)
    said = facts_of(root)
    there = runs_from(fact for name in sorted(said) for fact in said[name])
    back = runs_from(fact for name in sorted(said, reverse=True) for fact in said[name])
    assert rows_by_epoch(there) == rows_by_epoch(back)
