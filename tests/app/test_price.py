"""`yolometer price`: lists are checked, shown and imported through the real command, and every refusal is one sentence."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import typer

from yolometer.cli import run
from yolometer.commands.price import app

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "deploy" / "config" / "prices.yaml"
CATALOGUE = ROOT / "tests" / "cases" / "prices" / "catalogue.csv"
GOOD = """\
currency: USD
prices:
  - {gpu_model: A100-80GB, price: 2.75, kind: spot, source: a page}
  - {gpu_model: A100-80GB, price: 3.50, kind: spot, valid_from: 2026-03-01T00:00:00Z}
  - {gpu_model: T4, price: 0}
  - {gpu_model: L4, price: 0.50, currency: EUR}
aliases: {NVIDIA A100-SXM4-80GB: A100-80GB}
nodes: {gpu-*: {kind: spot}}
"""


class Said:
    """What a command printed, and how it ended."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err


Price = Callable[..., Said]


@pytest.fixture
def price(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Price:
    """Runs `yolometer price ...` in this process, with the exit codes of the entry point."""
    monkeypatch.delenv("YOLOMETER_PRICES", raising=False)

    def call(*arguments: object) -> Said:
        monkeypatch.setattr("sys.argv", ["yolometer price", *map(str, arguments)])
        capsys.readouterr()
        code = run(app)
        said = capsys.readouterr()
        return Said(code, said.out, said.err)

    return call


@pytest.fixture
def prices(tmp_path: Path) -> Path:
    path = tmp_path / "prices.yaml"
    path.write_text(GOOD)
    return path


def test_it_is_a_group_of_commands() -> None:
    assert isinstance(app, typer.Typer)
    assert [command.name for command in app.registered_commands] == ["check", "show", "import"]


def test_a_right_list_is_said_to_be_right_with_what_it_leaves_open(price: Price, prices: Path) -> None:
    said = price("check", prices)
    assert (said.code, said.out) == (0, f"{prices} is right: 4 prices of 3 GPU models, totals in USD.\n")
    assert said.err == (
        f"warning: {prices} line 6: no exchange rate of EUR into USD is known; what it costs is unknown then.\n"
    )  # fmt: skip
    found = json.loads(price("check", prices, "--json").out)
    assert (found["prices"], found["mistakes"], [one["line"] for one in found["warnings"]]) == (4, [], [6])
    assert price("check", EXAMPLE).err == ""


def test_all_mistakes_are_listed_with_their_lines(price: Price, prices: Path) -> None:
    prices.write_text(GOOD.replace("2.75", "-2.75").replace("EUR", "ERU"))
    said = price("check", prices)
    assert (said.code, said.out) == (2, "")
    first, second = said.err.splitlines()
    assert first == f"{prices} line 3: 'prices.price': -2.75 is negative; write 0 or more."
    assert second == f"{prices} line 6: 'prices.currency': 'ERU' is no currency; did you mean 'EUR'."
    found = json.loads(price("check", prices, "--json").out)
    assert (found["prices"], [one["line"] for one in found["mistakes"]]) == (None, [3, 6])
    shown = price("show", prices)
    assert (shown.code, shown.out) == (2, "")
    assert shown.err.endswith("(and 1 more; `yolometer price check` lists them).\n")


def test_the_price_of_a_gpu_at_a_time(price: Price, prices: Path) -> None:
    asked = ("show", prices, "--gpu-model", "NVIDIA A100-SXM4-80GB", "--node", "gpu-7", "--at")
    said = price(*asked, "2026-02-28T23:59:59Z")
    assert said.code == 0
    assert "2.75 USD" in said.out
    assert said.out.endswith("a page\n")
    found = json.loads(price(*asked, "2026-03-01T01:00:00+01:00", "--json").out)
    assert (found["at"], found["currency"]) == ("2026-03-01T00:00:00Z", "USD")
    (one,) = found["prices"]
    assert (one["price"], one["price_converted"], one["kind"], one["valid_from"]) == (3.5, 3.5, "spot", "2026-03-01T00:00:00Z")


def test_unknown_and_zero_are_told_apart(price: Price, prices: Path) -> None:
    free = json.loads(price("show", prices, "--gpu-model", "T4", "--json").out)["prices"][0]
    assert (free["price"], free["price_converted"]) == (0, 0)
    unconverted = json.loads(price("show", prices, "--gpu-model", "L4", "--json").out)["prices"][0]
    assert (unconverted["price"], unconverted["price_converted"], unconverted["exchange_rate"]) == (0.5, None, None)
    unknown = price("show", prices, "--gpu-model", "H100", "--at", "2026-03-01T00:00:00Z")
    assert (unknown.code, unknown.out) == (3, "")
    assert unknown.err == "No price of H100 is known at 2026-03-01T00:00:00Z; what it costs is unknown.\n"


def test_all_prices_of_a_time(price: Price, prices: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = json.loads(price("show", prices, "--json").out)["prices"]
    assert [(one["gpu_model"], one["price"]) for one in found] == [("A100-80GB", 3.5), ("T4", 0), ("L4", 0.5)]
    earlier = price("show", prices, "--at", "2026-01-01T00:00:00Z").out
    assert "2.75 USD" in earlier
    assert "3.50 USD" not in earlier
    monkeypatch.setenv("YOLOMETER_PRICES", str(prices))
    assert len(json.loads(price("show", "--json").out)["prices"]) == 3


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--at", "2026-03-01T00:00:00"), "--at must be a time with its zone"),
        (("--at", "soon"), "--at must be a time with its zone"),
        (("--node", "gpu-1"), "give its --gpu-model too"),
    ],
)
def test_a_question_that_cannot_be_meant_is_refused(arguments: tuple[str, ...], says: str, price: Price, prices: Path) -> None:
    said = price("show", prices, *arguments)
    assert (said.code, said.out) == (2, "")
    assert says in said.err
    assert said.err.count("\n") == 1


