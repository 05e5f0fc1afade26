"""Page: the runs of this box in a browser, on loopback only, read-only.

`/` for people, `/runs.json` and `/roi/NAME.json?parameter=value` for machines (an embedded store can be asked by the
process alone that has it open), `/healthz` for supervisors.
"""

from __future__ import annotations

import html
import json
import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any
from urllib.error import HTTPError
from urllib.parse import parse_qsl, quote, urlencode
from urllib.request import urlopen

from yolometer import show
from yolometer.up import Beat, folder_of_store
from yolometer_core.errors import BadUsage, YolometerError
from yolometer_core.events import Run
from yolometer_sinks.stores._base import Store, Table
from yolometer_sql.catalog import find

HOST = "127.0.0.1"
SIGN = "page.url"
ANSWER_S = 30.0
_HEAD = """<!doctype html><html lang="en"><meta charset="utf-8"><meta http-equiv="refresh" content="2"><title>yolometer</title>
<style>body{font:15px system-ui,sans-serif;margin:2rem;color:#1b1f24;background:#fff}table{border-collapse:collapse;width:100%}
th,td{padding:.45rem .7rem;border-bottom:1px solid #d8dee4;text-align:right;white-space:nowrap}th:first-child,td:first-child,
th:nth-child(2),td:nth-child(2),th:nth-child(3),td:nth-child(3){text-align:left}th{color:#57606a;font-weight:600}
@media(prefers-color-scheme:dark){body{background:#0d1117;color:#e6edf3}th,td{border-color:#30363d}th{color:#8b949e}}</style>"""
_COLUMNS = ("run", "model", "status", "epochs", "MTok", "wasted MTok", "training time", "MTok/s", "k s/MTok", "best mAP50-95",
            "cost")  # fmt: skip


class Page:
    """Serves the last beat, and answers ROI queries from the store. Port 0 serves nothing.

    While it serves, a file in the folder of an embedded store says where, so that `yolometer roi` finds it.
    """

    def __init__(self, port: int, store: Store, store_url: str) -> None:
        self._store = store
        folder = folder_of_store(store_url)
        self._sign = folder / "yolometer" / SIGN if folder else None
        self.url: str | None = None
        self._port = port
        self._server: ThreadingHTTPServer | None = None
        self._rows: list[tuple[Run, dict[str, Any]]] = []

    def __enter__(self) -> Page:
        if self._port:
            page = self

            class Handler(BaseHTTPRequestHandler):
                def do_GET(self) -> None:
                    page._answer(self)

                def log_message(self, *parts: Any) -> None:
                    """Say nothing: requests are no news."""

            try:
                self._server = ThreadingHTTPServer((HOST, self._port), Handler)
            except OSError as error:
                why = f"Port {self._port} cannot be used ({error.strerror})"
                raise BadUsage(f"{why}; choose another one with --port, or --port 0 for no page.") from error
            self._server.daemon_threads = True
            self.url = f"http://{HOST}:{self._port}/"
            if self._sign:
                self._sign.parent.mkdir(parents=True, exist_ok=True)
                self._sign.write_text(self.url)
            threading.Thread(target=self._server.serve_forever, name="page", daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._server:
            if self._sign:
                self._sign.unlink(missing_ok=True)
            self._server.shutdown()
            self._server.server_close()

    def show(self, seen: Beat) -> None:
        """Take the newest runs."""
        self._rows = [(run, show.moving(run)) for run in list(seen.runs.values())]

    def _answer(self, request: BaseHTTPRequestHandler) -> None:
        # another site that a browser shows must not read this one: only requests that name loopback are answered
        host = (request.headers.get("Host") or "").rpartition(":")[0]
        path, _, asked = request.path.partition("?")
        if host not in (HOST, "localhost"):
            _send(request, 403, "text/plain", "This page is for this machine alone.\n")
        elif path == "/":
            _send(request, 200, "text/html; charset=utf-8", self._html())
        elif path == "/runs.json":
            _send(request, 200, "application/json", self._json())
        elif path == "/healthz":
            _send(request, 200, "text/plain", "ok\n")
        elif path.startswith("/roi/") and path.endswith(".json"):
            self._roi(request, path.removeprefix("/roi/").removesuffix(".json"), dict(parse_qsl(asked)))
        else:
            _send(request, 404, "text/plain", "not here\n")

    def _roi(self, request: BaseHTTPRequestHandler, name: str, params: dict[str, str]) -> None:
        try:
            text, bound = find(name).bind(params)
            table = self._store.query(text, bound)
        except BadUsage as error:
            _send(request, 400, "text/plain", f"{error}\n")
        except YolometerError as error:
            _send(request, 503, "text/plain", f"{error}\n")
        else:
            rows = [list(row) for row in table.rows]
            _send(request, 200, "application/json", show.document({"query": name, "columns": table.columns, "rows": rows}))

    def _json(self) -> str:
        return show.document({"runs": [row | {"status": run.status} for run, row in self._rows]})

    def _html(self) -> str:
        head = "".join(f"<th>{name}</th>" for name in _COLUMNS)
        rows = "".join(f"<tr>{''.join(f'<td>{html.escape(cell)}</td>' for cell in _cells(row))}</tr>" for _, row in self._rows)
        none = "<p>No training has been seen yet. Start one, or watch another folder with <code>--watch</code>.</p>"
        empty = "" if rows else none
        return f"{_HEAD}<h1>Trainings on this box</h1><table><tr>{head}</tr>{rows}</table>{empty}</html>"


def _cells(row: dict[str, Any]) -> list[str]:
    return [
        str(row["run_id"]),
        f"{show.short(row['model'])} {show.short(row['imgsz'])}px b{show.short(row['batch'])}",
        show.short(row["status"]),
        f"{show.short(row['epochs_done'])}/{show.short(row['epochs_planned'])}",
        show.short(row["tokens_mtok"], 5),
        show.short(row["wasted_mtok"]),
        show.hours(row["train_seconds"]),
        show.short(row["rate_mtok_s"]),
        show.short(row["k_s_per_mtok"]),
        show.short(row["best_map50_95"]),
        show.money(row["cost"], row["currency"]),
    ]


def _send(request: BaseHTTPRequestHandler, status: int, kind: str, text: str) -> None:
    body = text.encode()
    request.send_response(status)
    request.send_header("Content-Type", kind)
    request.send_header("Content-Length", str(len(body)))
    request.send_header("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'")
    request.send_header("X-Content-Type-Options", "nosniff")
    request.end_headers()
    request.wfile.write(body)


def ask(store_url: str, name: str, params: Mapping[str, str]) -> Table | None:
    """Let the `up` that has an embedded store open answer a query; None when none says that it is there.

    BadUsage when it finds the question wrong.
    """
    folder = folder_of_store(store_url)
    if folder is None:
        return None
    try:
        url = (folder / "yolometer" / SIGN).read_text().strip()
        if not url.startswith(f"http://{HOST}:"):
            return None
        with urlopen(f"{url}roi/{quote(name, safe='')}.json?{urlencode(params)}", timeout=ANSWER_S) as answer:  # noqa: S310 - loopback
            found = json.load(answer)
    except HTTPError as error:
        if error.code == 400:
            raise BadUsage(error.read().decode().strip()) from None
        return None
    except (OSError, ValueError):
        return None
    return Table(tuple(found["columns"]), [tuple(row) for row in found["rows"]])
