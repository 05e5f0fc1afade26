"""Trains a tiny YOLOv8 from scratch on the CPU, as a user would: python train.py DATA_YAML RUNS_DIR NAME EPOCHS IMGSZ BATCH."""

from __future__ import annotations

import sys

import torch
from ultralytics import YOLO


def main() -> None:
    """Train as a user would; the trainer writes RUNS_DIR/NAME and its console output."""
    data, runs, name, epochs, imgsz, batch = sys.argv[1:]
    torch.set_num_threads(1)  # the second core stays free, so that a watcher has no excuse and no help
    YOLO("yolov8n.yaml").train(
        data=data,
        project=runs,
        name=name,
        epochs=int(epochs),
        imgsz=int(imgsz),
        batch=int(batch),
        workers=0,
        device="cpu",
        plots=False,
        seed=0,
    )


if __name__ == "__main__":
    main()
