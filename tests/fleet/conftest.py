"""A whole fleet for the tests of this folder: real processes, a real broker and a real server of its own."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))

from _fleet import Fleet  # needs the line above


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    """A fleet of this test alone, with its topics; no service runs yet."""
    with Fleet(tmp_path) as own:
        yield own
