"""A catalogue in SkyPilot's columns: per GPU, on demand and spot, what is left out is counted, what is broken is named."""

from __future__ import annotations

import tempfile
from decimal import Decimal
from pathlib import Path

import pytest
from _books import CASES, utc
from hypothesis import given
from hypothesis import strategies as st

from yolometer_core.errors import BadInput
from yolometer_core.prices._base import Price
from yolometer_core.prices.load_csv import Imported, load_catalogue
from yolometer_core.prices.load_yaml import load
from yolometer_core.prices.write_yaml import file_of

CATALOGUE = CASES / "catalogue.csv"
HEAD = "InstanceType,AcceleratorName,AcceleratorCount,Price,SpotPrice,Region\n"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "vms.csv"


def amounts(found: Imported) -> dict[tuple[str, str | None, str | None], str]:
    return {(price.gpu_model, price.region, price.kind): str(price.price.normalize()) for price in found.prices}


def test_a_machine_is_divided_by_its_gpus_and_the_cheapest_stands_for_them() -> None:
    found = load_catalogue(CATALOGUE, provider="acme")
    assert amounts(found) == {
        ("A10", "north-1", "on_demand"): "0.908",
        ("A100-80GB", "South, ES, EU", "on_demand"): "3.333333",
        ("GB200", "north-1", "spot"): "3E+2",
        ("H100", "north-1", "on_demand"): "4.1",
        ("H100", "north-1", "spot"): "1",
        ("V100", "north-1", "on_demand"): "2.48",
        ("V100", "north-1", "spot"): "0.74",
    }
    assert {price.provider for price in found.prices} == {"acme"}
    sources = {(price.gpu_model, price.kind): price.source for price in found.prices}
    assert sources["H100", "on_demand"] == "catalogue.csv line 3, x8.large, cheapest of 2 machines (to 4.500000)"
    assert sources["H100", "spot"] == "catalogue.csv line 4, x8.large, cheapest zone (to 1.200000)"
    assert sources["V100", "spot"] == "catalogue.csv line 11, without a machine"


def test_what_is_left_out_is_counted() -> None:
    found = load_catalogue(CATALOGUE)
    assert found.rows == 12
    assert found.skipped == {
        "no GPU": 2,
        "a TPU": 1,
        "no spot price": 4,
        "no on_demand price": 1,
        "spot price of 0": 1,
        "on_demand price of 0": 1,
        "on_demand price above 500": 1,
    }


def test_only_the_machines_that_are_rented() -> None:
    found = load_catalogue(CATALOGUE, instance_types=["x1.large"])
    assert amounts(found) == {("H100", "north-1", "on_demand"): "4.5"}
    assert found.skipped["another machine"] == 8


def test_what_is_written_is_what_is_read_again(tmp_path: Path) -> None:
    found = load_catalogue(CATALOGUE, provider="acme", currency="EUR", valid_from=utc(3))
    written = tmp_path / "prices.yaml"
    written.write_text(file_of(found.prices, "EUR", ["from a catalogue"]), encoding="utf-8")
    book = load(written)
    assert (book.prices, book.currency) == (found.prices, "EUR")
    quote = book.at("NVIDIA A100-SXM4-80GB", utc(4), provider="acme", region="South, ES, EU", kind="on_demand")
    assert quote is not None
    assert quote.micro_per_hour == 3_333_333
    said = "gpu_model: H100, price: 4.100000, provider: acme, region: north-1, kind: on_demand, valid_from: 2026-03-01T00:00:00Z"
    assert f"\n  - {{{said}, source: " in written.read_text()


TEXTS = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=12).filter(lambda text: bool(text.strip()))


@given(TEXTS, TEXTS, TEXTS, st.sampled_from(["0", "0.1", "2.500001", "499"]))
def test_any_text_survives_writing_and_reading(model: str, region: str, source: str, amount: str) -> None:
    price = Price(gpu_model=model + "1", price=Decimal(amount), currency="USD", region=region, source=source, valid_to=utc())
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "prices.yaml"
        path.write_text(file_of([price], "USD"), encoding="utf-8")
        assert load(path).prices == (price,)


def test_no_prices_are_a_file_too(path: Path, tmp_path: Path) -> None:
    path.write_text(HEAD)
    found = load_catalogue(path)
    assert (found.rows, found.skipped) == (0, {})
    (tmp_path / "prices.yaml").write_text(file_of(found.prices, "USD"))
    assert load(tmp_path / "prices.yaml").prices == ()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "the column 'AcceleratorName' is missing; a catalogue of SkyPilot has"),
        ("AcceleratorName,AcceleratorCount,Price\n", "the column 'Region' is missing"),
        (HEAD.replace("Region", "Regoin"), "the column 'Regoin' is unknown; did you mean 'Region'"),
        (HEAD.replace("\n", ",Colour\n"), "the column 'Colour' is unknown; leave it out with `--ignore Colour`"),
        (HEAD.replace("\n", ",Price\n"), "the column 'Price' is there twice"),
        (HEAD + "m,A100,1,2,1\n", "line 2: 5 cells for 6 columns"),
        (HEAD + "m,A100,1,2,1,north,more\n", "line 2: 7 cells for 6 columns"),
        (HEAD + "\nm,A100,1,2,1,north\nm,A100,1,two,1,north\n", "line 4: Price is 'two', which is no number of 0 or more"),
        (HEAD + "m,A100,1,-2,1,north\n", "line 2: Price is '-2'"),
        (HEAD + "m,A100,-1,2,1,north\n", "line 2: AcceleratorCount is '-1'"),
        (HEAD + "m,A100,1,2,inf,north\n", "line 2: SpotPrice is 'inf'"),
        (HEAD + "m,A100,1,$2,,north\n", "line 2: Price is '$2'"),
        (HEAD + "m,A100,1,1e30,,north\n", "line 2: Price is '1e30'"),
        (HEAD + 'm,"A100,1,2,1,north\n', "line 2: it is no valid CSV"),
    ],
)
def test_a_broken_catalogue_is_named_in_one_sentence(text: str, says: str, path: Path) -> None:
    path.write_text(text)
    with pytest.raises(BadInput) as refused:
        load_catalogue(path)
    assert says in str(refused.value)
    assert str(refused.value).startswith(str(path))
    assert str(refused.value).endswith(".")


def test_a_column_can_be_left_out_and_a_mark_at_the_begin_does_not_matter(path: Path) -> None:
    path.write_text("\ufeff" + HEAD.replace("\n", ",Colour\r\n") + "m,A100,2,5,,north,red\r\n", encoding="utf-8")
    assert amounts(load_catalogue(path, ignore=["Colour"])) == {("A100", "north", "on_demand"): "2.5"}


def test_one_model_in_two_spellings_is_one(path: Path) -> None:
    path.write_text(HEAD + "m,RTX-4090,1,0.5,,north\nm,RTX4090,1,0.4,,south\nm,rtx 4090,1,0.3,,north\n")
    found = amounts(load_catalogue(path))
    assert list(found.values()) == ["0.3", "0.4"]
    assert len({model for model, _, _ in found}) == 1


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="cannot be read"):
        load_catalogue(tmp_path / "none.csv")
    (tmp_path / "bytes.csv").write_bytes(b"AcceleratorName\xff\n")
    with pytest.raises(BadInput, match="no text in UTF-8"):
        load_catalogue(tmp_path / "bytes.csv")
