"""The events: everything that crosses a process. Frozen, typed, units in field names; the event is the row.

Two layers. *Facts* are what an agent reads from one source (a log file, a table, a settings file); they say
where they come from (`place`, `session`) and nothing about other sources. *Rows* are what operators make of
the facts. docs/events.md lists every field.

place    the training directory as it names itself (or the folder it lies in): where the state of its runs lives
session  the n-th training process that wrote into one source, from 0
take     the n-th try of one epoch inside a session, from 0 (an epoch is tried again after an OOM or a NaN)
"""

from __future__ import annotations

import hashlib
from datetime import datetime
from decimal import Decimal
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, AwareDatetime, BaseModel, ConfigDict, Field

from yolometer_core.times import ms_of

Role = Literal["console", "table", "settings"]
Status = Literal["running", "finished", "stopped_early", "interrupted", "failed"]


Utc = Annotated[datetime, AwareDatetime]
"""A time with its zone; one without is refused."""


def _score(value: float) -> float:
    if value < 0:
        raise ValueError("a score cannot be negative")
    return value


Score = Annotated[float, AfterValidator(_score)]
"""How good a model is: a ratio, or NaN where the training diverged."""


def _text(value: object) -> str:
    """A value of an identity as the stores write it: unknown is empty, a time is in whole milliseconds since 1970."""
    if value is None:
        return ""
    if isinstance(value, datetime):
        return str(ms_of(value))
    return str(value)


