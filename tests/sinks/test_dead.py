"""`yolometer dead`: dead letters are listed, looked at and sent again byte for byte, on a real store and a real Kafka."""

from __future__ import annotations

import io
import itertools
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from _clickhouse_server import running as clickhouse
from _kafka import Broker, produce, read_all
from _samples import epoch, message
from _service import config_of, count, running, topics, until

from yolometer.cli import app, run
from yolometer_sinks.open_store import open_store
from yolometer_sinks.stores._base import Store

_databases = itertools.count()
OLD = b"\x81\xa1v\x92\x63\x00"  # {"v": [99, 0]}


@pytest.fixture
def url() -> str:
    return str(clickhouse().url(f"dead_{next(_databases)}"))


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    opened = open_store(url)
    opened.migrate()
    yield opened
    opened.close()


class Call:
    """The command, in this process."""

    def __init__(self, url: str, capsys: pytest.CaptureFixture[str], patch: pytest.MonkeyPatch) -> None:
        self._url, self._capsys, self._patch = url, capsys, patch

    def __call__(self, *words: str, answer: str = "", code: int = 0) -> str:
        self._patch.setattr(sys, "argv", ["yolometer", "dead", *words, "--store", self._url])
        self._patch.setattr(sys, "stdin", io.StringIO(answer))
        self._capsys.readouterr()
        found = run(app)
        said, complained = self._capsys.readouterr()
        assert found == code, complained
        return said if code in (0, 3) else complained


@pytest.fixture
def call(url: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Call:
    return Call(url, capsys, monkeypatch)


def test_list_show_and_retry(kafka: Broker, prefix: str, store: Store, url: str, call: Call, tmp_path: Path) -> None:
    topics(kafka.bootstrap, prefix, 1)
    good = message(epoch("r", 1))
    broken = good[:-1]
    produce(kafka.bootstrap, prefix + "run", [(b"key", OLD), (b"x", None), (b"r", broken), (b"r", good)])
    config = config_of(kafka.bootstrap, prefix, url)
    with running(config):
        until(lambda: count(store, "dead_letters") == 3 and count(store, "epochs") == 1)
    file = tmp_path / "sink.yaml"
    file.write_text(f"kafka: {{bootstrap_servers: ['{kafka.bootstrap}'], prefix: '{prefix}'}}\n")

    listed = json.loads(call("list", "--json"))["dead"]
    assert {(row["reason"], row["from_offset"]) for row in listed} == {("version", 0), ("tombstone", 1), ("garbage", 2)}
    assert "version" in call("list") and prefix in call("list", "--summary")
    assert len(json.loads(call("list", "--reason", "version", "--json"))["dead"]) == 1
    assert [row["letters"] for row in json.loads(call("list", "--summary", "--json"))["summary"]] == [1, 1, 1]
    idents = {row["reason"]: row["event_id"] for row in listed}

    shown = json.loads(call("show", idents["version"][:8], "--json"))
    assert shown["raw_hex"] == OLD.hex() and shown["decoded"] == {"v": [99, 0]} and shown["raw_key"] == "key" and shown["whole"]
    assert "99" in call("show", idents["version"])
    assert json.loads(call("show", idents["garbage"], "--json"))["decoded"] is None

    for words in ("show ffffffff", "show x'y", "retry", "retry --all --reason type", "list --reason no"):
        assert call(*words.split(), code=2).count("\n") == 1
    refused = call("retry", idents["version"], "--config", str(file), answer="n\n", code=1)
    assert "Send 1 messages again" in refused
    assert len(read_all(kafka.bootstrap, prefix + "run")) == 4
    done = json.loads(call("retry", idents["version"], "--config", str(file), "--yes", "--json"))
    assert done == {"retried": [idents["version"]], "incomplete": []}
    assert read_all(kafka.bootstrap, prefix + "run")[4:] == [(0, 4, b"key", OLD)]
    rows = store.query("SELECT reason, version, isNull(retried_ts) FROM dead_letters ORDER BY reason").rows
    assert rows == [("garbage", 0, True), ("tombstone", 0, True), ("version", 1, False)]
    assert len(json.loads(call("list", "--waiting", "--json"))["dead"]) == 2

    again = json.loads(call("retry", "--all", "--config", str(file), "--yes", "--json"))
    assert again == {"retried": [idents["garbage"]], "incomplete": [idents["tombstone"]]}
    assert "nothing" in call("retry", "--reason", "version", "--config", str(file), "--yes", code=3)
    with running(config):
        until(lambda: count(store, "dead_letters") == 5)  # both are wrong still, at their new place
    assert store.query("SELECT sum(version) FROM dead_letters").rows == [(2,)]  # what came from the topic again changed nothing
