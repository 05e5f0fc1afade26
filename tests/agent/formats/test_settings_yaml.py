"""args.yaml, opt.yaml, hyp.yaml: what the arguments mean, and that no YAML can hurt."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from _cut import CASES, facts_of, fields
from hypothesis import given
from hypothesis import strategies as st

from yolometer_agent.formats import settings_yaml
from yolometer_agent.formats._base import Format
from yolometer_agent.formats.settings_yaml import FORMAT, settings_of
from yolometer_core.events import Setting

BASE = {"task": "detect", "mode": "train", "model": "yolo11n.yaml"}
OPT = {"weights": "yolov5s.pt", "cfg": "", "hyp": "h.yaml", "batch_size": 16}


def said(name: str) -> dict[str, Any]:
    data = (CASES / "settings_yaml" / name).read_bytes()
    assert FORMAT.recognise(data.decode()) >= 80
    together: dict[str, Any] = {}
    for found in fields(facts_of(FORMAT, data), Setting):
        together.update(found)
    return together


def test_the_arguments_of_a_resumed_ultralytics_run() -> None:
    found = said("ultralytics-8.4-resumed.args.yaml")
    assert "model" not in found
    assert (found["resumed"], found["epochs_planned"], found["batch"], found["optimizer"]) == (True, 6, 8, "AdamW")
    assert (found["height_px"], found["width_px"], found["precision"]) == (96, 96, "fp32")


def test_a_time_budget_hides_the_epochs() -> None:
    found = said("ultralytics-8.4-time.args.yaml")
    assert found["time_budget"] is True
    assert "epochs_planned" not in found
    assert found["model"] == "yolo11n"


def test_a_batch_that_is_not_decided_is_unknown() -> None:
    assert "batch" not in said("ultralytics-8.4-batch-auto.args.yaml")
    assert said("ultralytics-8.0-detect.args.yaml")["batch"] == 8


def test_the_options_of_yolov7_and_yolov5() -> None:
    found = said("yolov7.opt.yaml")
    assert (found["framework"], found["task"], found["model"], found["batch"]) == ("yolov7", "detect", "yolov7-tiny", 8)
    assert (found["height_px"], found["optimizer"], found["save_dir"]) == (96, "SGD", "runs/train/detect")
    found = said("yolov5-resumed.opt.yaml")
    assert (found["framework"], found["resumed"], found["seed"]) == ("yolov5", True, 0)
    assert "model" not in found
    assert said("yolov7.hyp.yaml") == {}


@pytest.mark.parametrize(
    ("argument", "value", "field", "expected"),
    [
        ("model", "https://x.org/a/yolov8m-seg.pt", "model", "yolov8m-seg"),
        ("model", r"C:\runs\weights\best.pt", "model", None),
        ("model", 5, "model", None),
        ("imgsz", 100, "height_px", 128),
        ("imgsz", [640, 480], "width_px", 640),
        ("imgsz", "640", "height_px", None),
        ("imgsz", True, "height_px", None),
        ("imgsz", [1, 2, 3], "height_px", None),
        ("batch", -1, "batch", None),
        ("batch", 0.6, "batch", None),
        ("batch", 16.0, "batch", 16),
        ("batch", True, "batch", None),
        ("batch", float("nan"), "batch", None),
        ("batch", 10**400, "batch", None),
        ("epochs", 0, "epochs_planned", None),
        ("epochs", 300, "epochs_planned", 300),
        ("device", "0,1,2,3", "gpus", 4),
        ("device", [0, 1], "gpus", 2),
        ("device", 0, "gpus", 1),
        ("device", "cuda:1", "gpus", 1),
        ("device", "cpu", "gpus", None),
        ("device", "", "gpus", None),
        ("device", None, "gpus", None),
        ("device", "mps", "gpus", None),
        ("amp", True, "precision", "amp"),
        ("amp", False, "precision", "fp32"),
        ("amp", "bf16", "precision", "bf16"),
        ("amp", 3, "precision", None),
        ("optimizer", "auto", "optimizer", None),
        ("optimizer", "SGD", "optimizer", "SGD"),
        ("multi_scale", 0.0, "multi_scale", False),
        ("multi_scale", 0.5, "multi_scale", True),
        ("multi_scale", True, "multi_scale", True),
        ("multi_scale", "yes", "multi_scale", None),
        ("rect", 1, "rect", None),
        ("seed", True, "seed", None),
        ("fraction", 0.5, "fraction", 0.5),
        ("resume", "runs/x/weights/last.pt", "resumed", True),
        ("resume", False, "resumed", None),
        ("time", 0, "time_budget", None),
    ],
)
def test_what_an_argument_means(argument: str, value: Any, field: str, expected: Any) -> None:
    found = settings_of({**BASE, argument: value}).get(field)
    assert found == expected
    assert type(found) is type(expected)


def test_training_on_its_own_last_checkpoint_is_a_resume() -> None:
    args = {**BASE, "model": "runs/detect/a/weights/last.pt"}
    assert settings_of({**args, "save_dir": "/data/runs/detect/a"})["resumed"] is True
    assert settings_of({**args, "save_dir": "runs/detect/a/"})["resumed"] is True
    assert "resumed" not in settings_of({**args, "save_dir": "/data/runs/detect/b"})
    assert "resumed" not in settings_of({**args, "model": "last.pt", "save_dir": "runs"})


@pytest.mark.parametrize("mode", ["predict", "val", "export", None, ["train"]])
def test_what_does_not_train_says_nothing(mode: Any) -> None:
    assert settings_of({**BASE, "mode": mode}) == {}


@pytest.mark.parametrize(
    ("more", "framework"),
    [
        ({}, "yolov5"),
        ({"imgsz": 640, "optimizer": "SGD"}, "yolov5"),
        ({"img_size": [640, 640], "total_batch_size": 16}, "yolov5"),
        ({"weights": "", "cfg": "cfg/my.yaml", "img_size": [640, 640], "total_batch_size": 16}, "yolov7"),
        ({"weights": "", "v5_metric": False}, "yolov7"),
        ({"close_mosaic": 15, "min_items": 0, "flat_cos_lr": False}, "yolov9"),
    ],
)
def test_which_of_the_cousins_it_is(more: dict[str, Any], framework: str) -> None:
    assert settings_of({**OPT, **more})["framework"] == framework


def test_train_size_is_first_in_opt() -> None:
    found = settings_of({**OPT, "img_size": [320, 640], "total_batch_size": 64, "device": "0,1"})
    assert (found["height_px"], found["batch"], found["gpus"]) == (320, 64, 2)


@pytest.mark.parametrize(
    "document",
    [
        b"",
        b"\x00\x01",
        b"\xff\xfe\x00",
        b"- a\n- b\n",
        b"just text",
        b"task: detect\nmode: train\nmodel: !!python/object/apply:os.system ['true']\n",
        b"a: &a [x, x]\nb: &b [*a, *a]\nc: &c [*b, *b]\ntask: detect\nmode: train\n",
        b"task: " + b"[" * 100_000,
        b"task: " + b"{a: " * 5000,
        b"task: detect\nmode: train\nepochs: " + b"9" * 6000 + b"\n",
        b"task: detect\nmode: train\nx: " + b"y" * (1024 * 1024),
        b"task: detect\nmode: train\n---\ntask: detect\n",
        b"? [a, b]\n: c\ntask: detect\n",
        b"task: detect\n\tmode: train\n",
        b"? {a: b}\n: c\n",
    ],
)
def test_what_is_no_settings_file_says_nothing(document: bytes) -> None:
    assert facts_of(FORMAT, document) == []


@pytest.fixture(params=["libyaml", "pure"])
def either(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Format]:
    """The format with PyYAML as it is here, and without libyaml."""
    if request.param == "libyaml":
        yield FORMAT
        return
    with monkeypatch.context() as patch:
        patch.delattr(yaml, "CSafeLoader", raising=False)
        spec = importlib.util.spec_from_file_location("settings_yaml_pure", settings_yaml.__file__)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        patch.setitem(sys.modules, spec.name, module)
        spec.loader.exec_module(module)
        assert yaml.SafeLoader in module._Loader.__mro__
        yield module.FORMAT


def test_with_and_without_libyaml(either: Format) -> None:
    for path in sorted((CASES / "settings_yaml").glob("*.yaml")):
        assert facts_of(either, path.read_bytes()) == facts_of(FORMAT, path.read_bytes())
    known = b"task: detect\nmode: train\nmodel: yolo11n.pt\n"
    for deep in (14, 15, 16, 17):
        document = known + b"x: " + b"[" * deep + b"]" * deep + b"\n"
        assert bool(facts_of(either, document)) == (deep <= 15), deep
    for deep in (14, 15):
        document = known + b"x: " + b"[" * deep + b"1" + b"]" * deep + b"\n"
        assert bool(facts_of(either, document)) == (deep <= 14), deep
    for hurt in (b"x: &a [1]\ny: *a\n", b"x: !!python/name:os.system\n", b"x: " + b"{a: " * 5000, b"x: " + b"[" * 100_000):
        assert facts_of(either, known + hurt) == []
    [found] = fields(facts_of(either, known + b"name: 2026-13-45\n"), Setting)
    assert found["name"] == "2026-13-45"


def test_a_name_may_look_like_a_date() -> None:
    document = b"task: detect\nmode: train\nmodel: yolo11n.pt\nname: 2026-13-45\nsave_dir: 2026-01-02\n"
    [found] = fields(facts_of(FORMAT, document), Setting)
    assert (found["name"], found["save_dir"]) == ("2026-13-45", "2026-01-02")


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)
NAMES = (
    "task mode model weights cfg hyp batch_size total_batch_size imgsz img_size batch epochs time save_dir name optimizer "
    "amp seed fraction rect multi_scale device resume adam v5_metric close_mosaic min_items cutoff"
)
KEYS = st.sampled_from(NAMES.split(" "))


@given(st.dictionaries(KEYS, VALUES, max_size=12), st.booleans())
def test_any_arguments_give_a_valid_event(args: dict[str, Any], ultralytics: bool) -> None:
    found = settings_of({**args, **({"task": "detect", "mode": "train"} if ultralytics else {"weights": "", "batch_size": 1})})
    assert None not in found.values()
    Setting.model_validate(
        {"ts": "2026-01-01T00:00:00Z", "node": "n", "source": "s", "seq": 0, "place": "p", "role": "settings", **found}
    )