class Event(BaseModel):
    """Base of all events: who said it (`node`, `source`, `seq`), when it happened (`ts`, UTC).

    `seq` is monotone per source and derived from the byte position, so the same line read twice gives the
    same `seq` and the same `event_id`. What is not `stored` only passes between operators; what has no `topic`
    never leaves the operators that gave it.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    table: ClassVar[str]
    topic: ClassVar[str | None] = None
    stored: ClassVar[bool] = True
    identity: ClassVar[tuple[str, ...]] = ("node", "source", "seq")

    schema_version: int = Field(default=1, alias="schema")
    ts: Utc
    node: str
    source: str
    seq: int = Field(ge=0)

    @property
    def key(self) -> str:
        """Where the state that takes this event lives (the Kafka key)."""
        return self.node

    @property
    def event_id(self) -> str:
        """32 hex digits derived from what the event says: the same statement always has the same id.

        The stores compute the same from their rows (ALIAS columns of the tables): the MD5 of the table and the identity.
        """
        fields = self.__dict__
        said = "\x1f".join([self.table, *[_text(fields[name]) for name in self.identity]])
        return hashlib.md5(said.encode(), usedforsecurity=False).hexdigest()

    @property
    def is_row(self) -> bool:
        """Whether a store keeps it."""
        return self.stored

    def row(self) -> dict[str, Any]:
        """The row of this event: its fields by name, then `event_id`."""
        return {**{name: getattr(self, name) for name in type(self).model_fields}, "event_id": self.event_id}


class Fact(Event):
    """What an agent read from one source of one place."""

    topic: ClassVar[str | None] = "fact"
    identity: ClassVar[tuple[str, ...]] = ("place", "source", "seq")

    place: str
    session: int = Field(default=0, ge=0)

    @property
    def key(self) -> str:
        return self.place


# `gt=-1` and not `ge=0`: the columns of these fields are signed since the first tables, and `ge=0` stands for an unsigned one.


class Setting(Fact):
    """What a source says about the training as a whole. Later settings of a session complete earlier ones.

    `end_line` is false for logs that do not say when they end, so that silence is no sign of a kill.
    """

    table: ClassVar[str] = "setting"

    role: Role
    framework: str | None = None
    framework_version: str | None = None
    task: str | None = None
    model: str | None = None
    height_px: int | None = Field(default=None, gt=-1)
    width_px: int | None = Field(default=None, gt=-1)
    batch: int | None = Field(default=None, gt=-1)
    epochs_planned: int | None = Field(default=None, gt=-1)
    iterations_planned: int | None = Field(default=None, gt=-1)
    images_per_epoch: int | None = Field(default=None, gt=-1)
    val_images: int | None = Field(default=None, gt=-1)
    fraction: float | None = None
    save_dir: str | None = None
    name: str | None = None
    params: int | None = Field(default=None, gt=-1)
    gflops: float | None = None
    optimizer: str | None = None
    precision: str | None = None
    gpu_model: str | None = None
    gpus: int | None = Field(default=None, gt=-1)
    seed: int | None = None
    rect: bool | None = None
    multi_scale: bool | None = None
    time_budget: bool | None = None
    resumed: bool | None = None
    resume_epoch: int | None = Field(default=None, gt=-1)
    started: bool | None = None
    end_line: bool | None = None
    job: str | None = None


class Progress(Fact):
    """How far an epoch (or a run without epochs) has come. `iterations_done == iterations_total` is a complete epoch.

    `epoch` counts from 1. `images` is the exact number so far where the log gives it (else it follows from
    iterations and batch). `square_px2_sum` is the sum of H x W over the iterations seen when sizes vary.
    `train_s` is training time since the epoch began, as the source shows it; `resolution_s` how coarse it is.
    """

    table: ClassVar[str] = "progress"

    epoch: int | None = Field(default=None, gt=-1)
    take: int = Field(default=0, gt=-1)
    epochs_total: int | None = Field(default=None, gt=-1)
    iterations_done: int = Field(ge=0)
    iterations_total: int | None = Field(default=None, gt=-1)
    images: int | None = Field(default=None, gt=-1)
    height_px: int | None = Field(default=None, gt=-1)
    width_px: int | None = Field(default=None, gt=-1)
    pixels_mean_px: float | None = None
    losses: tuple[float | None, ...] = ()
    gpu_memory_bytes: int | None = Field(default=None, gt=-1)
    images_per_s: float | None = None
    train_s: float | None = None
    resolution_s: float | None = None

    @property
    def is_row(self) -> bool:
        """Progress inside an epoch only feeds operators: the row is the whole epoch."""
        return self.epoch is None or self.iterations_done == self.iterations_total


class Evaluation(Fact):
    """A validation after an epoch. Metrics are ratios from 0 to 1; null where the source has none.

    `exact` is true where they have all their digits, as in JSON; a console rounds them.
    """

    table: ClassVar[str] = "evaluation"

    epoch: int | None = Field(default=None, gt=-1)
    take: int = Field(default=0, gt=-1)
    images: int | None = Field(default=None, gt=-1)
    map50: Score | None = None
    map50_95: Score | None = None
    top1: Score | None = None
    exact: bool | None = None
    val_s: float | None = None


class ResultRow(Fact):
    """A row of results.csv or results.txt. `time_s` is seconds since the training loop of that process began."""

    table: ClassVar[str] = "result_row"

    epoch: int = Field(gt=-1)
    time_s: float | None = None
    losses: tuple[float | None, ...] = ()
    map50: Score | None = None
    map50_95: Score | None = None
    top1: Score | None = None
    gpu_memory_bytes: int | None = Field(default=None, gt=-1)
    width_px: int | None = Field(default=None, gt=-1)
    epochs_total: int | None = Field(default=None, gt=-1)


IncidentKind = Literal["oom_retry", "nan_replay", "stopped_early", "completed", "error", "resume_refused"]


class Incident(Fact):
    """Something that changes what the epochs mean, or ends the session."""

    table: ClassVar[str] = "incident"

    epoch: int | None = Field(default=None, gt=-1)
    take: int = Field(default=0, gt=-1)
    what: IncidentKind
    batch: int | None = Field(default=None, gt=-1)
    best_epoch: int | None = Field(default=None, gt=-1)
    epochs_completed: int | None = Field(default=None, gt=-1)
    loop_s: float | None = None
    resolution_s: float | None = None
    text: str | None = None


class SourceState(Fact):
    """What the agent knows of a source itself: its role, its size, and whether a process still writes it (null: cannot tell).

    `digest` is of the whole content so far: by it a copy of a run at another path is known for a copy.
    """

    table: ClassVar[str] = "source_state"

    role: Role
    format: str
    path: str
    size_bytes: int = Field(ge=0)
    open_for_writing: bool | None = None
    digest: str | None = None


class Settle(Event):
    """Sent by a runner after a batch: operators that wait for more facts of a key now say what they know."""

    table: ClassVar[str] = "settle"
    stored: ClassVar[bool] = False

    place: str

    @property
    def key(self) -> str:
        return self.place


class Row(Event):
    """What an operator says about one run. `version` grows with knowledge: the highest version of a row holds."""

    topic: ClassVar[str | None] = "run"

    run_id: str
    version: int = Field(ge=0)
    is_deleted: bool = False

    @property
    def key(self) -> str:
        return self.run_id


class Run(Row):
    """One training from first epoch to last. The fields of `yolometer replay --json`, and a few more. See docs/words.md."""

    table: ClassVar[str] = "run"
    identity: ClassVar[tuple[str, ...]] = ("run_id",)

    place: str
    name: str | None = None
    framework: str | None = None
    framework_version: str | None = None
    task: str | None = None
    model: str | None = None
    imgsz: int | None = None
    batch: int | None = None
    epochs_planned: int | None = None
    epochs_done: int | None = None
    attempts: int | None = None
    status: Status | None = None
    images_per_epoch: int | None = None
    images: int | None = None
    tokens_mtok: float | None = None
    tokens_640_mtok: float | None = None
    tokens_estimated: bool | None = None
    wasted_mtok: float | None = None
    wasted_oom_mtok: float | None = None
    wasted_nan_mtok: float | None = None
    wasted_kill_mtok: float | None = None
    val_mtok: float | None = None
    train_seconds: float | None = None
    rate_mtok_s: float | None = None
    k_s_per_mtok: float | None = None
    best_map50_95: float | None = None
    best_epoch: int | None = None
    best_top1: float | None = None
    params: int | None = None
    gflops: float | None = None
    optimizer: str | None = None
    precision: str | None = None
    gpu_model: str | None = None
    gpus: int | None = None
    gpu_memory_bytes: int | None = None
    gpu_seconds: float | None = None
    cost: Decimal | None = None
    currency: str | None = None
    owner: dict[str, str] = Field(default_factory=dict)
    sources: tuple[str, ...] = ()
    started_ts: Utc | None = None
    ended_ts: Utc | None = None
    epoch_now: int | None = None
    iterations_done: int | None = None
    iterations_total: int | None = None


class Epoch(Row):
    """One try of one epoch. `kept` says whether its work is in the result; `why_wasted` says why not."""

    table: ClassVar[str] = "epoch"
    identity: ClassVar[tuple[str, ...]] = ("run_id", "attempt", "epoch", "take")

    attempt: int
    epoch: int
    take: int = 0
    kept: bool
    why_wasted: Literal["oom_retry", "nan_replay", "killed", "redone"] | None = None
    complete: bool
    iterations_done: int | None = None
    iterations_total: int | None = None
    images: int | None = None
    tokens_mtok: float | None = None
    tokens_estimated: bool | None = None
    val_mtok: float | None = None
    train_seconds: float | None = None
    val_seconds: float | None = None
    rate_mtok_s: float | None = None
    losses: tuple[float | None, ...] = ()
    map50: float | None = None
    map50_95: float | None = None
    top1: float | None = None
    gpu_memory_bytes: int | None = None


class Work(Event):
    """Tokens that a run consumed between two times: what rates are made of. `duration_s` ends at `ts`."""

    table: ClassVar[str] = "work"
    stored: ClassVar[bool] = False
    identity: ClassVar[tuple[str, ...]] = ("run_id", "attempt", "seq")

    run_id: str
    attempt: int
    duration_s: float = Field(ge=0)
    amount_mtok: float = Field(ge=0)

    @property
    def key(self) -> str:
        return self.run_id


class Rate(Event):
    """Rolling token rates of one run, or of the box (`run_id` null), at one time (docs/maths.md, section 5)."""

    table: ClassVar[str] = "rate"
    topic: ClassVar[str | None] = "rate"
    identity: ClassVar[tuple[str, ...]] = ("node", "run_id", "ts", "window_s")

    run_id: str | None
    window_s: int
    rate_mtok_s: float
    coverage_ratio: float
    active_rate_mtok_s: float | None
    late: int = 0
    duplicates: int = 0
