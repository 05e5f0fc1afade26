"""Page: the runs of this box in a browser, on loopback only, read-only. `/` for people, `/runs.json` for machines, `/healthz`."""

from __future__ import annotations

import html
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any

from yolometer import show
from yolometer.up import Beat
from yolometer_core.errors import BadUsage

HOST = "127.0.0.1"
_HEAD = """<!doctype html><html lang="en"><meta charset="utf-8"><meta http-equiv="refresh" content="2"><title>yolometer</title>
<style>body{font:15px system-ui,sans-serif;margin:2rem;color:#1b1f24;background:#fff}table{border-collapse:collapse;width:100%}
th,td{padding:.45rem .7rem;border-bottom:1px solid #d8dee4;text-align:right;white-space:nowrap}th:first-child,td:first-child,
th:nth-child(2),td:nth-child(2),th:nth-child(3),td:nth-child(3){text-align:left}th{color:#57606a;font-weight:600}
@media(prefers-color-scheme:dark){body{background:#0d1117;color:#e6edf3}th,td{border-color:#30363d}th{color:#8b949e}}</style>"""
_COLUMNS = ("run", "model", "status", "epochs", "MTok", "wasted MTok", "training time", "MTok/s", "k s/MTok", "best mAP50-95",
            "cost")  # fmt: skip


class Page:
    """Serves the last beat. Port 0 serves nothing."""

    def __init__(self, port: int) -> None:
        self.url: str | None = None
        self._port = port
        self._server: ThreadingHTTPServer | None = None
        self._rows: list[dict[str, Any]] = []

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
            threading.Thread(target=self._server.serve_forever, name="page", daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._server:
            self._server.shutdown()
            self._server.server_close()

    def show(self, seen: Beat) -> None:
        """Take the newest runs."""
        self._rows = [{name: getattr(run, name) for name in show.RUN_FIELDS} for run in list(seen.runs.values())]

    def _answer(self, request: BaseHTTPRequestHandler) -> None:
        path = request.path.partition("?")[0]
        kinds = {
            "/": ("text/html; charset=utf-8", self._html),
            "/runs.json": ("application/json", self._json),
            "/healthz": ("text/plain", lambda: "ok\n"),
        }
        kind, make = kinds.get(path, ("text/plain", lambda: "not here\n"))
        body = make().encode()
        request.send_response(200 if path in kinds else 404)
        request.send_header("Content-Type", kind)
        request.send_header("Content-Length", str(len(body)))
        request.send_header("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'")
        request.end_headers()
        request.wfile.write(body)

    def _json(self) -> str:
        return show.document({"runs": self._rows})

    def _html(self) -> str:
        head = "".join(f"<th>{name}</th>" for name in _COLUMNS)
        rows = "".join("<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in _cells(row)) + "</tr>" for row in self._rows)
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
