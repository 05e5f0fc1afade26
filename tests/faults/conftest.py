"""The folder of the helpers that are shared with the integration tests."""

from __future__ import annotations

import sys
from pathlib import Path

for name in ("integration", "fleet"):
    sys.path.append(str(Path(__file__).parents[1] / name))
