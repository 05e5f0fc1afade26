"""ClickHouse on a server, over HTTP: `clickhouse://user:password@host:8123/database`, `?secure=true` for TLS."""

from __future__ import annotations

import logging
import re
from urllib.parse import unquote

from yolometer_core.errors import BadUsage
from yolometer_sinks.stores._base import DATABASE, Scheme, Store, address

USAGE = "clickhouse://user:password@host:8123/database"
OPTIONS = ("secure", "connect_timeout_s", "timeout_s")
CONNECT_TIMEOUT_S = 10
TIMEOUT_S = 300


def open_clickhouse(url: str) -> Store:
    """Open a store on a ClickHouse server. The database need not exist yet: `migrate` makes it.

    Raises BadUsage for a URL that cannot be meant, StoreUnavailable when the server is away or refuses the user.
    """
    where = address(url, OPTIONS, USAGE)
    parts, options = where.parts, where.options
    database = unquote(parts.path.strip("/")) or DATABASE
    if not parts.hostname:
        raise BadUsage(f"The store URL names no host; write it as {USAGE}.")
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", database):
        raise BadUsage("The database of the store URL must be letters, digits and underscores; correct it.")
    if options.get("secure", "false") not in ("true", "false"):
        raise BadUsage("The option secure of the store URL must be true or false; correct it.")
    try:
        connect_timeout = int(options.get("connect_timeout_s", CONNECT_TIMEOUT_S))
        timeout = int(options.get("timeout_s", TIMEOUT_S))
    except ValueError:
        raise BadUsage("The timeouts of the store URL must be whole seconds; correct them.") from None
    secure = options.get("secure") == "true"
    port = parts.port or (8443 if secure else 8123)
    user, password = unquote(parts.username or "default"), unquote(parts.password or "")
    name = f"clickhouse://{user}@{parts.hostname}:{port}/{database}"
    try:
        from clickhouse_connect.driver import create_client

        from yolometer_sinks.stores._client import ClientStore
        from yolometer_sinks.stores._errors import foreign
    except ImportError:
        raise BadUsage("The ClickHouse client is not installed; install yolometer[sink].") from None
    # Its errors come back as exceptions and are told once, by us; its own log would add tracebacks.
    logging.getLogger("clickhouse_connect").setLevel(logging.CRITICAL)
    with foreign(name, (password,), during="open"):
        client = create_client(
            host=parts.hostname,
            port=port,
            username=user,
            password=password,
            secure=secure,
            interface="https" if secure else "http",
            connect_timeout=connect_timeout,
            send_receive_timeout=timeout,
            autogenerate_session_id=False,
            tz_mode="aware",
            client_name="yolometer",
        )
    return ClientStore(client, name, database, secrets=(password,))


SCHEME = Scheme(USAGE, open_clickhouse)
