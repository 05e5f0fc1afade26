"""How Kafka is reached: what fits together, what is refused, and secrets that stay secret."""

from __future__ import annotations

import ssl
import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import ValidationError

from yolometer_core.config import load
from yolometer_core.errors import BadConfig, Unavailable
from yolometer_core.kafka import KafkaConfig, client_settings, password, ssl_context, token, topic
from yolometer_core.kafka_reach import reach
from yolometer_core.topics import TOPICS, TopicsConfig, app_id, changelog, wanted

AWAY = "kafka-1.example.org:9092"
SCRAM = {"sasl_mechanism": "SCRAM-SHA-512", "username": "agent", "password": "s3cret"}


def test_the_defaults_are_a_broker_on_this_machine() -> None:
    config = KafkaConfig()
    assert client_settings(config) == {"bootstrap_servers": ["127.0.0.1:9092"], "security_protocol": "PLAINTEXT"}
    assert topic(config, "fact") == "yolometer.fact"
    assert ssl_context(config) is None and password(config) is None


def test_the_settings_of_kafka_python_exist() -> None:
    from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer

    given = client_settings(KafkaConfig(bootstrap_servers=[AWAY], tls=True, **SCRAM))
    assert given["security_protocol"] == "SASL_SSL" and given["sasl_plain_password"] == "s3cret"
    for kind in (KafkaAdminClient, KafkaConsumer, KafkaProducer):
        assert set(given) <= set(kind.DEFAULT_CONFIG)


def test_a_password_is_not_shown_where_settings_are_printed() -> None:
    config = KafkaConfig(**SCRAM)
    for shown in (repr(client_settings(config)), repr(config), str(config), config.model_dump_json()):
        assert "s3cret" not in shown


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"bootstrap_servers": []}, "at least 1"),
        ({"bootstrap_servers": ["kafka"]}, "host:port"),
        ({"bootstrap_servers": ["kafka:0"]}, "host:port"),
        ({"bootstrap_servers": ["kafka:70000"]}, "host:port"),
        ({"bootstrap_servers": "http://kafka:9092"}, "host:port"),
        ({"prefix": "a/b"}, "letters"),
        ({"prefix": "a" * 101}, "letters"),
        ({"ca_file": "/ca.crt"}, "tls: true"),
        ({"tls": True, "key_file": "/k"}, "cert_file"),
        ({"username": "agent"}, "add sasl_mechanism"),
        ({"sasl_mechanism": "PLAIN", "password": "x"}, "add username"),
        ({"sasl_mechanism": "PLAIN", "username": "x"}, "add password_file"),
        ({"sasl_mechanism": "PLAIN", "username": "x", "password": ""}, "add password_file"),
        ({"sasl_mechanism": "OAUTHBEARER"}, "token_command"),
        ({"sasl_mechanism": "GSSAPI"}, "SCRAM"),
        ({"bootstrap_servers": [AWAY], **SCRAM}, "without TLS"),
        ({"bootstrap_servers": ["127.0.0.1:9092", "10.0.0.1:9092"], **SCRAM}, "without TLS"),
        ({"servers": "x"}, "not permitted"),
    ],
)
def test_what_does_not_fit_is_refused(given: dict[str, object], says: str) -> None:
    with pytest.raises(ValidationError) as refused:
        KafkaConfig(**given)
    assert says in refused.value.errors(include_input=False)[0]["msg"]
    assert "s3cret" not in str(refused.value)


@pytest.mark.parametrize(
    "given",
    [
        {"bootstrap_servers": ["127.0.0.1:9092", "localhost:1", "[::1]:9092"], **SCRAM},
        {"bootstrap_servers": [AWAY], "tls": True, **SCRAM},
        {"bootstrap_servers": [AWAY], "allow_plaintext": True, **SCRAM},
        {"bootstrap_servers": [AWAY]},
        {"tls": True, "ca_file": "/not/there/yet.crt"},
    ],
)
def test_what_fits_is_taken(given: dict[str, object]) -> None:
    KafkaConfig(**given)


def test_addresses_and_a_password_from_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "topics.yaml"
    file.write_text("kafka: {tls: true, sasl_mechanism: PLAIN, username: agent}\n")
    with pytest.raises(BadConfig, match="plain needs a password"):
        load(TopicsConfig, file)
    monkeypatch.setenv("YOLOMETER_KAFKA__BOOTSTRAP_SERVERS", f"{AWAY}, kafka-2:9092")
    monkeypatch.setenv("YOLOMETER_KAFKA__PASSWORD", "1234")
    config = load(TopicsConfig, file).kafka
    assert config.bootstrap_servers == (AWAY, "kafka-2:9092") and password(config) == "1234"
    file.write_text("kafka: {password: s3cret}\n")
    with pytest.raises(BadConfig, match="secret") as refused:
        load(TopicsConfig, file)
    assert "s3cret" not in str(refused.value)


def test_a_password_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "password"
    config = KafkaConfig(sasl_mechanism="PLAIN", username="agent", password_file=file)
    with pytest.raises(BadConfig, match=f"password_file: {file} cannot be read"):
        password(config)
    file.write_text("\n")
    with pytest.raises(BadConfig, match="is empty"):
        password(config)
    file.write_text(" with space \n")
    assert password(config) == " with space "
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(BadConfig, match="UTF-8"):
        password(config)


