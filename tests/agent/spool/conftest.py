"""Fixtures of the tests of the spool."""

from __future__ import annotations

from pathlib import Path

import pytest
from _spooling import Place


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)
