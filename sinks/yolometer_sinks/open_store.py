"""Opens a store by its URL: the scheme names the file in `stores/` that knows how."""

from __future__ import annotations

import difflib
import re

from yolometer_core.errors import BadUsage
from yolometer_core.parts import discover
from yolometer_sinks import stores
from yolometer_sinks.stores._base import Scheme, Store


def schemes() -> dict[str, Scheme]:
    """Return the known stores by URL scheme."""
    return discover(stores, "SCHEME", Scheme)


def open_store(url: str) -> Store:
    """Open the store of a URL such as `chdb:///var/lib/yolometer` or `clickhouse://user:password@host:8123/database`.

    The caller closes it. Raises BadUsage for an unknown scheme or a URL that cannot be meant, StoreUnavailable when
    the store is away, locked or refuses the user, BadStore when it is damaged or not a store. No message and no
    `repr` shows the password.
    """
    known = schemes()
    scheme, colon, _ = url.partition("://")
    if not colon or not re.fullmatch(r"[a-z][a-z0-9+.-]{0,19}", scheme):
        raise BadUsage(f"A store URL starts with its scheme; write {_usages(known)}.")
    if scheme not in known:
        near = difflib.get_close_matches(scheme, known, n=1)
        hint = f"did you mean {near[0]}://? Write" if near else "write"
        raise BadUsage(f"There is no store of the scheme {scheme}://; {hint} {_usages(known)}.")
    return known[scheme].open(url)


def _usages(known: dict[str, Scheme]) -> str:
    return ", or ".join(scheme.usage for scheme in known.values())
