"""Settings of a box: the shipped example names every key, options win over environment and file, pages answer from the store."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pytest
import yaml

from yolometer.settings import BoxConfig, settled
from yolometer_core.errors import BadConfig

EXAMPLE = Path(__file__).parents[2] / "docs" / "up.example.yaml"


def test_the_example_names_every_key_and_is_valid() -> None:
    assert set(yaml.safe_load(EXAMPLE.read_text())) == set(BoxConfig.model_fields)
    assert settled(EXAMPLE, {}).price == Decimal("2.50")


def test_options_win_over_the_environment_and_that_over_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("YOLOMETER_PORT", "9001")
    monkeypatch.setenv("YOLOMETER_GPUS", "4")
    found = settled(EXAMPLE, {"gpus": 8, "node": None})
    assert (found.port, found.gpus, found.node) == (9001, 8, "node1")


def test_an_unknown_key_is_named_with_the_nearest(tmp_path: Path) -> None:
    path = tmp_path / "up.yaml"
    path.write_text("wach: [runs]\n")
    with pytest.raises(BadConfig, match="'wach'; did you mean 'watch'"):
        settled(path, {})
