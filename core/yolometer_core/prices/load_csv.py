"""A catalogue of machines with GPUs in the columns of SkyPilot, read into prices per GPU-hour: on demand and spot.

A machine's price is divided by its GPUs. Where several machines of a region have the same GPU, the cheapest per GPU stands for
it: a list of prices knows the GPU of a node, not its type of machine. `instance_types` narrows that to what is really rented.
"""

from __future__ import annotations

import csv
import difflib
import re
from collections import Counter
from collections.abc import Collection, Iterator
from datetime import datetime
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import NamedTuple

from yolometer_core.errors import BadInput
from yolometer_core.prices._base import HIGHEST, Price, micro
from yolometer_core.prices.names import plain

NEEDED = ("AcceleratorName", "AcceleratorCount", "Price", "Region")
KNOWN = (*NEEDED, "InstanceType", "vCPUs", "MemoryGiB", "GpuInfo", "SpotPrice", "AvailabilityZone",
         "Arch", "Generation", "UpstreamCloudId")  # fmt: skip
"""The columns of SkyPilot's catalogues; the last three are in those of single clouds."""
_NUMBER = re.compile(r"\d+(\.\d*)?([eE][+-]?\d{1,2})?|\.\d+", re.ASCII)
_NOTHING = ("", "nan", "none", "null")
_TPU = re.compile(r"tpu\b|tpu-", re.IGNORECASE)


class Imported(NamedTuple):
    """The prices of a catalogue, how many rows it has, and why some of them, or one of their two prices, were left out."""

    prices: tuple[Price, ...]
    rows: int
    skipped: dict[str, int]


class _Offer(NamedTuple):
    """What one row asks for one GPU."""

    line: int
    gpu_model: str
    region: str | None
    kind: str
    price: Decimal
    machine: str


def load_catalogue(
    path: Path, *, provider: str | None = None, currency: str = "USD", valid_from: datetime | None = None,
    instance_types: Collection[str] = (), ignore: Collection[str] = (),
) -> Imported:  # fmt: skip
    """The prices in a CSV file. Left out and counted: rows without a GPU, prices that are missing, 0 or above 500 an hour.

    BadInput, one sentence with the line, for a file that is no such catalogue, an unknown column (but those in `ignore`), a row
    with too many or too few cells, and a price or a count that is no number or negative.
    """
    skipped: Counter[str] = Counter()
    offers: dict[tuple[str, str | None, str], list[_Offer]] = {}
    rows = 0
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            for line, row in _rows(path, csv.reader(file, strict=True), ignore):
                rows += 1
                for offer in _offers(path, line, row, instance_types, skipped):
                    offers.setdefault((plain(offer.gpu_model), offer.region, offer.kind), []).append(offer)
    except OSError as error:
        raise BadInput(f"{path} cannot be read ({error.strerror}); name another file.") from error
    except UnicodeDecodeError as error:
        raise BadInput(f"{path} is no text in UTF-8; save it as such.") from error
    spelt: dict[str, str] = {}
    prices = [_price(own, path, provider, currency, valid_from, spelt) for own in offers.values()]
    prices.sort(key=lambda price: (price.gpu_model, price.region or "", price.kind or ""))
    return Imported(tuple(prices), rows, dict(skipped))


def _rows(path: Path, reader: Iterator[list[str]], ignore: Collection[str]) -> Iterator[tuple[int, dict[str, str]]]:
    """The rows by column, with their line."""
    try:
        head = [name.strip() for name in next(reader, [])]
        _check_columns(path, head, ignore)
        for cells in reader:
            line: int = reader.line_num  # type: ignore[attr-defined]  # csv.reader has no type of its own
            if cells and len(cells) != len(head):
                raise BadInput(f"{path} line {line}: {len(cells)} cells for {len(head)} columns; correct the row.")
            if cells:
                yield line, dict(zip(head, (cell.strip() for cell in cells), strict=True))
    except csv.Error as error:
        raise BadInput(f"{path} line {reader.line_num}: it is no valid CSV ({error}); correct it.") from error  # type: ignore[attr-defined]


def _check_columns(path: Path, head: list[str], ignore: Collection[str]) -> None:
    for name in head:
        if name not in KNOWN and name not in ignore:
            near = difflib.get_close_matches(name, KNOWN, n=1, cutoff=0.6)
            hint = f"did you mean {near[0]!r}" if near else f"leave it out with `--ignore {name}`"
            raise BadInput(f"{path}: the column {name!r} is unknown; {hint}.")
    missing = [name for name in NEEDED if name not in head]
    if missing:
        raise BadInput(f"{path}: the column {missing[0]!r} is missing; a catalogue of SkyPilot has {', '.join(NEEDED)}.")
    twice = [name for name, count in Counter(head).items() if count > 1]
    if twice:
        raise BadInput(f"{path}: the column {twice[0]!r} is there twice; remove one.")


def _offers(
    path: Path, line: int, row: dict[str, str], instance_types: Collection[str], skipped: Counter[str]
) -> Iterator[_Offer]:
    """What a row asks for one GPU, on demand and spot."""
    model, machine = row["AcceleratorName"], row.get("InstanceType", "")
    gpus = _number(path, line, "AcceleratorCount", row)
    if model.casefold() in _NOTHING or not gpus:
        skipped["no GPU"] += 1
        return
    if _TPU.match(model):
        skipped["a TPU"] += 1
        return
    if instance_types and machine not in instance_types:
        skipped["another machine"] += 1
        return
    for kind, column in (("on_demand", "Price"), ("spot", "SpotPrice")):
        asked = _number(path, line, column, row)
        if not asked:
            skipped[f"no {kind} price" if asked is None else f"{kind} price of 0"] += 1
            continue
        price = Decimal(micro(asked / gpus)).scaleb(-6)
        if price > HIGHEST:
            skipped[f"{kind} price above {HIGHEST}"] += 1
            continue
        yield _Offer(line, model, row["Region"] or None, kind, price, machine)


def _number(path: Path, line: int, column: str, row: dict[str, str]) -> Decimal | None:
    """A number of a row; None where there is none."""
    text = row.get(column, "")
    if text.casefold() in _NOTHING:
        return None
    try:
        number = Decimal(text) if _NUMBER.fullmatch(text) else None
    except InvalidOperation:
        number = None
    if number is None or number > 10**9:
        raise BadInput(f"{path} line {line}: {column} is {text!r}, which is no number of 0 or more; correct it.")
    return number


def _price(
    offers: list[_Offer], path: Path, provider: str | None, currency: str, valid_from: datetime | None, spelt: dict[str, str]
) -> Price:
    """The price that stands for all offers of one GPU, region and kind: the cheapest."""
    best = min(offers, key=lambda offer: (offer.price, offer.line))
    dearest = max(offer.price for offer in offers)
    machines = len({offer.machine for offer in offers})
    source = f"{path.name} line {best.line}" + (f", {best.machine}" if best.machine else ", without a machine")
    if dearest > best.price:
        source += f", cheapest of {machines} machines (to {dearest})" if machines > 1 else f", cheapest zone (to {dearest})"
    return Price(
        gpu_model=spelt.setdefault(plain(best.gpu_model), best.gpu_model), price=best.price, currency=currency, provider=provider,
        region=best.region, kind=best.kind, valid_from=valid_from, source=source, line=best.line,
    )  # fmt: skip
