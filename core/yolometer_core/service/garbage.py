"""How often a service looks for garbage: its state is many small objects, few of them ever in a circle."""

from __future__ import annotations

import gc

COLLECT_AFTER = 50_000, 20, 100


def collect_seldom() -> None:
    """Look for circles of garbage seldom: at Python's own pace it took a tenth of a worker's time and found none."""
    gc.set_threshold(*COLLECT_AFTER)
