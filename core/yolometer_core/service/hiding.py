"""Secrets that must not be shown: by the name of their key, and by their value wherever it turns up."""

from __future__ import annotations

import json
import math
import re
import threading
from collections.abc import Mapping
from datetime import date
from pathlib import PurePath
from urllib.parse import quote

HIDDEN = "***"
LONGEST_TEXT = 20_000
DEEPEST = 6

_WORDS = frozenset(
    {"password", "passwd", "passphrase", "secret", "secrets", "authorization", "credential", "credentials", "apikey", "token"}
)
_PARTS = re.compile(r"[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])")
# What other libraries put into a sentence: a user and password in an address, and `password=...`.
_ADDRESS = re.compile(r"(://[^\s/:@]*:)[^\s/@]+@")
_SAID = re.compile(
    r"(?i)((?:password|passwd|passphrase|secret|authorization|credentials?|api_?key|token)['\"]?\s?[=:]\s?(?:(?:bearer|basic)\s)?)"
    r"(?:\"[^\"]*\"|'[^']*'|[^\s'\",;&)}\]]+)"
)

_lock = threading.Lock()
_values: set[str] = set()
_pattern: re.Pattern[str] | None = None


def hide(value: str | bytes | None) -> None:
    """Never show `value` again, in no log line and no answer: `***` stands in its place. Nothing happens for an empty one."""
    global _pattern  # noqa: PLW0603  # the one list of this process: secrets are read in one place and shown in another
    text = value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else value
    if not text or not text.strip():
        return
    with _lock:
        for form in {text, text.strip()}:
            _values.update(_forms(form))
        # the longest first: a secret may be the beginning of another
        _pattern = re.compile("|".join(re.escape(each) for each in sorted(_values, key=len, reverse=True)))


def scrub(text: str) -> str:
    """`text` without the hidden values and what stands after `password=` and the like; clipped when very long."""
    if _pattern is not None:
        text = _pattern.sub(HIDDEN, text)
    text = _SAID.sub(rf"\1{HIDDEN}", _ADDRESS.sub(rf"\1{HIDDEN}@", text))
    if len(text) > LONGEST_TEXT:  # only now: a secret that is cut in two is not found
        begin, end = LONGEST_TEXT * 3 // 4, LONGEST_TEXT // 4  # the end of a traceback says most
        text = f"{text[:begin]}... ({len(text) - begin - end} characters) ...{text[-end:]}"
    return text


def secret_key(key: str) -> bool:
    """Whether the name of a key says that its value is a secret. `tokens` are counted here and are none."""
    words = [word.lower() for word in _PARTS.findall(key)]
    return bool(words) and (words[0] == "sasl" or not _WORDS.isdisjoint(words) or "api_key" in "_".join(words))


def plain(value: object, depth: int = 0) -> object:
    """`value` as plain JSON data, without secrets in keys or values. Never fails: what cannot be shown is said so."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int | float):
        shown = str(value)
        finite = not isinstance(value, float) or math.isfinite(value)
        return value if finite and scrub(shown) == shown else scrub(shown)
    if isinstance(value, str):
        return scrub(str(value))
    if depth < DEEPEST and isinstance(value, Mapping):
        return {key: shown for each, inner in value.items() for key, shown in [_pair(each, inner, depth)]}
    if depth < DEEPEST and isinstance(value, list | tuple | set | frozenset):
        return [plain(each, depth + 1) for each in value]
    return scrub(_shown(value))


def _pair(key: object, value: object, depth: int) -> tuple[str, object]:
    name = key if isinstance(key, str) else _shown(key)
    return scrub(name), HIDDEN if secret_key(name) and value is not None else plain(value, depth + 1)


def _shown(value: object) -> str:
    try:
        return str(value) if isinstance(value, BaseException | PurePath | date) else repr(value)
    except Exception:  # noqa: BLE001  # a log line must not end a service because a foreign object cannot be shown
        return f"<{type(value).__name__} that cannot be shown>"


def _forms(text: str) -> set[str]:
    """The secret as it stands in a text, in quoted Python, in JSON, in bytes and in an address."""
    raw = text.encode("utf-8", "surrogateescape")
    both = "'\""  # beside both kinds of quotes, one of them is written with a backslash
    return {
        text,
        repr(text)[1:-1],
        repr(both + text)[4:-1],
        repr(raw)[2:-1],
        repr(both.encode() + raw)[5:-1],
        json.dumps(text)[1:-1],
        json.dumps(text, ensure_ascii=False)[1:-1],
        quote(raw, safe=""),
    }


__all__ = ["HIDDEN", "hide", "plain", "scrub", "secret_key"]
