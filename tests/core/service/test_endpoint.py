"""Real requests to the real server: what it answers, what it refuses, and that nobody can block it."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from http.client import HTTPConnection

import pytest

from yolometer_core.errors import BadConfig
from yolometer_core.service.endpoint import MOST_CLIENTS
from yolometer_core.service.health import Endpoint, Health, serve
from yolometer_core.service.metrics import Metrics
from yolometer_core.testing import ManualClock

CLOCK = ManualClock()


@pytest.fixture
def health() -> Health:
    return Health("sink", stuck_after_s=10, clock=CLOCK.monotonic)


@pytest.fixture
def running(health: Health) -> Iterator[Endpoint]:
    with serve(Metrics("sink"), health) as endpoint:
        yield endpoint


def ask(endpoint: Endpoint, path: str, method: str = "GET", **headers: str) -> tuple[int, str, str]:
    assert endpoint.address is not None
    connection = HTTPConnection(*endpoint.address, timeout=20)
    try:
        connection.request(method, path, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.getheader("Content-Type", ""), answer.read().decode()
    finally:
        connection.close()


def raw(endpoint: Endpoint, words: bytes) -> bytes:
    assert endpoint.address is not None
    with socket.create_connection(endpoint.address, timeout=20) as client:
        client.sendall(words)
        client.shutdown(socket.SHUT_WR)
        found = b""
        while part := client.recv(65536):
            found += part
        return found


def test_the_numbers_in_the_form_that_is_asked_for(running: Endpoint) -> None:
    status, kind, text = ask(running, "/metrics")
    assert status == 200 and kind.startswith("text/plain; version=0.0.4")
    assert 'yolometer_sink_events_total{result="ok"} 0.0' in text and "process_resident_memory_bytes" in text
    status, kind, text = ask(running, "/metrics?x=1", Accept="application/openmetrics-text; version=1.0.0")
    assert status == 200 and kind.startswith("application/openmetrics-text") and text.endswith("# EOF\n")


def test_health_has_the_code_that_a_supervisor_needs(running: Endpoint, health: Health) -> None:
    def told() -> tuple[int, str]:
        status, kind, text = ask(running, "/healthz")
        assert kind == "application/json" and json.loads(text)["service"] == "sink"
        return status, json.loads(text)["status"]

    assert told() == (200, "starting")
    health.success()
    assert told() == (200, "ok")
    health.problem("The store is away.")
    assert told() == (200, "degraded")
    with health.working():
        CLOCK.advance(11)
        assert told() == (503, "stuck")
        health.progress()
        assert told() == (200, "degraded")


@pytest.mark.parametrize("path", ["/", "/metrics/", "/metrics/..", "/../../etc/passwd", "/healthz%00", "/favicon.ico"])
def test_there_is_nothing_else(running: Endpoint, path: str) -> None:
    assert ask(running, path) == (404, "text/plain; charset=utf-8", "There is /metrics and /healthz.\n")


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "HEAD", "BREW"])
def test_only_get(running: Endpoint, method: str) -> None:
    assert ask(running, "/metrics", method)[0] == 405


@pytest.mark.parametrize(
    ("host", "code"),
    [
        ("127.0.0.1", 200),
        ("127.0.0.1:9000", 200),
        ("localhost:9000", 200),
        ("LOCALHOST", 200),
        ("[::1]:9000", 200),
        ("127.9.9.9", 200),
        ("evil.example", 403),
        ("evil.example:9000", 403),
        ("127.0.0.1.evil.example", 403),
        ("localhost.evil.example", 403),
        ("192.168.1.1", 403),
        ("0.0.0.0", 403),  # noqa: S104  # what is tested
        ("[fe80::1]", 403),
        ("", 403),
    ],
)
def test_on_loopback_only_loopback_is_asked_for(running: Endpoint, host: str, code: int) -> None:
    for path in ("/metrics", "/healthz"):
        assert ask(running, path, Host=host)[0] == code


def test_a_second_host_does_not_slip_by(running: Endpoint) -> None:
    answer = raw(running, b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n")
    assert answer.startswith(b"HTTP/1.0 403")


def test_other_names_are_served_where_configuration_named_the_address(health: Health) -> None:
    with serve(Metrics("sink"), health, host="0.0.0.0") as endpoint:  # noqa: S104  # what is tested
        assert ask(endpoint, "/healthz", Host="node-7.example")[0] == 200


@pytest.mark.parametrize("words", [b"", b"\r\n\r\n", b"\x16\x03\x01\x02", b"GET", b"GET / HTTP/9.9\r\n\r\n", b"A" * 70_000])
def test_what_is_no_request_does_no_harm(running: Endpoint, words: bytes, capfd: pytest.CaptureFixture[str]) -> None:
    try:
        answer = raw(running, words)
    except ConnectionError:
        answer = b""
    assert b"<html" not in answer.lower() and b"Traceback" not in answer
    assert ask(running, "/healthz")[0] == 200
    assert capfd.readouterr() == ("", "")


def test_slow_clients_do_not_block_it_and_the_oldest_is_let_go(running: Endpoint) -> None:
    assert running.address is not None
    before = threading.active_count()
    slow = [socket.create_connection(running.address, timeout=20) for _ in range(3 * MOST_CLIENTS)]
    try:
        for client in slow:
            client.send(b"GET /metrics HTTP/1.1\r\nHo")
        began = time.monotonic()
        assert ask(running, "/healthz")[0] == 200
        assert slow[0].recv(1000) == b""
        assert time.monotonic() - began < 4  # and not only when its own time is over
        deadline = time.monotonic() + 10
        while threading.active_count() > before + MOST_CLIENTS + 1 and time.monotonic() < deadline:
            time.sleep(0.02)
        assert threading.active_count() <= before + MOST_CLIENTS + 1
    finally:
        for client in slow:
            client.close()


def test_one_that_says_nothing_is_let_go_in_time(health: Health) -> None:
    with serve(Metrics("sink"), health, slow_s=0.2) as endpoint:
        assert endpoint.address is not None
        with socket.create_connection(endpoint.address, timeout=20) as client:
            began = time.monotonic()
            assert client.recv(1000) == b""
            assert 0.1 < time.monotonic() - began < 5


def test_a_port_in_use_and_a_host_of_others_are_said_in_one_sentence(health: Health, running: Endpoint) -> None:
    assert running.address is not None
    for host, port, why in [
        ("127.0.0.1", running.address[1], "in use"),
        ("203.0.113.1", 0, "assign"),
        ("no..host", 0, "choose another"),
        ("", 0, "empty"),
        ("127.0.0.1", 70_000, "from 1 to 65535"),
    ]:
        with pytest.raises(BadConfig, match=why) as caught:
            serve(Metrics("sink"), health, host, port)
        assert str(caught.value).count("\n") == 0


def test_closing_frees_the_port_at_once_and_off_is_off(health: Health) -> None:
    metrics = Metrics("sink")
    port = 0
    for _ in range(5):
        endpoint = serve(metrics, health, port=port)
        assert endpoint.address is not None
        port = endpoint.address[1]
        assert ask(endpoint, "/healthz")[0] == 200
        began = time.monotonic()
        endpoint.close()
        endpoint.close()
        assert time.monotonic() - began < 1
    with serve(metrics, health, port=None) as off:
        assert off.address is None and off.url is None


def test_the_other_family(health: Health) -> None:
    try:
        endpoint = serve(Metrics("sink"), health, host="::1")
    except BadConfig:
        pytest.skip("this machine has no IPv6")
    with endpoint:
        assert endpoint.url is not None and endpoint.url.startswith("http://[::1]:")
        assert ask(endpoint, "/healthz")[0] == 200
