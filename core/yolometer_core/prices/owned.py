"""What a GPU-hour of owned hardware costs: purchase, power, people and space, spread over every hour it stands there.

price = (purchase - resale) / (life x 8766 h x GPUs)  +  kW of all GPUs x PUE x price per kWh / GPUs  +  (people + space) per year
/ (8766 h x GPUs). Every hour counts, used or not: what stands idle is paid for too, and is booked on `idle`.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal, localcontext

from yolometer_core.prices._base import micro

HOURS_PER_YEAR = Decimal(8766)
"""365.25 days."""


@dataclass(frozen=True, kw_only=True)
class Owned:
    """Hardware that was bought: what it cost and what it draws, for all its `gpus` together.

    The power is either `power_w`, the mean draw at the wall socket before the PUE, or measured: `measured_kwh` in so many
    `measured_gpu_hours` (of one GPU: both divided by each other are the mean power of one GPU).
    """

    gpus: int
    purchase_price: Decimal
    resale: Decimal
    life_years: Decimal
    power_price_per_kwh: Decimal
    pue: Decimal
    power_w: Decimal | None = None
    measured_kwh: Decimal | None = None
    measured_gpu_hours: Decimal | None = None
    people_per_year: Decimal | None = None
    space_per_year: Decimal | None = None

    @property
    def gpu_kw(self) -> Decimal | None:
        """The mean power that one GPU draws, with its share of the machine; None when neither power nor energy is given."""
        if self.power_w is not None:
            return self.power_w / 1000 / self.gpus
        if self.measured_kwh is not None and self.measured_gpu_hours:
            return self.measured_kwh / self.measured_gpu_hours
        return None

    def parts(self) -> dict[str, Decimal]:
        """What makes up the price of one GPU-hour: purchase, power, and people and space where they are given."""
        with localcontext(prec=28):
            per_year = HOURS_PER_YEAR * self.gpus
            found = {
                "purchase": (self.purchase_price - self.resale) / (self.life_years * per_year),
                "power": (self.gpu_kw or Decimal(0)) * self.pue * self.power_price_per_kwh,
            }
            for name, amount in (("people", self.people_per_year), ("space", self.space_per_year)):
                if amount is not None:
                    found[name] = amount / per_year
            return found

    def price(self) -> Decimal:
        """Money per GPU-hour, to the micro-unit."""
        return Decimal(micro(sum(self.parts().values(), Decimal(0)))).scaleb(-6)

    def provenance(self) -> str:
        """How the price came about, in words: it stands beside every price of owned hardware."""
        shown = {name: f"{amount:.6f}" for name, amount in self.parts().items()}
        kw = f"{self.gpu_kw or Decimal(0):.6f}".rstrip("0").rstrip(".")
        said = [
            f"purchase {shown['purchase']} = ({self.purchase_price} - {self.resale}) / ({self.life_years} years x"
            f" {HOURS_PER_YEAR} h x {self.gpus} GPUs)",
            f"power {shown['power']} = {kw} kW x PUE {self.pue} x {self.power_price_per_kwh} per kWh",
        ]
        said += [f"{name} {shown[name]}" for name in ("people", "space") if name in shown]
        return "owned: " + " + ".join(said)
