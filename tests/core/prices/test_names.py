"""Names of GPU models and currencies: what is the same, what is not, and what is none."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from yolometer_core.prices.currencies import ACTIVE, COMMON, WITHDRAWN, is_currency, nearest
from yolometer_core.prices.known_names import KNOWN_NAMES
from yolometer_core.prices.names import plain


@pytest.mark.parametrize(
    "name", ["NVIDIA H100 80GB HBM3", "nvidia-h100-80gb-hbm3", " H100 80GB_HBM3 ", "H10080GBHBM3", "NVIDIA  H100\t80GB HBM3"]
)
def test_spelling_does_not_matter(name: str) -> None:
    assert plain(name) == "h10080gbhbm3"


@pytest.mark.parametrize(
    ("one", "other"),
    [("A100", "A100-80GB"), ("H100 PCIe", "H100"), ("RTX 4090", "GeForce RTX 4090"), ("T4", "Tesla T4"), ("A10", "A10G")],
)
def test_everything_else_matters(one: str, other: str) -> None:
    assert plain(one) != plain(other)


@given(st.text(max_size=20))
def test_a_plain_name_is_as_plain_as_it_gets(name: str) -> None:
    assume(name.strip())
    once = plain(name)
    assert plain(f"NVIDIA {name}") in (once, f"nvidia{once}"), "only the first word is left out"
    assert not set(" -_\t") & set(once)


def test_known_names_lead_to_one_model_each() -> None:
    names = [plain(name) for known in KNOWN_NAMES.values() for name in known]
    assert len(names) == len(set(names))
    assert not set(names) & {plain(short) for short in KNOWN_NAMES}


def test_currencies_are_those_of_the_standard() -> None:
    assert len(ACTIVE) == 164
    assert all(len(code) == 3 and code.isascii() and code.isupper() for code in ACTIVE | WITHDRAWN)
    assert not ACTIVE & WITHDRAWN
    assert set(COMMON) <= ACTIVE
    assert all(is_currency(code) for code in ("USD", "EUR", "XAF", "XCG", "ZWG", "HRK", "BGN"))
    assert not any(is_currency(code) for code in ("usd", "XAU", "XXX", "XTS", "ZZZ", "DEM", "BTC", "", "US$", "USD "))


@pytest.mark.parametrize(
    ("code", "hint"),
    [("usd", "'USD'"), ("UDS", "'USD'"), ("EURO", "'EUR'"), ("YEN", "'JPY'"), ("$", "'USD'"), ("?", "three capital")],
)
def test_the_nearest_currency_is_named(code: str, hint: str) -> None:
    assert hint in nearest(code)
