"""A log that a test writes, and its reader, which must never get a record twice."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from _following import Reader


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "train.log"


@pytest.fixture
def reader(log: Path) -> Iterator[Reader]:
    reader = Reader(log)
    yield reader
    reader.follow.close()
    assert reader.ends == sorted(set(reader.ends))
