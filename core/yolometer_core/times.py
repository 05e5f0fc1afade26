"""Times as numbers since 1970, and back: one rule for rounding, everywhere."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def us_of(time: datetime) -> int:
    """Whole microseconds since 1970, which a datetime holds exactly. TypeError for a time without a zone."""
    return (time - EPOCH) // _MICROSECOND


def ms_of(time: datetime) -> int:
    """Whole milliseconds since 1970, rounded half up: as the stores keep times."""
    return (us_of(time) + 500) // 1000


def from_us(us: int) -> datetime:
    """The time so many microseconds after 1970. OverflowError for a year after 9999."""
    return EPOCH + timedelta(microseconds=us)


def from_ms(ms: float) -> datetime:
    """The time so many milliseconds after 1970. OverflowError for a year after 9999."""
    return EPOCH + timedelta(milliseconds=ms)
