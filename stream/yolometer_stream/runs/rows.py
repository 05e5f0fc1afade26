"""From a training and its books to the rows `run` and `epoch`, and to the work that rates are made of. Pure functions."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from yolometer_core.events import Epoch, Run, Status
from yolometer_core.money import cost_of
from yolometer_core.tokens import TOKENS_PER_MTOK, equivalent_640
from yolometer_stream.runs.account import Books, Line, books_of, error_of
from yolometer_stream.runs.closed import Closed
from yolometer_stream.runs.resolve import Training
from yolometer_stream.runs.times import time_lines
from yolometer_stream.runs.totals import Totals, plus


@dataclass(frozen=True)
class Terms:
    """What is told from outside about the hardware and the money of the runs (until meters and price lists tell it)."""

    gpu_model: str | None = None
    gpus: int | None = None
    price_per_gpu_hour: Decimal | None = None
    currency: str | None = None
    owner: tuple[tuple[str, str], ...] = ()


def run_id_of(place: str, training: Training) -> str:
    """A readable id that is always the same for the same training of the same place."""
    said = "\x1f".join([place, training.group, str(training.ordinal)])
    digest = hashlib.blake2b(said.encode(), digest_size=5).hexdigest()
    name = training.setting("name") or training.group.replace("\\", "/").split("/")[-1] or training.setting("framework") or "run"
    safe = "".join(letter if letter.isalnum() or letter in "._-" else "-" for letter in str(name))[:40]
    return f"{safe}-{digest}"


def mtok(tokens: float | None) -> float | None:
    return None if tokens is None else tokens / TOKENS_PER_MTOK


def _kept_tokens(training: Training, books: Books, totals: Totals) -> tuple[float | None, int | None]:
    """(tokens, images) of the epochs that are in the result, those before the first console or row included."""
    tokens, images = totals.tokens, totals.images
    before = max((1 if totals.kept_from is None else totals.kept_from) - 1, 0)
    if before:
        per_epoch = training.setting("images_per_epoch")
        tokens = plus(tokens, before * per_epoch * totals.first_pixels if per_epoch and totals.first_pixels else None)
        images = plus(images, None if per_epoch is None else before * per_epoch)
    if not totals.kept and books.epochs_done is None:
        return None, None
    return tokens, None if images is None else int(images)


def status_of(training: Training, books: Books) -> Status | None:
    """How the training stands; null where no source tells (a table that stops early may have stopped, or still run)."""
    planned = _planned(training)
    last = training.sessions[-1] if training.sessions else None
    unseen = bool(training.table and last and training.table.last_epoch > training.reached > 0)
    if last is not None and not unseen:
        error = error_of(last)
        if last.incident("stopped_early"):
            return "stopped_early"
        if last.incident("completed"):
            return "finished"
        if error:
            return "interrupted" if "Interrupt" in error.get("text", "") else "failed"
    done = books.epochs_done
    if planned is not None and done is not None and done >= planned > 0 and not training.setting("time_budget"):
        return "finished"
    silent = last is not None and (last.headless or last.settings.get("end_line") is False)
    if last is None or unseen or (last.open is False and silent):
        return None
    return "interrupted" if last.open is False else "running" if last.open else None


def _best(totals: Totals) -> tuple[float | None, int | None, float | None]:
    """(best mAP50-95, its epoch, best top-1): the first of equals; no epoch where rounded figures leave it open."""
    best = totals.map50_95 or totals.top1
    if best is None or (totals.kept_from or 0) > 1:
        # earlier epochs are in no source at hand, and the best may be among them
        return None, None, None
    rounded = best.score > 0 and best.holders > 1 and best.vague
    top1 = totals.top1.score if totals.top1 else None
    return (best.score if totals.map50_95 else None), (None if rounded else best.epoch or None), top1


def val_tokens(training: Training, line: Line) -> float | None:
    """Tokens of the validation after an epoch; null when its images or their size are unknown."""
    images = (line.evaluation or {}).get("images") or training.setting("val_images")
    height, width = training.setting("height_px"), training.setting("width_px")
    return None if images is None or not height or not width else float(images * height * width)


def _when(stamp: float | None) -> datetime | None:
    return None if stamp is None else datetime.fromtimestamp(stamp, UTC)


@dataclass(frozen=True)
class Rows:
    """The rows of one training; an epoch is made into a row only when it is asked for, for most do not change."""

    run: Run
    books: Books
    training: Training
    envelope: dict[str, Any]

    @property
    def lines(self) -> list[Line]:
        return self.books.lines

    def mark(self, line: Line) -> str:
        """What a line says, in short: another mark is another row."""
        sources = (line.progress, line.evaluation, line.row)
        counted = (line.kept, line.why_wasted, line.complete, line.images, line.pixels, line.estimated, line.train_s)
        said = (counted, self._val(), sources)
        return hashlib.blake2b(repr(said).encode(), digest_size=8).hexdigest()

    def epoch(self, line: Line) -> Epoch:
        """The row of a line."""
        return _epoch(self.training, line, self.run.run_id, self.envelope)

    def _val(self) -> tuple[Any, ...]:
        return tuple(self.training.setting(name) for name in ("val_images", "height_px", "width_px"))


def rows_of(
    place: str, training: Training, envelope: dict[str, Any], terms: Terms, closed: Closed | None = None
) -> Rows:  # fmt: skip
    """The rows of one training. `envelope` holds ts, node, source, seq and version; `closed` what of the books is closed."""
    books = books_of(training, closed.totals.kept_to if closed else None)
    seconds = time_lines(books, closed.times if closed else None)
    totals = closed.totals.copy() if closed else Totals()
    for line in books.lines:
        totals.add(line, val_tokens(training, line) if line.evaluation is not None else None)
    run = _run(place, training, books, totals, seconds, run_id_of(place, training), envelope, terms)
    return Rows(run, books, training, envelope)


def _run(
    place: str, training: Training, books: Books, totals: Totals, seconds: float | None, run_id: str,
    envelope: dict[str, Any], terms: Terms,
) -> Run:  # fmt: skip
    tokens, images = _kept_tokens(training, books, totals)
    setting = training.setting
    best, best_epoch, best_top = _best(totals)
    height, width = setting("height_px"), setting("width_px")
    if width is None:
        height, width = totals.size
    gpu_model = terms.gpu_model or setting("gpu_model")
    gpus = terms.gpus or setting("gpus") or (1 if gpu_model or terms.price_per_gpu_hour is not None else None)
    gpu_seconds = seconds * gpus if seconds is not None and gpus else None
    cost = cost_of(gpu_seconds, terms.price_per_gpu_hour)
    status = status_of(training, books)
    current = books.lines[-1] if books.lines else None
    under_way = current if current and not current.complete and status == "running" else None
    stamps = [stamp for session in training.sessions for stamp in (session.first_ts, session.last_ts)]
    stamps += books.stamps
    k_tokens = mtok(tokens)
    return Run(
        **envelope,
        run_id=run_id,
        place=place,
        name=setting("name") or training.group.replace("\\", "/").split("/")[-1] or None,
        framework=setting("framework"),
        framework_version=setting("framework_version"),
        task=setting("task"),
        model=setting("model"),
        imgsz=width,
        batch=_last_batch(training),
        epochs_planned=_planned(training),
        epochs_done=None if totals.endless else books.epochs_done,
        attempts=books.attempts,
        status=status,
        images_per_epoch=setting("images_per_epoch"),
        images=images,
        tokens_mtok=k_tokens,
        tokens_640_mtok=None if tokens is None or not height else equivalent_640(tokens, height) / TOKENS_PER_MTOK,
        tokens_estimated=None if tokens is None else totals.estimated,
        wasted_mtok=mtok(totals.wasted) if books.waste_known else None,
        wasted_oom_mtok=mtok(totals.wasted_by["oom_retry"]) if books.waste_known else None,
        wasted_nan_mtok=mtok(totals.wasted_by["nan_replay"]) if books.waste_known else None,
        wasted_kill_mtok=mtok(totals.wasted_by["killed"]) if books.waste_known else None,
        val_mtok=mtok(totals.validated) if training.sessions and books.whole else None,
        train_seconds=seconds,
        rate_mtok_s=k_tokens / seconds if k_tokens is not None and seconds else None,
        k_s_per_mtok=gpu_seconds / k_tokens if gpu_seconds is not None and k_tokens else None,
        best_map50_95=best,
        best_epoch=best_epoch,
        best_top1=best_top,
        params=setting("params"),
        gflops=setting("gflops"),
        optimizer=setting("optimizer"),
        precision=setting("precision"),
        gpu_model=gpu_model,
        gpus=gpus,
        gpu_memory_bytes=totals.memory_bytes or None,
        gpu_seconds=gpu_seconds,
        cost=cost,
        currency=terms.currency if cost is not None else None,
        owner=dict(terms.owner),
        sources=tuple(training.sources),
        started_ts=_when(min(stamps, default=None)),
        ended_ts=_when(max(stamps, default=None)) if status not in ("running", None) else None,
        epoch_now=under_way.epoch or None if under_way else None,
        iterations_done=(under_way.progress or {}).get("iterations_done") if under_way else None,
        iterations_total=(under_way.progress or {}).get("iterations_total") if under_way else None,
    )


def _last_batch(training: Training) -> int | None:
    """The effective batch: after an OOM retry the halved one."""
    for session in reversed(training.sessions):
        retry = session.incident("oom_retry")
        if retry and retry.get("batch"):
            return int(retry["batch"])
        if session.settings.get("batch"):
            return int(session.settings["batch"])
    value = training.asked.get("batch")
    return int(value) if value else None


def _planned(training: Training) -> int | None:
    """Planned epochs: what the bars say last, for a time budget changes it while it runs."""
    planned = None if training.setting("time_budget") else training.setting("epochs_planned")
    if planned is None and training.table and not training.setting("time_budget"):
        planned = training.table.epochs_total
    if planned is None:
        planned = next((session.epochs_total for session in reversed(training.sessions) if session.epochs_total), None)
    return int(planned) if planned else None


def _epoch(training: Training, line: Line, run_id: str, envelope: dict[str, Any]) -> Epoch:
    progress, evaluation, row = line.progress or {}, line.evaluation or {}, line.row or {}
    tokens = mtok(line.tokens)
    told = {**envelope, "ts": _when(line.ts) or envelope["ts"]}
    return Epoch(
        **told,
        run_id=run_id,
        attempt=line.attempt,
        epoch=line.epoch,
        take=line.take,
        kept=line.kept,
        why_wasted=line.why_wasted,
        complete=line.complete,
        iterations_done=progress.get("iterations_done"),
        iterations_total=progress.get("iterations_total"),
        images=line.images,
        tokens_mtok=tokens,
        tokens_estimated=None if tokens is None else line.estimated,
        val_mtok=mtok(val_tokens(training, line)) if evaluation else None,
        train_seconds=line.train_s,
        val_seconds=evaluation.get("val_s"),
        rate_mtok_s=tokens / line.train_s if tokens is not None and line.train_s else None,
        losses=tuple(row.get("losses") or progress.get("losses") or ()),
        map50=line.metric("map50"),
        map50_95=line.metric("map50_95"),
        top1=line.metric("top1"),
        gpu_memory_bytes=progress.get("gpu_memory_bytes") or row.get("gpu_memory_bytes"),
    )

