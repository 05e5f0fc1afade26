"""Names of GPU models: which of them mean the same, by spelling or because the price list says so; never by a guess."""

from __future__ import annotations

import re
from functools import lru_cache

_MAKER = re.compile(r"^nvidia[\s_-]+")
_BETWEEN = re.compile(r"[\s_-]+")


@lru_cache(maxsize=16_384)
def plain(gpu_model: str) -> str:
    """A name without case, the maker's name in front, spaces, dashes and underscores: `NVIDIA H100 PCIe` is `h100pcie`.

    Nothing else is left out: `A100` and `A100-SXM4-80GB` stay two models until a price list says otherwise.
    """
    return _BETWEEN.sub("", _MAKER.sub("", gpu_model.strip().casefold()))