def test_a_list_that_is_not_there(price: Price, tmp_path: Path) -> None:
    for command in ("check", "show"):
        said = price(command, tmp_path / "none.yaml")
        assert (said.code, said.err.count("\n")) == (2, 1)
        assert "cannot be read" in said.err


def test_a_catalogue_becomes_a_list_that_can_be_used(price: Price, tmp_path: Path) -> None:
    written = tmp_path / "prices.yaml"
    said = price("import", CATALOGUE, "--provider", "acme", "--valid-from", "2026-01-01T00:00:00Z", "-o", written)
    assert (said.code, said.out) == (0, "")
    assert said.err.startswith(f"12 rows: wrote 7 prices to {written}; left out: a TPU (1), no GPU (2)")
    assert [path.name for path in tmp_path.iterdir()] == ["prices.yaml"]
    checked = price("check", written)
    assert checked.code == 0
    assert "7 prices of 5 GPU models" in checked.out
    assert "(and 6 more) holds for no node" in checked.err
    where = ("--provider", "acme", "--region", "north-1", "--kind", "spot")
    found = json.loads(price("show", written, "--gpu-model", "NVIDIA H100 80GB HBM3", *where, "--json").out)
    assert found["prices"][0]["price"] == 1
    assert price("import", CATALOGUE, "--provider", "acme", "--valid-from", "2026-01-01T00:00:00Z").out == written.read_text()


def test_a_file_that_is_there_is_not_replaced_unasked(price: Price, prices: Path) -> None:
    said = price("import", CATALOGUE, "-o", prices)
    assert (said.code, said.err) == (2, f"yolometer: {prices} is there; name another file, or replace it with --force.\n")
    assert prices.read_text() == GOOD
    assert price("import", CATALOGUE, "-o", prices, "--force").code == 0
    assert "H100" in prices.read_text()


def test_a_catalogue_that_cannot_be_used_is_refused_in_one_sentence(price: Price, tmp_path: Path) -> None:
    said = price("import", CATALOGUE, "--currency", "usd")
    assert (said.code, said.err) == (2, "yolometer: 'usd' is no currency; did you mean 'USD'.\n")
    path = tmp_path / "vms.csv"
    path.write_text("AcceleratorName,AcceleratorCount,Price,Region,Colour\nA100,1,2,north,red\nA100,1,200,south,red\n")
    said = price("import", path)
    assert (said.code, said.err.count("\n")) == (1, 1)
    assert "the column 'Colour' is unknown" in said.err
    said = price("import", path, "--ignore", "Colour")
    assert (said.code, said.err.count("\n")) == (2, 1)
    assert f"{path} line 3: 200.000000 USD for A100 is 100 times the 2.000000 of line 2" in said.err
    path.write_text("AcceleratorName,AcceleratorCount,Price,Region\n,,2,north\n")
    assert price("import", path).code == 3
    said = price("import", CATALOGUE, "-o", tmp_path / "none" / "prices.yaml")
    assert (said.code, said.err.count("\n")) == (1, 1)
