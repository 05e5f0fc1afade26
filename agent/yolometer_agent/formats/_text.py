"""Helpers that all formats share: a record without its colours, and the ways trainers write numbers and durations."""

from __future__ import annotations

import re

LONGEST = 64 * 1024
"""Only so many bytes of one record are read: no trainer writes a longer line that says something."""

_ESCAPE = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\^_])")
_CONTROL = bytes(code for code in (*range(32), 127) if code != 9)
_NUMBER = re.compile(r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]{1,4})?", re.ASCII)
_NOT_FINITE = re.compile(r"([-+]?)(nan|inf|infinity)(?:\([a-z0-9_]*\))?", re.IGNORECASE)
_INTEGER = re.compile(r"[-+]?(?:[0-9]{1,18}|[0-9]{1,3}(?:,[0-9]{3}){1,5})")
_SIZE = re.compile(r"(.*?)\s*([KMGT]?)(?:i?[bB])?")
_SECONDS = re.compile(r"([0-9.]+(?:e[-+]?[0-9]{1,2})?)\s*(s|ms|us)")
_CLOCK = re.compile(r"(?:([0-9]{1,6}) days?, )?(?:([0-9]{1,6}):)?([0-9]{1,3}):([0-9]{1,2}(?:\.[0-9]+)?)")


def plain(record: bytes) -> str:
    """The text of a record: colours, cursor moves and control characters (all but the tab) gone, bad UTF-8 replaced."""
    record = record[:LONGEST]
    if b"\x1b" in record:
        record = _ESCAPE.sub(b"", record)
    return record.translate(None, _CONTROL).decode("utf-8", "replace")


def number(text: str) -> float | None:
    """A float as C and Python print it: `0.5`, `1e-05`, `nan`, `-nan`, `-nan(ind)`, `inf`. Null if it is no number."""
    text = text.strip()
    if _NUMBER.fullmatch(text):
        return float(text)
    special = _NOT_FINITE.fullmatch(text)
    if special is None:
        return None
    if special[2].lower() == "nan":
        return float("nan")
    return float("-inf") if special[1] == "-" else float("inf")


def integer(text: str) -> int | None:
    """A whole number, with or without thousands commas: `2590425`, `2,590,425`. Null if it is none (`8.0`, `1e3`)."""
    text = text.strip()
    return int(text.replace(",", "")) if _INTEGER.fullmatch(text) else None


def size_bytes(text: str, base: int) -> int | None:
    """Bytes of `7.23G`, `1.02e+03G`, `4000Mb` with units of `base` (1000 or 1024). Null for 0: nothing was measured."""
    match = _SIZE.fullmatch(text.strip())
    value = number(match[1]) if match else None
    if match is None or value is None or not 0 < value < 1e15:
        return None
    return int(value * base ** " KMGT".index(match[2] or " "))


def clock_s(text: str) -> float | None:
    """Seconds of `0.4s`, `12ms`, `1:05`, `1:02:03`, `1 day, 2:03:04`. Null for anything else (`?`, `12`)."""
    text = text.strip()
    seconds = _SECONDS.fullmatch(text)
    if seconds:
        value = number(seconds[1])
        return None if value is None else value * {"s": 1.0, "ms": 1e-3, "us": 1e-6}[seconds[2]]
    clock = _CLOCK.fullmatch(text)
    if clock is None:
        return None
    days, hours, minutes = (int(part or 0) for part in clock.group(1, 2, 3))
    return days * 86400.0 + hours * 3600.0 + minutes * 60.0 + float(clock[4])


def unit(text: str) -> float:
    """How coarse a printed decimal is: `0.512` is told to 0.001, `12` to 1."""
    mantissa, _, exponent = text.strip().lower().partition("e")
    digits = len(mantissa.partition(".")[2])
    power = integer(exponent) or 0
    return float(10.0 ** max(-300, min(300, power - digits)))
