"""The HTTP server of a service: /metrics for Prometheus and /healthz for a supervisor, on loopback, and nothing else."""

from __future__ import annotations

import contextlib
import ipaddress
import json
import logging
import socket
import sys
import threading
from collections import OrderedDict
from http.server import BaseHTTPRequestHandler
from socketserver import TCPServer, ThreadingMixIn
from types import TracebackType
from typing import TYPE_CHECKING, Any

from yolometer_core.errors import BadConfig

if TYPE_CHECKING:
    from yolometer_core.service.health import Health
    from yolometer_core.service.metrics import Metrics

SLOW_S = 5.0
MOST_CLIENTS = 16


class Endpoint:
    """A running server, or none (`address` is None). Close it, or use it as a context: its port is free at once."""

    def __init__(self, server: _Server | None) -> None:
        self._server = server
        self.address: tuple[str, int] | None = None
        if server is not None:
            self.address = (str(server.server_address[0]), int(server.server_address[1]))
            # It wakes for a client or for close(), never to look.
            self._thread = threading.Thread(target=server.serve_forever, args=(3600.0,), name="endpoint", daemon=True)
            self._thread.start()

    @property
    def url(self) -> str | None:
        if self.address is None:
            return None
        host, port = self.address
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    def close(self) -> None:
        if self._server is None:
            return
        server, self._server = self._server, None
        server.wake()
        server.shutdown()
        server.server_close()
        self._thread.join()

    def __enter__(self) -> Endpoint:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def serve(
    metrics: Metrics, health: Health, host: str = "127.0.0.1", port: int | None = 0, *, slow_s: float = SLOW_S
) -> Endpoint:
    """Serve /metrics and /healthz. Port 0 is any free one, None is off.

    /healthz is 200, and 503 when the service is stuck. On loopback a request for another host is refused, so that a page
    in a browser cannot read it by a name of its own. A host that is not loopback serves whoever reaches it: configuration
    has to name it. BadConfig when the host is none of this machine or the port is in use. A client that says nothing for
    `slow_s` is let go.
    """
    if port is None:
        return Endpoint(None)
    if not host:
        raise BadConfig("The host of the metrics is empty, which would mean all addresses; write 127.0.0.1, or 0.0.0.0 for all.")
    if not 0 <= port <= 65535:  # the resolver would take it modulo 65536
        raise BadConfig(f"The port of the metrics is {port}; choose one from 1 to 65535, or 0 for any free one.")
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        return Endpoint(_Server(family, (str(address[0]), int(address[1])), metrics, health, slow_s))
    except (OSError, UnicodeError) as error:
        why = getattr(error, "strerror", None) or error
        raise BadConfig(f"The metrics cannot be served on {host} port {port} ({why}); choose another or none.") from None


class _Server(ThreadingMixIn, TCPServer):
    """One thread a client; when too many are there, the oldest one is let go."""

    daemon_threads = True
    block_on_close = False
    allow_reuse_address = True
    request_queue_size = 64

    def __init__(self, family: int, address: tuple[str, int], metrics: Metrics, health: Health, slow_s: float) -> None:
        self.address_family = family
        self.metrics, self.health, self.slow_s = metrics, health, slow_s
        self.guarded = ipaddress.ip_address(address[0].partition("%")[0]).is_loopback
        self._clients: OrderedDict[Any, None] = OrderedDict()
        self._clients_lock = threading.Lock()
        super().__init__(address, _Answer)

    def wake(self) -> None:
        """Let serve_forever() look up: its socket becomes readable."""
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._clients_lock:
            self._clients[request] = None
            oldest = next(iter(self._clients)) if len(self._clients) > MOST_CLIENTS else None
            if oldest is not None:
                del self._clients[oldest]
                _hang_up(oldest)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self._clients_lock:
            self._clients.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), OSError):  # a client that went away is no error
            logging.getLogger("yolometer.endpoint").error("A request for metrics failed", exc_info=True)


class _Answer(BaseHTTPRequestHandler):
    """GET /metrics and GET /healthz; the rest is refused in one sentence."""

    server: _Server

    def setup(self) -> None:
        super().setup()
        self.connection.settimeout(self.server.slow_s)

    def do_GET(self) -> None:
        if self.server.guarded and not all(map(_is_loopback, self.headers.get_all("Host", []))):
            self._say(403, "Ask for it by 127.0.0.1 or localhost.\n")
            return
        path = self.path.partition("?")[0]
        if path == "/metrics":
            body, content_type = self.server.metrics.rendered(self.headers.get("Accept", ""))
            self._send(200, body, content_type)
        elif path == "/healthz":
            told = self.server.health.told()
            self._send(503 if told["status"] == "stuck" else 200, json.dumps(told).encode() + b"\n", "application/json")
        else:
            self._say(404, "There is /metrics and /healthz.\n")

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """What the standard library would answer as a page of HTML with the request in it."""
        self.close_connection = True
        self._say(405 if code == 501 else code, "Only GET /metrics and GET /healthz.\n")

    def _say(self, code: int, text: str) -> None:
        self._send(code, text.encode(), "text/plain; charset=utf-8")

    def _send(self, code: int, body: bytes, content_type: str) -> None:
        if self.request_version == "HTTP/0.9":
            self.request_version = "HTTP/1.0"  # always with headers: also a request that is none is answered in full
        self.send_response(code)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("X-Content-Type-Options", "nosniff")
        self.end_headers()
        self.wfile.write(body)

    def version_string(self) -> str:
        return "yolometer"

    def log_message(self, format: str, *args: Any) -> None:
        """A request is no event."""


def _is_loopback(host: str) -> bool:
    """Whether a Host header names this machine by loopback."""
    name = host.strip().lower()
    name = name[1:].partition("]")[0] if name.startswith("[") else name.partition(":")[0]
    if name == "localhost":
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def _hang_up(client: Any) -> None:
    with contextlib.suppress(OSError):
        client.shutdown(socket.SHUT_RDWR)


__all__ = ["Endpoint", "serve"]
