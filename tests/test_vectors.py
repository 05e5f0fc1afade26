"""Every vector of the folder YOLOMETER_VECTORS (default: tests/cases/vectors) through the product's real functions.

An op is known by the number of its file and its name, for several files have an op of the same name. A vector whose op is
not known fails. Compared are the keys present in `expect`: |got - want| <= max(rel |want|, abs); text, booleans and null
exactly; "inf" is infinity.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from yolometer_core import tokens
from yolometer_core.maths import cost, ledger, rates

FOLDER = Path(os.environ.get("YOLOMETER_VECTORS") or Path(__file__).parent / "cases" / "vectors")


def ring(samples: list[dict[str, Any]], t: float, w: float, g: float, wmax: float, lateness: float) -> dict[str, Any]:
    state = rates.ring_start(g, wmax, lateness)
    results = [rates.ring_add(state, s["key"], s["t0"], s["t1"], s["amount"]) for s in samples]
    return {"results": results, **state, **rates.ring_query(state, t, w)._asdict()}


def counter(rows: list[dict[str, Any]], bases: dict[str, Any]) -> dict[str, Any]:
    read = [rates.Reading(**row) for row in rows]
    return rates.counter(read, {int(attempt): base and tuple(base) for attempt, base in bases.items()})._asdict()


def bound(max_rate: float, sample_s: float, g: float, w: float) -> dict[str, Any]:
    return {f"{name}_max_rate_error": got for name, got in rates.error_bounds(max_rate, sample_s, g, w)._asdict().items()}


def legacy(params: float, H: int, W: int, batch: int, epochs: int) -> dict[str, Any]:
    got = tokens.compute_tokens_article(params, H, W, batch, epochs)
    return {"legacy_tokens": got, "ratio_to_printed_5_4e12": got / 5.4e12}


def effective(tokens_: float, flops_pruned: float, flops_original: float) -> dict[str, Any]:
    share = tokens.alpha(flops_pruned, flops_original)
    return {"alpha": share, "tokens_effective": tokens.effective_tokens(tokens_, share)}


def us(seconds: float) -> int:
    return round(seconds * 1_000_000)


def priced(u0: float, u1: float, gpus: int, prices: list[tuple[float, float]]) -> dict[str, Any]:
    changes = [(us(t), Fraction(str(price)) * cost.MICROS) for t, price in prices]
    got = cost.cost(us(u0), us(u1), gpus, changes)
    return {"cost": None if got.exact is None else float(got.exact / cost.MICROS), "unpriced_s": got.unpriced_us / 1e6}


def booked(
    events: list[dict[str, Any]], p0: float, p1: float, now: float, arrived_by: float | None, window_s: float
) -> dict[str, Any]:  # fmt: skip
    entries = [ledger.Entry(e["id"], e["rev"], us(e["t"]), us(e["amount"]), us(e["arrival"])) for e in events]
    arrived = None if arrived_by is None else us(arrived_by)
    got = ledger.totals(entries, us(p0), us(p1), us(now), us(window_s), arrived)
    return {"period_spent": got.period_micro / 1e6, "window_spent": got.window_micro / 1e6, "accepted": got.accepted}


# (number of the file, op) -> what the product answers to the `input` of a vector
OPS: dict[tuple[str, str], Callable[[Any], dict[str, Any]]] = {
    ("00", "tokens"): lambda x: {"tokens": tokens.tokens(x["iterations"])},
    ("00", "tokens_epoch"): lambda x: {"tokens": tokens.tokens_of_epochs(x["images"], x["H"], x["W"], x.get("epochs", 1))},
    ("00", "rate"): lambda x: {"mtok_per_s": tokens.rate_mtok_s(x["images_per_s"], x["H"], x["W"])},
    ("00", "equiv640"): lambda x: {"tokens_640eq": tokens.equivalent_640(x["tokens"], x["H"])},
    ("00", "effective"): lambda x: effective(x["tokens"], x["flops_pruned"], x["flops_original"]),
    ("00", "gpu_time"): lambda x: {"gpu_s": tokens.gpu_seconds(x["k_s_per_mtok"], x["tokens"])},
    ("00", "buffered"): lambda x: {"planned_gpu_s": [tokens.buffered(x["gpu_s"], buffer) for buffer in x["buffers"]]},
    ("00", "legacy_formula"): lambda x: legacy(**x),
    ("03", "cost"): lambda x: priced(**x),
    ("03", "ledger"): lambda x: booked(**x),
    ("05", "exact"): lambda x: rates.exact(x["samples"], x["t"], x["w"])._asdict(),
    ("05", "ring"): lambda x: ring(**x),
    ("05", "counter"): lambda x: counter(**x),
    ("05", "bound"): lambda x: bound(**x),
}


def differences(got: Any, want: Any, rel: float, absolute: float, at: str = "expect") -> list[str]:
    """Where `got` is not what is wanted, as sentences; an empty list is agreement."""
    if isinstance(want, dict):
        if not isinstance(got, dict):
            return [f"{at}: got {got!r}, want {want!r}"]
        missing = [f"{at}.{key}: missing" for key in want if key not in got]
        return missing + [d for k in want if k in got for d in differences(got[k], want[k], rel, absolute, f"{at}.{k}")]
    if isinstance(want, list):
        if not isinstance(got, list | tuple) or len(got) != len(want):
            return [f"{at}: got {got!r}, want {want!r}"]
        pairs = enumerate(zip(got, want, strict=True))
        return [d for n, (g, w) in pairs for d in differences(g, w, rel, absolute, f"{at}[{n}]")]
    number = float(want) if want in ("inf", "-inf") else want
    if isinstance(number, bool) or not isinstance(number, int | float):
        same = got == number and type(got) is type(number)
    elif isinstance(got, bool) or not isinstance(got, int | float):
        same = got == want == str(got)
    else:
        same = got == number or (math.isfinite(number) and abs(got - number) <= max(rel * abs(number), absolute))
    return [] if same else [f"{at}: got {got!r}, want {want!r}"]


def vectors() -> list[Any]:
    found = []
    for path in sorted(FOLDER.glob("*.json")):
        document = json.loads(path.read_text(encoding="utf-8"))
        number = str(document.get("file", path.name)).split("_")[0]
        for vector in document["vectors"]:
            tolerance = {"rel": 0.0, "abs": 0.0, **document.get("default_tolerance", {}), **(vector.get("tol") or {})}
            found.append(pytest.param(number, vector, tolerance, id=f"{path.stem}:{vector['id']}"))
    return found


@pytest.mark.parametrize(("number", "vector", "tolerance"), vectors())
def test_vector(number: str, vector: dict[str, Any], tolerance: dict[str, float]) -> None:
    answer = OPS.get((number, vector["op"]))
    if answer is None:
        pytest.fail(f"The product does not know the op {vector['op']!r} of the vectors {number}; add it to OPS in {__file__}.")
    wrong = differences(answer(vector["input"]), vector["expect"], tolerance["rel"], tolerance["abs"])
    assert not wrong, f"{vector['desc']}: " + "; ".join(wrong)


def test_there_are_vectors() -> None:
    assert vectors(), f"No vector in {FOLDER}; point YOLOMETER_VECTORS at a folder with vector files."


@pytest.mark.parametrize(
    ("got", "want"),
    [
        (1, True),
        (1.0, None),
        (None, 0.0),
        ("a", "b"),
        (1e9, "inf"),
        (math.nan, 1.0),
        ([1], [1, 2]),
        ({}, {"a": None}),
        (2.0, 1.0),
    ],
)
def test_what_differs_is_found(got: Any, want: Any) -> None:
    assert differences(got, want, 1e-9, 1e-9)


def test_what_agrees_is_left_alone() -> None:
    got = {"a": (1.0 + 1e-12, True, None), "b": math.inf, "more": 3}
    assert not differences(got, {"a": [1, True, None], "b": "inf"}, 1e-9, 0.0)
