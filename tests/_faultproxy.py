"""An HTTP proxy in front of a real ClickHouse server that spoils answers on purpose: refused, reset, cut, slow, late.

`faults` is what happens to the next statements that match, in order; without one a request goes through untouched.
"""

from __future__ import annotations

import contextlib
import http.client
import re
import socket
import struct
import threading
import time
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal, Self
from urllib.parse import parse_qs, urlsplit

Kind = Literal["status", "error", "reset_before", "reset_after", "cut", "slow", "late"]
HOP_BY_HOP = {"transfer-encoding", "content-length", "connection", "keep-alive", "host"}


@dataclass
class Fault:
    """What happens to statements that `match`, so many `times`.

    status        answer with the HTTP status `code`, nothing reaches the server
    error         answer as ClickHouse does with the error `code`, nothing reaches the server
    reset_before  hang up before the server has it
    reset_after   hang up after the server applied it
    cut           hang up in the middle of the answer
    slow          hand it on `seconds` late
    late          hang up after `seconds`, while the server has it and goes on
    """

    kind: Kind
    match: str = "INSERT"
    times: int = 1
    code: int = 503
    seconds: float = 0.2


class FaultProxy(ThreadingHTTPServer):
    """Listens on a free port of loopback; use it as a context."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 64

    def __init__(self, server_port: int) -> None:
        self.server_port_behind = server_port
        self.faults: list[Fault] = []
        self.done: list[Kind] = []  # what was done so far
        self._lock = threading.Lock()
        super().__init__(("127.0.0.1", 0), _Handler)
        self._thread = threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        return int(self.server_address[1])

    def fault(self, kind: Kind, **said: Any) -> Fault:
        """Add a fault and return it: set its `times` to 0 to end it."""
        added = Fault(kind, **said)
        self.faults.append(added)
        return added

    def take(self, statement: str) -> Fault | None:
        with self._lock:
            for fault in self.faults:
                if fault.times > 0 and re.search(fault.match, statement, re.IGNORECASE):
                    fault.times -= 1
                    self.done.append(fault.kind)
                    return fault
        return None

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A connection that was hung up on purpose is no error."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()
        self._thread.join()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: FaultProxy

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing."""

    def do_GET(self) -> None:
        self.do_POST()

    def do_POST(self) -> None:
        body = self._body()
        statement = parse_qs(urlsplit(self.path).query).get("query", [""])[0] + " " + body[:4096].decode("latin-1")
        fault = self.server.take(statement)
        kind = fault.kind if fault else None
        if fault and kind == "slow":
            time.sleep(fault.seconds)
        if kind == "reset_before":
            return self._hang_up()
        if fault and kind == "status":
            return self._answer(fault.code, [], b"injected\n")
        if fault and kind == "error":
            text = f"Code: {fault.code}. DB::Exception: injected. (INJECTED)".encode()
            return self._answer(500, [("X-ClickHouse-Exception-Code", str(fault.code))], text)
        if fault and kind == "late":
            threading.Thread(target=self._hand_on, args=(body,), daemon=True).start()
            time.sleep(fault.seconds)
            return self._hang_up()
        answer = self._hand_on(body)
        if answer is None or kind == "reset_after":
            return self._hang_up()
        self._answer(*answer, cut=kind == "cut")

    def _body(self) -> bytes:
        if "chunked" not in self.headers.get("Transfer-Encoding", "").lower():
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        parts = []
        while size := int(self.rfile.readline().split(b";")[0], 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        while self.rfile.readline().strip():
            pass
        return b"".join(parts)

    def _hand_on(self, body: bytes) -> tuple[int, list[tuple[str, str]], bytes] | None:
        """The server's answer; None when it is down."""
        headers = {name: value for name, value in self.headers.items() if name.lower() not in HOP_BY_HOP}
        behind = http.client.HTTPConnection("127.0.0.1", self.server.server_port_behind, timeout=60)
        try:
            behind.request(self.command, self.path, body=body, headers=headers)
            answer = behind.getresponse()
            kept = [(name, value) for name, value in answer.getheaders() if name.lower() not in HOP_BY_HOP]
            return answer.status, kept, answer.read()
        except (OSError, http.client.HTTPException):
            return None
        finally:
            behind.close()

    def _answer(self, status: int, headers: list[tuple[str, str]], data: bytes, cut: bool = False) -> None:
        self.send_response_only(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data) + cut))
        self.end_headers()
        self.wfile.write(data)
        self.wfile.flush()
        if cut:
            self._hang_up()

    def _hang_up(self) -> None:
        """A reset, as when the other side dies."""
        self.close_connection = True
        with contextlib.suppress(OSError):
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.connection.shutdown(socket.SHUT_RD)
            self.connection.close()
