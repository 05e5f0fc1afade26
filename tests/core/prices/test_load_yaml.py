"""prices.yaml: each mistake is one sentence with its line and key, nothing is guessed, and the shipped example is true."""

from __future__ import annotations

import re
import tempfile
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import yaml
from _books import CASES, utc
from hypothesis import given
from hypothesis import strategies as st

from yolometer_core.errors import BadConfig
from yolometer_core.prices.check import warnings
from yolometer_core.prices.load_yaml import load, problems, sentence
from yolometer_core.prices.schema import NodeEntry, OwnedEntry, PriceEntry, PriceFile, RateEntry

ROOT = Path(__file__).parents[3]
EXAMPLE = ROOT / "deploy" / "config" / "prices.yaml"
PAGE = ROOT / "docs" / "prices.md"


def cases(name: str) -> list[Any]:
    found = yaml.safe_load((CASES / name).read_text(encoding="utf-8"))
    return [pytest.param(case, id=str(case.get("name", n))) for n, case in enumerate(found)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "prices.yaml"


@pytest.mark.parametrize("case", cases("mistakes.yaml"))
def test_a_mistake_is_named_with_its_line(case: dict[str, Any], path: Path) -> None:
    path.write_text(case["text"], encoding="utf-8")
    found = problems(path)
    assert found[0].line == case["line"], found
    assert case["says"] in found[0].says
    more = case.get("more", [])
    assert [said in one.says for said, one in zip(more, found[1:], strict=True)] == [True] * len(more), found
    with pytest.raises(BadConfig) as refused:
        load(path)
    said = str(refused.value)
    assert said.startswith(f"{path} line {case['line']}: " if case["line"] else f"{path}: ")
    assert re.fullmatch(r"[^\n]+\.", said), "one sentence"
    assert (f"{len(more)} more; `yolometer price check` lists them" in said) == bool(more)


@pytest.mark.parametrize("case", cases("unreadable.yaml"))
def test_what_is_no_list_of_prices_is_refused_in_one_sentence(case: dict[str, Any], path: Path) -> None:
    path.write_text(case["text"], encoding="utf-8")
    with pytest.raises(BadConfig) as refused:
        load(path)
    assert case["says"] in str(refused.value)
    assert str(refused.value).startswith(str(path))


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(BadConfig, match="cannot be read"):
        load(tmp_path / "none.yaml")
    with pytest.raises(BadConfig, match="cannot be read"):
        load(tmp_path)
    (tmp_path / "bytes.yaml").write_bytes(b"currency: \xff\xfe")
    with pytest.raises(BadConfig, match="is not valid YAML"):
        load(tmp_path / "bytes.yaml")
    (tmp_path / "deep.yaml").write_text("[" * 100_000)
    with pytest.raises(BadConfig, match="is not valid YAML"):
        load(tmp_path / "deep.yaml")
    with (tmp_path / "huge.yaml").open("wb") as file:
        file.truncate(33 << 20)
    with pytest.raises(BadConfig, match="larger than a list of prices"):
        load(tmp_path / "huge.yaml")


@pytest.mark.parametrize("case", cases("warnings.yaml"))
def test_what_a_list_leaves_open_is_said(case: dict[str, Any], path: Path) -> None:
    path.write_text(case["text"], encoding="utf-8")
    found = warnings(load(path))
    assert [one.line for one in found] == [line for line, _ in case["warnings"]], found
    for one, (_, said) in zip(found, case["warnings"], strict=True):
        assert said in one.says


def test_the_words_that_yaml_takes_for_something_else_stay_words(path: Path) -> None:
    path.write_text(
        "currency: USD\nhighest:\nprices:\n"
        "  - {gpu_model: 4090, price: 1.10, region: no, provider: null, node: 007, source: 2026-01-01}\n"
        "  - {gpu_model: 1e3, price: .5, valid_from: 2026-01-01 02:00:00+02:00, confirmed: True}\nowned:\naliases:\nnodes:\n"
    )
    first, second = load(path).prices
    assert (first.gpu_model, first.price, first.region, first.provider) == ("4090", Decimal("1.10"), "no", None)
    assert (first.node, first.source, first.line) == ("007", "2026-01-01", 4)
    assert (second.gpu_model, second.price, second.valid_from, second.confirmed) == ("1e3", Decimal("0.5"), utc(), True)


def test_money_never_becomes_a_float(path: Path) -> None:
    path.write_text("currency: USD\nprices:\n  - {gpu_model: A100, price: 123.456789}\n")
    quote = load(path).at("A100", utc())
    assert quote is not None
    assert (quote.price.price, quote.micro_per_hour) == (Decimal("123.456789"), 123_456_789)


def test_the_price_of_owned_hardware_follows_from_what_it_cost(path: Path) -> None:
    common = "gpus: 8, purchase_price: 210384, resale: 0, life_years: 3, power_price_per_kwh: 0.25, pue: 1.2"
    path.write_text(
        f"currency: USD\nowned:\n  - {{gpu_model: H100, {common}, power_w: 8000, people_per_year: 70128, source: order 7}}\n"
        f"  - {{gpu_model: A100, {common}, measured_kwh: 500, measured_gpu_hours: 1000}}\n"
    )
    h100, a100 = load(path).prices
    # 210384 / (3 x 8766 x 8) = 1.00; 1 kW x 1.2 x 0.25 = 0.30; 70128 / (8766 x 8) = 1.00
    assert (h100.price, h100.kind, h100.line) == (Decimal("2.300000"), "owned", 3)
    assert h100.source == (
        "owned: purchase 1.000000 = (210384 - 0) / (3 years x 8766 h x 8 GPUs) + power 0.300000 = 1 kW x PUE 1.2 x 0.25 per kWh"
        " + people 1.000000 (order 7)"
    )
    assert a100.price == Decimal("1.150000"), "0.5 kW, measured"


def test_an_unusual_power_can_be_confirmed(path: Path) -> None:
    path.write_text(
        "currency: USD\nowned:\n  - {gpu_model: Jetson, gpus: 1, purchase_price: 500, resale: 0, life_years: 5,"
        " power_price_per_kwh: 0.25, pue: 1, power_w: 7, confirmed: true}\n"
    )
    assert load(path).prices[0].price == Decimal("0.013158")


def test_the_shipped_example_is_right_leaves_nothing_open_and_shows_every_key() -> None:
    assert [sentence(EXAMPLE, one) for one in problems(EXAMPLE)] == []
    found = load(EXAMPLE)
    assert warnings(found) == []
    shown = yaml.safe_load(EXAMPLE.read_text(encoding="utf-8"))
    for kind, entries in (
        (PriceFile, [shown]), (PriceEntry, shown["prices"]), (OwnedEntry, shown["owned"]),
        (NodeEntry, shown["nodes"].values()), (RateEntry, shown["exchange_rates"]),
    ):  # fmt: skip
        assert set(kind.model_fields) == {key for entry in entries for key in entry}, kind


def test_the_shipped_example_says_what_its_comments_say() -> None:
    found = load(EXAMPLE)
    for model, node, month, year, micro in (
        ("NVIDIA A100-SXM4-80GB", "gpu-aws-1", 2, 2026, 3_400_000),
        ("NVIDIA A100-SXM4-80GB", "gpu-aws-1", 4, 2026, 2_750_000),
        ("NVIDIA A100 80GB PCIe", "gpu-aws-1", 4, 2028, 2_750_000),
        ("NVIDIA A100-SXM4-80GB", "gpu-aws-17", 4, 2026, 1_950_000),
        ("NVIDIA A100-SXM4-80GB", "gpu-aws-spot-3", 4, 2026, 1_200_000),
        ("NVIDIA A100-SXM4-80GB", "elsewhere", 4, 2026, None),
        ("NVIDIA L40S", "gpu-scw-1", 4, 2026, 1_288_320),
        ("NVIDIA L40S", "gpu-scw-1", 4, 2024, None),
        ("Tesla T4", "elsewhere", 4, 2026, 0),
        ("NVIDIA H100 80GB HBM3", "rack-1", 4, 2026, 1_163_834),
        ("NVIDIA GeForce RTX 4090", "desk-3", 4, 2026, 207_613),
    ):
        quote = found.at(model, utc(month, year=year), node=node)
        assert (quote and quote.micro_per_hour) == micro, (model, node)


def test_the_page_explains_every_key_and_its_examples_are_right(path: Path) -> None:
    page = PAGE.read_text(encoding="utf-8")
    for kind in (PriceFile, PriceEntry, OwnedEntry, NodeEntry, RateEntry):
        for key, field in kind.model_fields.items():
            assert field.description, f"{kind.__name__}.{key} has no description"
            assert f"`{key}`" in page, f"docs/prices.md does not explain {key}"
    examples = re.findall(r"^```yaml\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    assert examples
    for text in examples:
        path.write_text(text, encoding="utf-8")
        assert [sentence(path, one) for one in problems(path)] == []


KEYS = st.sampled_from([*PriceFile.model_fields, *PriceEntry.model_fields, *OwnedEntry.model_fields, "x"])
SCALARS = st.none() | st.booleans() | st.integers() | st.text(max_size=8) | st.sampled_from(["2.5", "USD", "A100", "spot"])
ANYTHING = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=5), max_leaves=20
)  # fmt: skip


@given(ANYTHING)
def test_whatever_a_file_holds_it_is_a_book_or_one_sentence(value: Any) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "prices.yaml"
        path.write_text(yaml.safe_dump(value, allow_unicode=True), encoding="utf-8")
        said = ""
        try:
            load(path)
        except BadConfig as error:
            said = str(error)
        assert not said or re.fullmatch(re.escape(str(path)) + r"[^\n]+\.", said)
