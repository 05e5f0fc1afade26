"""The fixtures of the meters' tests: a node of GPUs (tests/_nvml_stub.py) and readers of it."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from _nvml_node import made
from _nvml_stub import stub  # needs the line above

__all__ = ["made", "stub"]
