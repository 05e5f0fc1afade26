"""Owned hardware: the formula by exact fractions, and a provenance whose parts add up to the price."""

from __future__ import annotations

import re
from decimal import Decimal
from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from yolometer_core.prices.owned import Owned

MONEY = st.decimals(0, 10**7, places=2)


@given(
    st.integers(1, 512), MONEY, st.decimals(0, 1, places=2), st.decimals("0.5", 15, places=1), st.decimals(0, 2, places=4),
    st.decimals(1, 3, places=2), st.decimals(0, 50_000, places=1), st.none() | MONEY, st.none() | MONEY,
)  # fmt: skip
def test_the_price_is_the_formula(
    gpus: int, purchase: Decimal, left: Decimal, life: Decimal, kwh: Decimal, pue: Decimal, watts: Decimal,
    people: Decimal | None, space: Decimal | None,
) -> None:  # fmt: skip
    resale = (purchase * left).quantize(Decimal("0.01"))
    found = Owned(
        gpus=gpus, purchase_price=purchase, resale=resale, life_years=life, power_price_per_kwh=kwh, pue=pue, power_w=watts,
        people_per_year=people, space_per_year=space,
    )  # fmt: skip
    hours = Fraction(8766) * gpus
    exact = Fraction(purchase - resale) / (Fraction(life) * hours) + Fraction(watts) / 1000 / gpus * Fraction(pue) * Fraction(kwh)
    exact += (Fraction(people or 0) + Fraction(space or 0)) / hours
    assert abs(Fraction(found.price()) - exact) <= Fraction(1, 2_000_000) + Fraction(1, 10**12)
    said = re.findall(r"(?:purchase|power|people|space) ([0-9.]+)", found.provenance())
    assert abs(sum(map(Decimal, said)) - found.price()) <= Decimal("0.000003")
    assert ("people" in found.provenance()) == (people is not None)


def test_measured_energy_is_of_one_gpu() -> None:
    nothing, price = Decimal(0), Decimal("0.2")
    common = {"purchase_price": nothing, "resale": nothing, "life_years": Decimal(5), "pue": Decimal("1.5")}
    common["power_price_per_kwh"] = price
    found = Owned(gpus=8, measured_kwh=Decimal(700), measured_gpu_hours=Decimal(1000), **common)
    assert found.gpu_kw == Decimal("0.7")
    assert found.price() == Decimal("0.210000")
    assert Owned(gpus=8, **common).gpu_kw is None
