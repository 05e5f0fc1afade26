"""The URL of a store in a configuration: its password comes from a file, is hidden from logs and never shown."""

from __future__ import annotations

import contextlib
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit, urlunsplit

from yolometer_core.errors import BadConfig
from yolometer_core.service.hiding import hide


def complete(url: str, password_file: Path | None) -> str:
    """The URL with the password of the file, if there is one. BadConfig when the file cannot be read or is empty."""
    if password_file:
        url = _with_password(url, password_file)
    with contextlib.suppress(ValueError):  # opening it says what is wrong
        hide(unquote(urlsplit(url).password or ""))
    return url


def without_password(url: str) -> str:
    """The URL as it may be shown."""
    before, at, after = url.rpartition("@")
    scheme, slashes, user = before.partition("://")
    return f"{scheme}{slashes}{user.partition(':')[0]}{at}{after}" if at else url


def _with_password(url: str, path: Path) -> str:
    try:
        password = path.read_text(encoding="utf-8").rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "it is no text in UTF-8"
        raise BadConfig(f"store_password_file: {path} cannot be read ({why}); name another file.") from None
    if not password:
        raise BadConfig(f"store_password_file: {path} is empty; write the password into it.")
    parts = urlsplit(url)
    _, _, host = parts.netloc.rpartition("@")
    user = quote(parts.username or "default", safe="%")
    return urlunsplit(parts._replace(netloc=f"{user}:{quote(password, safe='')}@{host}"))
