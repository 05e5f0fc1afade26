"""Foreign errors, translated at this one place: what clickhouse-connect, chDB and the system raise becomes our two words.

Unavailable is what may be different later without touching the events: a server that is away, a lock, a full disk, a
wrong password, a missing grant. Bad is the rest: BadInput for rows that no retry will make fit, BadUsage for a query
that cannot be bound, BadStore for a store whose content contradicts the program.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Literal

from yolometer_core.errors import BadInput, BadStore, BadUsage, StoreUnavailable, YolometerError

Doing = Literal["open", "write", "query"]
# ClickHouse error codes (system.errors lists them) by what a person can do about them.
_LOCKED = {76}
_NO_LOGIN = {192, 193, 194, 516}
_NO_GRANT = {291, 497}
_READ_ONLY = {164, 242}
_FULL = {243}
_BUSY = {3, 107, 159, 198, 202, 203, 209, 210, 241, 252, 279, 285, 319, 394, 425, 439, 745, 999}
_NOT_MIGRATED = {60, 81}
_NOT_OURS = {8, 10, 16, 47}
_DAMAGED = {27, 32, 33, 40, 79, 117, 118, 128, 131, 226, 228, 229, 231, 246, 271, 273, 367, 432, 479}
_BAD_ROW = {69, 70, 321, 349, 407}
_BAD_PARAMETER = {6, 36, 38, 41, 72, 377, 456, 457}
_FULL_WORDS = re.compile(r"No space left on device|NOT_ENOUGH_SPACE|not enough space|Disk quota exceeded", re.IGNORECASE)
_LOCK_WORDS = re.compile(r"Cannot lock file|Error initializing EmbeddedServer: \.")
_OTHER_PATH_WORDS = re.compile(r"already (?:initialized|running|exists|open)|different path|another path", re.IGNORECASE)
_PERMISSION_WORDS = re.compile(r"Permission denied|Read-only file system|Operation not permitted")
_LOGIN_WORDS = re.compile(r"Authentication failed|password is incorrect", re.IGNORECASE)
_REASON = re.compile(
    r"Connection refused|Connection reset|Name or service not known|Temporary failure in name resolution|No route to host|"
    r"Network is unreachable|certificate verify failed|timed out",
    re.IGNORECASE,
)
_CODE = re.compile(r"\bCode: (\d+)")
_DETAIL_CHARACTERS = 200


class Locked(StoreUnavailable):
    """Another process has the store open, as far as the engine's words tell."""


@contextmanager
def foreign(store: str, secrets: Sequence[str] = (), during: Doing = "query") -> Iterator[None]:
    """Let no error out that is not ours. `store` is its name in messages, `secrets` are never shown, `during` says what
    was tried: some errors are about the rows when writing, and about the statement when asking."""
    try:
        yield
    except YolometerError:
        raise
    except Exception as error:  # noqa: BLE001  # the one place where foreign errors are translated: all of them
        raise translate(error, store, secrets, during) from None


def translate(error: Exception, store: str, secrets: Sequence[str] = (), during: Doing = "query") -> YolometerError:
    """Return our error for a foreign one: one sentence that says what to do, without secrets."""
    said = str(error)
    opening = during == "open"
    code = _code(error, said)
    system = error.errno if isinstance(error, OSError) else None
    if code in _FULL or system in (errno.ENOSPC, errno.EDQUOT) or _FULL_WORDS.search(said):
        return StoreUnavailable(f"The disk of the store {store} is full; free some space, nothing is lost meanwhile.")
    if code in _LOCKED or _LOCK_WORDS.search(said):
        return Locked(f"The store {store} is open in another process; stop that one, or use another store.")
    if opening and _OTHER_PATH_WORDS.search(said):
        return BadUsage(f"This process has another chDB store open, so {store} cannot be opened; close the other one first.")
    if code in _NO_LOGIN or _LOGIN_WORDS.search(said):
        return StoreUnavailable(f"The store {store} refuses this user and password; correct them in the store URL.")
    if code in _NO_GRANT:
        return StoreUnavailable(f"The user of the store {store} lacks a grant; give it the one: {_detail(said, secrets)}.")
    if code in _READ_ONLY:
        return StoreUnavailable(f"The store {store} can only be read at the moment; use a user or a server that may write.")
    if system in (errno.EACCES, errno.EPERM, errno.EROFS) or _PERMISSION_WORDS.search(said):
        return StoreUnavailable(f"The folder of the store {store} may not be written by this user; give it the permission.")
    if code in _NOT_MIGRATED:
        return BadStore(f"The store {store} has no such table; run `yolometer sql migrate`. ({_detail(said, secrets)})")
    if code in _NOT_OURS:
        return BadStore(f"The store {store} has other columns than this version needs; run `yolometer sql migrate`. "
                        f"({_detail(said, secrets)})")  # fmt: skip
    if code in _BAD_ROW and during == "write":
        return BadInput(f"The store {store} cannot hold one of the rows: {_detail(said, secrets)}.")
    if code in _BAD_PARAMETER and during == "query":
        return BadUsage(f"A value of the statement does not fit its type or place: {_detail(said, secrets)}.")
    if code in _DAMAGED:
        return BadStore(f"The data of the store {store} is damaged; restore it from a copy or give an empty folder. "
                        f"({_detail(said, secrets)})")  # fmt: skip
    if code in _BUSY:
        return StoreUnavailable(f"The store {store} is too busy at the moment; try again later. ({_detail(said, secrets)})")
    if code is None and not opening and isinstance(error, (ValueError, TypeError, KeyError)):
        return BadUsage(f"The statement cannot be sent to the store {store}: {_detail(said, secrets)}.")
    if code is None:
        return StoreUnavailable(f"The store {store} does not answer; check that it runs and can be reached. "
                                f"({_detail(said, secrets)})")  # fmt: skip
    if opening:
        return BadStore(f"The store {store} cannot be opened; its data is damaged or not of this version. "
                        f"({_detail(said, secrets)})")  # fmt: skip
    return BadStore(f"The store {store} refuses the statement: {_detail(said, secrets)}.")


def _code(error: Exception, said: str) -> int | None:
    """The ClickHouse error code, from the error or its text; None when no server gave one."""
    code = getattr(error, "code", None)
    if isinstance(code, int) and code:
        return code
    match = _CODE.search(said)
    return int(match[1]) if match else None


def _detail(said: str, secrets: Sequence[str]) -> str:
    """The first line of a foreign message, short, without stack traces, versions, URLs and secrets."""
    if reason := _REASON.search(said):
        return reason[0]
    line = said.split("Stack trace", maxsplit=1)[0].strip().splitlines()[0].strip() if said.strip() else "no reason given"
    line = re.sub(r"^.*?DB::Exception: ", "", line)
    line = re.split(r"\s*\(?(?:version \d|for url|url:)", line, maxsplit=1)[0]
    for secret in filter(None, secrets):
        line = line.replace(secret, "***")
    line = line.strip(" .,:\n")
    return line if len(line) <= _DETAIL_CHARACTERS else line[: _DETAIL_CHARACTERS - 1] + "…"
