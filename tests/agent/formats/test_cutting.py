"""Every format: facts do not depend on how a file is cut, strange bytes never raise, and no format takes another's content."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from _cut import CASES, essence, facts_of, records_of
from hypothesis import given, settings
from hypothesis import strategies as st

from yolometer_agent.formats import (
    darknet_console,
    mmengine_console,
    mmengine_json,
    paddle_console,
    plain_line,
    results_txt,
    settings_yaml,
    yolox_console,
)
from yolometer_agent.formats._base import Format

MODULES = (
    darknet_console,
    mmengine_console,
    mmengine_json,
    paddle_console,
    plain_line,
    results_txt,
    settings_yaml,
    yolox_console,
)
FORMATS: dict[str, Format] = {module.__name__.rpartition(".")[2]: module.FORMAT for module in MODULES}
FILES = [(name, path) for name in FORMATS for path in sorted((CASES / name).iterdir())]
IDS = [f"{name}-{path.name}" for name, path in FILES]
BYTES = {path: path.read_bytes() for _, path in FILES}


@pytest.mark.parametrize("name", FORMATS)
def test_it_is_a_format(name: str) -> None:
    assert isinstance(FORMATS[name], Format)
    assert hash(FORMATS[name]) == hash(FORMATS[name])


@pytest.mark.parametrize(("name", "path"), FILES, ids=IDS)
def test_one_record_a_call_says_the_same_as_one_call(name: str, path: Path) -> None:
    fmt, data = FORMATS[name], BYTES[path]
    whole = essence(facts_of(fmt, data))
    assert whole or "hyp" in path.name
    assert essence(facts_of(fmt, data, range(len(records_of(fmt, data))))) == whole


@given(st.sampled_from(FILES), st.lists(st.integers(0, 200), max_size=20))
@settings(max_examples=80, deadline=None)
def test_any_cutting_says_the_same(file: tuple[str, Path], cuts: list[int]) -> None:
    fmt, data = FORMATS[file[0]], BYTES[file[1]]
    assert essence(facts_of(fmt, data, cuts)) == essence(facts_of(fmt, data))


@pytest.mark.parametrize(("name", "path"), FILES, ids=IDS)
def test_only_its_own_content_is_recognised(name: str, path: Path) -> None:
    head = BYTES[path].decode("utf-8", "replace")
    scores = {other: fmt.recognise(head) for other, fmt in FORMATS.items()}
    assert scores.pop(name) >= 60
    assert set(scores.values()) == {0}
    colours = "\x1b[32m" + head.replace("\n", "\x1b[0m\r\n\x1b[32m") if not FORMATS[name].whole_document else head
    assert "table" in FORMATS[name].role or name == "mmengine_json" or FORMATS[name].recognise(colours) >= 60


FOREIGN = {
    "empty": "",
    "blank": " \n\n",
    "prose": "Epoch 3 of the war began in 1915.\nEpoch 1/2 was long: it had no loss.\nA second line: nothing.\n",
    "python": Path(__file__).read_text(),
    "binary": bytes(range(256)).decode("latin-1") * 20,
    "data yaml": "path: ../datasets/coco8\ntrain: images/train\nval: images/val\nnames:\n  0: person\n  1: car\n",
    "model yaml": "nc: 80\nscales:\n  n: [0.5, 0.25, 1024]\nbackbone:\n  - [-1, 1, Conv]\nhead:\n  - [-1, 1, Conv]\n",
    "compose yaml": "version: 3\nservices:\n  web:\n    image: x\nnetworks:\n  a: b\nvolumes:\n  c: d\n",
    "csv": "epoch,time,train/box_loss\n1,2.0,3.0\n",
    "json": '{"a": 1}\n{"iter": 3, "x": 1}\n',
    "coco": '{"images": [], "loss": 1, "iter": 2}',
    "keras": "Epoch 1/10\n1875/1875 [====] - 3s 1ms/step - loss: 0.2 - accuracy: 0.9\n",
    "ultralytics": "      1/4         0G      1.255      2.266     0.7804         19         96: 100% ━━━ 3/3 2.0it/s 0.3s\n",
    "loguru": "2021-07-20 12:00:00 | INFO     | app.main:12 - epoch: 1/300\n",
    "table": "1 2 3 4 5 6 7 8 9 10 11 12 13 14 15\n",
}


@pytest.mark.parametrize("what", FOREIGN)
def test_foreign_content_is_left_alone(what: str) -> None:
    assert {name: fmt.recognise(FOREIGN[what]) for name, fmt in FORMATS.items()} == dict.fromkeys(FORMATS, 0)


@given(st.sampled_from(sorted(FORMATS)), st.binary(max_size=2000))
@settings(deadline=None)
def test_random_bytes_never_raise(name: str, data: bytes) -> None:
    facts_of(FORMATS[name], data + b"\n")
    FORMATS[name].recognise(data.decode("utf-8", "replace"))


@given(st.sampled_from(FILES), st.integers(0, 2**32))
@settings(max_examples=150, deadline=None)
def test_damaged_files_never_raise(file: tuple[str, Path], seed: int) -> None:
    """Bytes changed, numbers blown up, records lost, doubled, torn and out of order; every fact is still a valid event."""
    chance, fmt = random.Random(seed), FORMATS[file[0]]
    records = BYTES[file[1]].split(b"\n")[-120:]
    for _ in range(chance.randint(1, 60)):
        at = chance.randrange(len(records))
        record = records[at]
        cut = chance.randrange(len(record) + 1)
        records[at] = chance.choice(
            [
                record[:cut],
                record[cut:],
                record + record,
                record[:cut] + bytes([chance.randrange(256)]) + record[cut + 1 :],
                record.replace(b"1", b"9" * chance.choice([3, 20, 5000]), 1),
                record.replace(b"0", chance.choice([b"nan", b"-1", b"1e400", b"", b"-0"]), chance.randint(1, 5)),
                record.replace(b".", b"", 1),
                chance.choice(records),
            ]
        )
    facts_of(fmt, b"\n".join(records), [chance.randrange(len(records))])


@pytest.mark.parametrize("name", FORMATS)
def test_a_very_long_record_is_read_quickly(name: str) -> None:
    fmt = FORMATS[name]
    for filler in (
        b"Epoch: [0] ",
        b"a: 1, ",
        b"[1][",
        b"                ",
        b"1 x 1 ",
        b"0.1",
        b"|",
        b"Average Precision (AP) @[ IoU=0.50",
    ):
        fmt.fold(fmt.start(), [filler * (2_000_000 // len(filler))])
