"""Draws a tiny data set of coloured rectangles: python make_images.py FOLDER TRAIN VAL. Run by the trainer's Python."""

from __future__ import annotations

import random
import sys
from pathlib import Path

from PIL import Image, ImageDraw

COLOURS = [(220, 40, 40), (40, 200, 60), (50, 80, 230)]


def draw(folder: Path, split: str, count: int, side_px: int = 96) -> None:
    """Write `count` images with one to three rectangles each, and their labels (class, centre, size, as ratios)."""
    images, labels = folder / "images" / split, folder / "labels" / split
    images.mkdir(parents=True, exist_ok=True)
    labels.mkdir(parents=True, exist_ok=True)
    dice = random.Random(f"{split}{count}")  # the same pictures every time
    for number in range(count):
        picture = Image.new("RGB", (side_px, side_px), (120, 120, 120))
        pen = ImageDraw.Draw(picture)
        lines = []
        for _ in range(dice.randint(1, 3)):
            kind, width, height = dice.randrange(3), dice.randint(16, 40), dice.randint(16, 40)
            left, top = dice.randint(0, side_px - width), dice.randint(0, side_px - height)
            pen.rectangle([left, top, left + width, top + height], fill=COLOURS[kind])
            box = ((left + width / 2) / side_px, (top + height / 2) / side_px, width / side_px, height / side_px)
            lines.append(f"{kind} " + " ".join(f"{value:.6f}" for value in box))
        picture.save(images / f"{number:04d}.png")
        (labels / f"{number:04d}.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


def main() -> None:
    """Make the folder and its data.yaml."""
    folder, train, val = Path(sys.argv[1]).resolve(), int(sys.argv[2]), int(sys.argv[3])
    draw(folder, "train", train)
    draw(folder, "val", val)
    names = "names: {0: red, 1: green, 2: blue}\n"
    (folder / "data.yaml").write_text(f"path: {folder}\ntrain: images/train\nval: images/val\n{names}", encoding="utf-8")


if __name__ == "__main__":
    main()
