"""Logs to measure with: consoles and tables of any length in the shapes that Ultralytics 8.4 writes."""

from __future__ import annotations

import math
from pathlib import Path

IMAGES, VAL_IMAGES, BATCH, IMGSZ = 3200, 800, 16, 640
ITERATIONS = IMAGES // BATCH
VAL_ITERATIONS = VAL_IMAGES // (2 * BATCH)
BAR = 12
_HEAD_RECORDS = 13

_BANNER = """\
Ultralytics 8.4.190 🚀 Python-3.11.7 torch-2.14.1+cu130 CUDA:0 (NVIDIA A100-SXM4-80GB, 81153MiB)
\x1b[34m\x1b[1mengine/trainer: \x1b[0magnostic_nms=False, amp=True, augment=False, auto_augment=randaugment, \
batch={batch}, box=7.5, cache=False, cfg=None, classes=None, close_mosaic=10, cls=0.5, compile=False, conf=None, \
cos_lr=False, data=/data/bench.yaml, deterministic=True, device=0, dfl=1.5, dropout=0.0, epochs={epochs}, \
exist_ok=False, fraction=1.0, freeze=None, imgsz={imgsz}, iou=0.7, lr0=0.01, lrf=0.01, max_det=300, mode=train, \
model=yolov8m.pt, momentum=0.937, mosaic=1.0, multi_scale=0.0, name=bench, nbs=64, optimizer=auto, patience=100, \
plots=True, pretrained=True, project=None, rect=False, resume=False, save=True, save_dir={save_dir}, save_period=-1, \
seed=0, single_cls=False, split=val, task=detect, time=None, val=True, verbose=True, warmup_epochs=3.0, \
weight_decay=0.0005, workers=8, workspace=None
YOLOv8m summary: 169 layers, 25,902,640 parameters, 25,902,624 gradients, 79.3 GFLOPs
\x1b[34m\x1b[1mAMP: \x1b[0mrunning Automatic Mixed Precision (AMP) checks...
\x1b[34m\x1b[1mAMP: \x1b[0mchecks passed ✅
\x1b[34m\x1b[1mtrain: \x1b[0mScanning /data/labels/train.cache... {images} images, 20 backgrounds, 0 corrupt: 100% {full} \
{images}/{images} 9.1Mit/s 0.0s
\x1b[34m\x1b[1mval: \x1b[0mScanning /data/labels/val.cache... {val_images} images, 0 backgrounds, 0 corrupt: 100% {full} \
{val_images}/{val_images} 3.5Mit/s 0.0s
\x1b[34m\x1b[1moptimizer:\x1b[0m SGD(lr=0.01, momentum=0.9) with parameter groups 77 weight(decay=0.0), 84 weight(decay=0.0005), \
83 bias(decay=0.0)
Plotting labels to {save_dir}/labels.jpg...{space}
Using {images} train, {val_images} val images for fraction=1.0 at imgsz={imgsz}
Using 8 dataloader workers
Logging results to \x1b[1m{save_dir}\x1b[0m
Starting training for {epochs} epochs...
"""
_EPOCH_HEAD = "\n      Epoch    GPU_mem   box_loss   cls_loss   dfl_loss  Instances       Size\n"
_VAL = "                 Class     Images  Instances      Box(P          R      mAP50  mAP50-95): "
_COLUMNS = (
    "epoch,time,train/box_loss,train/cls_loss,train/dfl_loss,metrics/precision(B),metrics/recall(B),metrics/mAP50(B),"
    "metrics/mAP50-95(B),val/box_loss,val/cls_loss,val/dfl_loss,lr/pg0,lr/pg1,lr/pg2\n"
)


def make_console(path: str | Path, records: int, cr: bool) -> Path:
    """Write a training console of exactly `records` records (pieces between line ends, LF or CR, that are not empty).

    An epoch is 203 of them: its header, 200 frames of the training bar, one of the validation bar, the `all` row.
    With `cr` frames are redraws inside one line, CR ESC[K before each, as a redirected console has them; without, each
    frame is a line. A million records are about 150 MB. The log stops where the records are used up.
    """
    target = Path(path)
    per_epoch = ITERATIONS + 3
    epochs = max(1, math.ceil((records - _HEAD_RECORDS) / per_epoch))
    banner = _BANNER.format(
        batch=BATCH,
        epochs=epochs,
        imgsz=IMGSZ,
        images=IMAGES,
        val_images=VAL_IMAGES,
        full="━" * BAR,
        space=" ",
        save_dir="/data/runs/detect/bench",
    )
    redraw, end = ("\r\x1b[K", "") if cr else ("", "\n")
    afters = [f"{140 + at * 37 % 190:11d}{IMGSZ:11d}: {_bar(at + 1, ITERATIONS, 9.2)}{end}" for at in range(ITERATIONS)]
    val = _bar(VAL_ITERATIONS, VAL_ITERATIONS, 6.1) + "\n"
    left = records
    with target.open("w", encoding="utf-8", newline="") as file:
        head = banner.splitlines(keepends=True)[:left]
        left -= len(head)
        file.writelines(head)
        for epoch in range(1, epochs + 1):
            base = 1.2 / epoch**0.1
            label = f"{f'{epoch}/{epochs}':>11}"
            start = f"{redraw}{label}      11.2G"
            frames = [
                "%s%11.4g%11.4g%11.4g%s" % (start, base * (1.4 - at / 500), base * (2.1 - at / 400), base + at / 1e3, after)  # noqa: UP031 - faster
                for at, after in enumerate(afters)
            ]
            map50 = 0.6 * (1 - math.exp(-epoch / 30))
            tail = [
                f"{redraw}{_VAL}{val}",
                f"{'all':>22}{VAL_IMAGES:11d}{6127:11d}{map50 + 0.1:11.3g}{map50:11.3g}{map50:11.3g}{map50 * 0.7:11.3g}\n",
            ]
            # The redraws of an epoch are one line: its end belongs to the last of them.
            frames[-1] += "\n" if cr else ""
            piece = [_EPOCH_HEAD, *frames, *tail][:left]
            left -= len(piece)
            file.writelines(piece)
        # A record that was cut off here by the number still needs its end.
        file.write("\n")
    return target


def make_csv(path: str | Path, rows: int) -> Path:
    """Write a results.csv of `rows` epochs below its header."""
    target = Path(path)
    with target.open("w", encoding="utf-8", newline="") as file:
        file.write(_COLUMNS)
        for epoch in range(1, rows + 1):
            base = 1.2 / epoch**0.1
            map50 = 0.6 * (1 - math.exp(-epoch / 30))
            lr = 0.01 * (1 - 0.99 * epoch / rows)
            file.write(
                f"{epoch},{24.1712 * epoch:.6g},{base:.6g},{base * 1.5:.6g},{base + 0.2:.6g},{map50 + 0.1:.5g},{map50:.5g},"
                f"{map50:.5g},{map50 * 0.7:.5g},{base * 1.1:.6g},{base * 1.6:.6g},{base + 0.3:.6g},{lr:.6g},{lr:.6g},{lr:.6g}\n"
            )
    return target


def _bar(done: int, total: int, per_s: float) -> str:
    full = BAR * done // total
    elapsed_s = done / per_s
    left = f"<{_clock((total - done) / per_s)}" if done < total else ""
    bar = "━" * full + "─" * (BAR - full)
    return f"{100 * done // total}% {bar} {done}/{total} {per_s:.1f}it/s {_clock(elapsed_s)}{left}"


def _clock(seconds: float) -> str:
    return f"{seconds:.1f}s" if seconds < 60 else f"{int(seconds // 60)}:{int(seconds % 60):02d}"
