"""All three services through TLS and each way to log in; what they log in with is in none of their logs."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from _fleet import Fleet

USER, PASSWORD = "agent", "s3cret-of-kafka"  # of a broker that lives as long as the test
CAPTURED = Path(__file__).parents[1] / "cases" / "replay"
TOKEN = """
import base64, json, time
def part(said): return base64.urlsafe_b64encode(json.dumps(said).encode()).decode().rstrip("=")
now = int(time.time())
print(part({"alg": "none"}) + "." + part({"sub": "agent", "iat": now, "exp": now + 600, "jti": "s3cret-of-kafka"}) + ".")
"""
pytestmark = pytest.mark.timeout(200)


def test_each_way_to_log_in_brings_the_rows(tmp_path: Path) -> None:
    with Fleet(tmp_path, login=(USER, PASSWORD)) as fleet:
        password_file, token_file = tmp_path / "kafka-password", tmp_path / "token.py"
        password_file.write_text(PASSWORD)
        token_file.write_text(TOKEN)
        by_password: dict[str, object] = {"username": USER, "password_file": str(password_file)}
        by_token: dict[str, object] = {"token_command": [sys.executable, "-S", str(token_file)]}
        ways = {"PLAIN": by_password, "SCRAM-SHA-512": by_password, "OAUTHBEARER": by_token}
        for at, (mechanism, login) in enumerate(ways.items()):
            fleet.prefix = f"{at}."
            fleet.ensure_topics()
            kafka = {"bootstrap_servers": str(fleet.broker.sasl_bootstrap), "tls": True, "ca_file": str(fleet.broker.ca_file),
                     "sasl_mechanism": mechanism, **login}  # fmt: skip
            node = f"node{at}"
            folder = sorted(path for path in CAPTURED.iterdir() if path.is_dir())[at]
            sink, stream = fleet.start_sink(f"sink{at}", kafka=kafka), fleet.start_stream(f"stream{at}", kafka=kafka)
            agent = fleet.start_agent(node, [folder], once=True, kafka=kafka)
            assert fleet.ended(agent) == 0, fleet.said(agent)
            store = fleet.store()
            rows = "SELECT count() FROM runs WHERE node = {node:String}"
            fleet.wait_until(lambda: store.query(rows, {"node": node}).rows[0][0], what=f"A run by {mechanism}")  # noqa: B023
            assert (fleet.term(stream), fleet.term(sink)) == (0, 0)
        said = fleet.logs()
        assert PASSWORD not in said and "eyJ" not in said
        assert "Traceback" not in said and "sensor" not in said


def test_a_wrong_password_is_one_sentence_and_the_rest_waits(tmp_path: Path) -> None:
    with Fleet(tmp_path, login=(USER, PASSWORD)) as fleet:
        wrong = tmp_path / "wrong"
        wrong.write_text("not the password")
        kafka = {"bootstrap_servers": str(fleet.broker.sasl_bootstrap), "tls": True, "ca_file": str(fleet.broker.ca_file),
                 "sasl_mechanism": "SCRAM-SHA-512", "username": USER, "password_file": str(wrong)}  # fmt: skip
        folder = next(path for path in sorted(CAPTURED.iterdir()) if path.is_dir())
        agent = fleet.start_agent("node", [folder], kafka=kafka)
        services = [agent, fleet.start_stream(kafka=kafka), fleet.start_sink(kafka=kafka)]
        sentences = "the login is refused", "does not let the user 'agent' in", "and the password are right"
        for service, sentence in zip(services, sentences, strict=True):
            fleet.wait_until(lambda: sentence in fleet.said(service), 30, sentence)  # noqa: B023
            assert "Traceback" not in fleet.said(service), fleet.said(service)
        assert all(service.poll() in (None, 1) for service in services)
        for service in services:
            if service.poll() is None:
                fleet.term(service)
        assert "not the password" not in fleet.logs()
