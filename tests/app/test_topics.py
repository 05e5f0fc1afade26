"""`yolometer topics` against a real Kafka: what is missing is made, what is wrong is named and left alone."""

from __future__ import annotations

import json
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml
from _kafka import Broker, create_topic
from kafka import KafkaAdminClient
from kafka.admin import ConfigResource

from yolometer.cli import app, run
from yolometer_core.topics import TOPICS

PASSWORD = "s3cret/p@ss:word"
REFUSED = (
    "yolometer: Kafka does not let the user 'agent' in ({mechanism}); "
    "check kafka.sasl_mechanism, kafka.username and the password.\n"
)
NAMES = [*(one.name for one in TOPICS), "stream-state-changelog"]


class Said:
    """What a command printed, and how it ended."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err


Topics = Callable[..., Said]

@pytest.fixture
def topics(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Topics:
    """Runs `yolometer topics ...` in this process, through the entry point of the command."""

    def call(*arguments: str) -> Said:
        monkeypatch.setattr("sys.argv", ["yolometer", "topics", *arguments])
        capsys.readouterr()
        code = run(app)
        said = capsys.readouterr()
        return Said(code, said.out, said.err)

    return call


def settings(bootstrap: str, topic: str) -> tuple[int, dict[str, str]]:
    """Partitions and settings of a topic, as Kafka itself has them."""
    with KafkaAdminClient(bootstrap_servers=bootstrap) as admin:
        found = admin.describe_configs([ConfigResource("TOPIC", topic)], config_filter="all")["topic"][topic]
        parts = admin.describe_topics([topic])[0]["partitions"]
    return len(parts), {name: value["value"] for name, value in found.items()}


def test_missing_topics_are_made_and_a_second_run_changes_nothing(topics: Topics, kafka: Broker, prefix: str) -> None:
    at = ["--bootstrap", kafka.bootstrap, "--prefix", prefix, "--partitions", "2"]
    assert all(not one["exists"] for one in json.loads(topics("show", *at, "--json").out)["topics"])
    first = topics("ensure", *at, "--json")
    assert (first.code, first.err) == (0, "")
    assert json.loads(first.out) == {"created": [prefix + name for name in NAMES], "topics": len(NAMES), "wrong": []}
    for name, policy, kept in (("fact", "delete", 7), ("dead", "delete", 30), ("price", "compact", None)):
        partitions, there = settings(kafka.bootstrap, prefix + name)
        assert (partitions, there["cleanup.policy"], there["max.message.bytes"]) == (2, policy, "1048576")
        assert kept is None or int(there["retention.ms"]) == kept * 24 * 3600 * 1000
    assert settings(kafka.bootstrap, f"{prefix}stream-state-changelog")[1]["cleanup.policy"] == "compact"
    second = topics("ensure", *at)
    assert (second.code, second.err) == (0, "")
    assert second.out == f"Nothing to create: all {len(NAMES)} topics are there.\n"
    shown = topics("show", *at)
    assert shown.code == 0 and shown.err == "" and shown.out.count(" right") == len(NAMES)


WRONG = {
    "cleanup.policy": ("compact", "delete"),
    "retention.ms": ("1000", "604800000"),
    "max.message.bytes": ("2097152", "1048576"),
    "min.insync.replicas": ("2", "1"),
}


@pytest.mark.parametrize("setting", WRONG)
def test_a_wrong_setting_is_named_and_not_changed(topics: Topics, kafka: Broker, prefix: str, setting: str) -> None:
    found, wanted = WRONG[setting]
    right = {"message_timestamp_type": "LogAppendTime", "retention_ms": "604800000", "max_message_bytes": "1048576"}
    create_topic(kafka.bootstrap, f"{prefix}fact", 2, **{**right, setting.replace(".", "_"): found})
    at = ["--bootstrap", kafka.bootstrap, "--prefix", prefix, "--partitions", "2"]
    said = topics("ensure", *at, "--json")
    assert said.code == 1
    (wrong,) = json.loads(said.out)["wrong"]
    assert (wrong["topic"], wrong["setting"], wrong["is"], wrong["should_be"]) == (f"{prefix}fact", setting, found, wanted)
    assert wrong["command"].endswith(f"--entity-name {prefix}fact --add-config {setting}={wanted}")
    assert kafka.bootstrap in wrong["command"]
    again = topics("ensure", *at)
    assert again.code == 1
    assert again.err == (
        f"yolometer: {prefix}fact: {setting} is {found} and should be {wanted}; to mend it: {wrong['command']}\n"
    )
    assert settings(kafka.bootstrap, f"{prefix}fact")[1][setting] == found


def test_wrong_numbers_of_partitions_and_copies_are_named_and_not_changed(topics: Topics, kafka: Broker, prefix: str) -> None:
    at = ["--bootstrap", kafka.bootstrap, "--prefix", prefix]
    create_topic(kafka.bootstrap, f"{prefix}fact", 1)
    create_topic(kafka.bootstrap, f"{prefix}gpu", 5)
    said = topics("ensure", *at, "--partitions", "2", "--json")
    wrong = {one["topic"]: one for one in json.loads(said.out)["wrong"] if one["setting"] == "partitions"}
    assert said.code == 1
    few, many = wrong[f"{prefix}fact"], wrong[f"{prefix}gpu"]
    assert (few["is"], few["should_be"], many["is"], many["should_be"]) == ("1", "2", "5", "2")
    assert few["command"].endswith(f"--alter --topic {prefix}fact --partitions 2")
    assert "--delete" in many["command"]
    more = json.loads(topics("show", *at, "--partitions", "2", "--replication", "2", "--json").out)["topics"]
    copies = [one for topic in more for one in topic["wrong"] if one["setting"] == "replication"]
    assert len(copies) == len(NAMES) and {(one["is"], one["should_be"]) for one in copies} == {("1", "2")}
    assert copies[0]["command"] == "start more brokers: there are 1"
    assert settings(kafka.bootstrap, f"{prefix}fact")[0] == 1
    assert settings(kafka.bootstrap, f"{prefix}gpu")[0] == 5


def test_what_kafka_refuses_to_create_is_said(topics: Topics, kafka: Broker, prefix: str) -> None:
    said = topics("ensure", "--bootstrap", kafka.bootstrap, "--prefix", prefix, "--replication", "3")
    assert said.code == 1
    assert said.err.startswith(f"yolometer: Kafka refuses to create {prefix}fact (") and said.err.count("\n") == 1


def test_options_that_cannot_be_meant(topics: Topics, tmp_path: Path) -> None:
    assert topics("show", "--bootstrap", "nowhere").code == 2
    assert "host:port" in topics("show", "--bootstrap", "nowhere").err
    assert topics("show", "--prefix", "a b").code == 2
    file = tmp_path / "topics.yaml"
    file.write_text("replication: 3\nmin_insync: 2\n")
    said = topics("show", "--config", str(file), "--replication", "1")
    assert (said.code, said.err) == (2, "yolometer: --replication must be at least min_insync, which is 2.\n")


def test_a_broker_that_hangs_is_said_in_time(topics: Topics, kafka: Broker) -> None:
    kafka.pause()
    try:
        began = time.monotonic()
        said = topics("ensure", "--bootstrap", kafka.bootstrap)
        assert time.monotonic() - began < 15
    finally:
        kafka.resume()
    assert (said.code, said.err.count("\n")) == (1, 1) and "does not answer" in said.err


def test_a_broker_that_is_away_is_said_at_once(topics: Topics) -> None:
    with socket.socket() as nobody:  # bound, so that nobody else gets the port; not listening, so that it is refused
        nobody.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{nobody.getsockname()[1]}"
        began = time.monotonic()
        said = topics("ensure", "--bootstrap", address)
        assert time.monotonic() - began < 5
    away = f"Kafka does not answer ({address}: connection refused); start it, or correct kafka.bootstrap_servers."
    assert (said.code, said.out, said.err) == (1, "", f"yolometer: {away}\n")


@pytest.fixture(scope="module")
def secure() -> Iterator[Broker]:
    """A broker with TLS and a password."""
    with Broker(user="agent", password=PASSWORD) as started:
        yield started


@pytest.fixture
def secure_file(secure: Broker, tmp_path: Path) -> Path:
    """The settings for it, all of them right."""
    (tmp_path / "password").write_text(PASSWORD + "\n")
    return _written(tmp_path / "topics.yaml", secure, ca_file=str(secure.ca_file))


def _written(path: Path, broker: Broker, **more: str) -> Path:
    kafka = {"bootstrap_servers": [broker.sasl_bootstrap], "tls": True, "sasl_mechanism": "SCRAM-SHA-512", "username": "agent",
             "password_file": str(path.parent / "password"), **more}  # fmt: skip
    path.write_text(yaml.safe_dump({"kafka": kafka}))
    return path


def test_tls_and_a_password(topics: Topics, secure_file: Path) -> None:
    said = topics("ensure", "--config", str(secure_file))
    assert (said.code, said.err) == (0, "") and "yolometer.fact" in said.out
    mend = json.loads(topics("show", "--config", str(secure_file), "--partitions", "9", "--json").out)["topics"][0]["wrong"][0]
    assert "--command-config client.properties" in mend["command"] and PASSWORD not in mend["command"]


def test_a_wrong_password(topics: Topics, secure_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("YOLOMETER_KAFKA__PASSWORD", "an0ther")
    began = time.monotonic()
    said = topics("ensure", "--config", str(secure_file))
    assert time.monotonic() - began < 15
    assert (said.code, said.out, said.err) == (1, "", REFUSED.format(mechanism="SCRAM-SHA-512"))


def test_a_mechanism_that_the_broker_does_not_offer(topics: Topics, secure_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("YOLOMETER_KAFKA__SASL_MECHANISM", "SCRAM-SHA-256")
    began = time.monotonic()
    said = topics("show", "--config", str(secure_file))
    assert time.monotonic() - began < 15
    assert (said.code, said.out, said.err) == (1, "", REFUSED.format(mechanism="SCRAM-SHA-256"))


def test_a_certificate_that_is_not_trusted(topics: Topics, secure: Broker, secure_file: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.crt"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
                    "-subj", "/CN=other", "-keyout", str(tmp_path / "other.key"), "-out", str(other)],
                   check=True, capture_output=True)  # fmt: skip
    said = topics("show", "--config", str(_written(secure_file, secure, ca_file=str(other))))
    assert said.code == 1 and "is not trusted" in said.err and said.err.count("\n") == 1
    said = topics("show", "--config", str(_written(secure_file, secure, ca_file=str(tmp_path / "none.crt"))))
    assert said.code == 2 and f"{tmp_path / 'none.crt'} cannot be read" in said.err


def test_tls_at_a_listener_without_it(topics: Topics, secure: Broker, secure_file: Path) -> None:
    said = topics("show", "--config", str(secure_file), "--bootstrap", secure.bootstrap)
    assert said.code == 1 and "does not speak TLS" in said.err
