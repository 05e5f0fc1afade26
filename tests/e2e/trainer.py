"""Starts the real trainer as a process of its own, and measures what it used."""

from __future__ import annotations

import csv
import os
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
PYTHON = HERE.parents[1] / ".e2e" / "venv" / "bin" / "python"


@dataclass(frozen=True)
class Plan:
    """What is trained."""

    train_images: int = 40
    val_images: int = 8
    imgsz: int = 64
    batch: int = 8
    epochs: int = 12

    @property
    def tokens(self) -> int:
        """What this training must come to: images x height x width x epochs."""
        return self.train_images * self.imgsz**2 * self.epochs


@dataclass(frozen=True)
class Trained:
    """What the trainer left and what it took."""

    folder: Path
    rows: list[dict[str, str]]
    wall_s: float
    cpu_s: float


def make_images(folder: Path, plan: Plan) -> Path:
    """Draw the data set into `folder` and return its data.yaml."""
    arguments = [str(folder), str(plan.train_images), str(plan.val_images)]
    subprocess.run([str(PYTHON), str(HERE / "make_images.py"), *arguments], check=True, timeout=120)
    return folder / "data.yaml"


def train(data: Path, runs: Path, name: str, plan: Plan, each: Callable[[float], None] | None = None) -> Trained:
    """Train with the console redirected to `runs`/NAME.log; `each(seconds)` is called ten times a second."""
    runs.mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, "YOLO_CONFIG_DIR": str(PYTHON.parents[2]), "PYTHONUNBUFFERED": "1"}
    command = [PYTHON, HERE / "train.py", data, runs, name, plan.epochs, plan.imgsz, plan.batch]
    began = time.monotonic()
    with (runs / f"{name}.log").open("wb") as log:
        process = subprocess.Popen([str(part) for part in command], stdout=log, stderr=subprocess.STDOUT, env=environment)
        while True:
            pid, status, used = os.wait4(process.pid, os.WNOHANG)
            if pid:
                break
            time.sleep(0.1)
            if each is not None:
                each(time.monotonic() - began)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"the trainer ended with {process.returncode}; read {runs / name}.log")
    wall_s = time.monotonic() - began
    return Trained(runs / name, results(runs / name), wall_s, used.ru_utime + used.ru_stime)


def results(folder: Path) -> list[dict[str, str]]:
    """The rows of results.csv so far; empty before there is one."""
    path = folder / "results.csv"
    if not path.exists():
        return []
    with path.open(encoding="utf-8", newline="") as lines:
        return [{(name or "").strip(): (value or "").strip() for name, value in row.items()} for row in csv.DictReader(lines)]