def test_files_of_tls_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    empty = tmp_path / "empty.pem"
    empty.write_text("nothing\n")
    gone = tmp_path / "gone.pem"
    for given, says in (
        ({"ca_file": gone}, f"ca_file: {gone} cannot be read"),
        ({"ca_file": tmp_path}, f"ca_file: {tmp_path} cannot be read"),
        ({"ca_file": empty}, f"ca_file: {empty} holds no certificates"),
        ({"cert_file": gone}, f"cert_file: {gone} cannot be read"),
        ({"cert_file": empty, "key_file": gone}, f"key_file: {gone} cannot be read"),
        ({"cert_file": empty}, f"cert_file: {empty} with its key in the same file is no pair"),
    ):
        with pytest.raises(BadConfig, match="kafka") as refused:
            ssl_context(KafkaConfig(tls=True, **given))
        assert says in str(refused.value)


def test_a_key_with_a_passphrase_does_not_ask(tmp_path: Path) -> None:
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-passout", "pass:secret", "-subj", "/CN=x",
                    "-keyout", "k.pem", "-out", "c.pem"], cwd=tmp_path, check=True, capture_output=True)  # fmt: skip
    with pytest.raises(BadConfig, match="plain key"):
        ssl_context(KafkaConfig(tls=True, cert_file=tmp_path / "c.pem", key_file=tmp_path / "k.pem"))


def test_tls_checks_the_broker() -> None:
    context = ssl_context(KafkaConfig(tls=True))
    assert context is not None
    assert context.verify_mode is ssl.CERT_REQUIRED and context.check_hostname


def _tokens(code: str) -> KafkaConfig:
    return KafkaConfig(sasl_mechanism="OAUTHBEARER", token_command=(sys.executable, "-S", "-c", code))


def test_a_token_is_what_the_command_prints_and_is_kept_a_while(tmp_path: Path) -> None:
    counter = tmp_path / "counter"
    config = _tokens(f"f = open({str(counter)!r}, 'a'); f.write('x'); f.flush(); print('t0ken' + str(f.tell()))")
    assert token(config) == "t0ken1"
    given = client_settings(config)
    assert given["sasl_mechanism"] == "OAUTHBEARER" and "sasl_plain_password" not in given
    provider = given["sasl_oauth_token_provider"]
    assert [provider.token(), provider.token()] == ["t0ken2", "t0ken2"]
    assert "t0ken" not in repr(given)
    quoted = KafkaConfig(sasl_mechanism="OAUTHBEARER", token_command=("echo", "$HOME;x"))
    assert token(quoted) == "$HOME;x"  # there is no shell


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("import sys; print('t0ken'); sys.exit(3)", "exit code 3"),
        ("pass", "did not print one token"),
        ("print('t0ken a'); print('b')", "did not print one token"),
        ("import sys; sys.stdout.buffer.write(b'\\xfft0ken')", "did not print one token"),
    ],
)
def test_a_token_command_that_fails_is_said_without_what_it_printed(code: str, says: str) -> None:
    with pytest.raises(Unavailable, match=says) as refused:
        token(_tokens(code))
    assert "t0ken" not in str(refused.value)


def test_a_token_command_that_does_not_exist() -> None:
    with pytest.raises(BadConfig, match="token_command: /no/such cannot be run"):
        token(KafkaConfig(sasl_mechanism="OAUTHBEARER", token_command=("/no/such",)))


def test_a_token_command_that_hangs_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("yolometer_core.kafka.TOKEN_COMMAND_S", 0.3)
    with pytest.raises(Unavailable, match="did not end"):
        token(_tokens("import time; time.sleep(60)"))


def test_a_name_that_does_not_resolve_is_said() -> None:
    with pytest.raises(Unavailable, match=r"^Kafka does not answer \(no-such-host\.invalid:9092: .+\); start it"):
        reach(KafkaConfig(bootstrap_servers=["no-such-host.invalid:9092"]))


def test_all_topics_have_one_number_of_partitions_and_one_limit() -> None:
    config = KafkaConfig(prefix="a.")
    names = [one.name for one in wanted(config)]
    assert names == [*(f"a.{one.name}" for one in TOPICS), "a.stream-state-changelog"]
    assert changelog(app_id(config), "state") == "a.stream-state-changelog"
    assert {one.settings(2)["max.message.bytes"] for one in wanted(config)} == {"1048576"}
    assert {one.settings(2)["min.insync.replicas"] for one in wanted(config)} == {"2"}
    for one in wanted(config):
        assert ("retention.ms" in one.settings(1)) == (one.cleanup == "delete")


def test_more_copies_must_acknowledge_than_there_are() -> None:
    with pytest.raises(ValidationError, match="nothing could ever be written"):
        TopicsConfig(replication=1, min_insync=2)


def test_kafka_is_not_imported_by_the_settings() -> None:
    code = "import sys, yolometer_core.topics, yolometer_core.kafka_reach; sys.exit('kafka' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
