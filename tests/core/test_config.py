"""Configuration: the file, the environment, and sentences for every mistake."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import BaseModel, Field, SecretStr

from yolometer_core.config import Config, load
from yolometer_core.errors import BadConfig


class Broker(BaseModel):
    """A part of a configuration with keys of its own."""

    host: str = "127.0.0.1"
    token: SecretStr | None = None


class Example(Config):
    """A small configuration."""

    port: int = Field(default=8787, ge=0, le=65535)
    watch: tuple[str, ...] = ()
    owner: dict[str, str] = Field(default_factory=dict)
    password: str | None = None
    broker: Broker = Broker()
    key: SecretStr | None = None


def _file(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "yolometer.yaml"
    path.write_text(text)
    return path


def test_file_and_defaults(tmp_path: Path) -> None:
    found = load(Example, _file(tmp_path, "watch: [runs/, /data]\nowner: {team: vision}\n"))
    assert (found.port, found.watch, found.owner) == (8787, ("runs/", "/data"), {"team": "vision"})
    assert load(Example, _file(tmp_path, "")).port == 8787


def test_environment_wins_over_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("YOLOMETER_PORT", "9000")
    monkeypatch.setenv("YOLOMETER_OWNER__TEAM", "robots")
    found = load(Example, _file(tmp_path, "port: 1\nowner: {user: ada}\n"))
    assert (found.port, found.owner["team"], found.owner["user"]) == (9000, "robots", "ada")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("prot: 1\n", "there is no key 'prot'; did you mean 'port'"),
        ("colour: red\n", "the keys are port, watch, owner, password"),
        ("broker: {hots: x}\n", "there is no key 'broker.hots'; did you mean 'host'"),
        ("broker: 7\n", "the key 'broker' is wrong (it must be a mapping of keys to values)"),
        ("owner: 7\n", "the key 'owner' is wrong (it must be a mapping of keys to values)"),
        ("broker: {token: hunter2}\n", "put it into the environment as YOLOMETER_BROKER__TOKEN"),
        ("key: hunter2\n", "put it into the environment as YOLOMETER_KEY"),
        ("port: many\n", "the key 'port' is wrong"),
        ("port: 70000\n", "the key 'port' is wrong"),
        ("- a\n- b\n", "must be a mapping"),
        ("port: [1\n", "is not valid YAML at line 2"),
        ("password: [hunter2]\n", "the key 'password' is wrong"),
    ],
)
def test_mistakes_are_one_sentence(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(BadConfig) as caught:
        load(Example, _file(tmp_path, text))
    message = str(caught.value)
    assert said in message
    assert "hunter2" not in message
    assert message.endswith(".")
    assert "\n" not in message


def test_missing_file_and_wrong_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BadConfig, match="cannot be read"):
        load(Example, tmp_path / "nowhere.yaml")
    monkeypatch.setenv("YOLOMETER_PORT", "many")
    with pytest.raises(BadConfig, match="The environment: the key 'port' is wrong"):
        load(Example)


def test_a_secret_comes_from_the_environment_and_is_never_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("YOLOMETER_BROKER__TOKEN", "hunter2")
    found = load(Example, _file(tmp_path, "broker: {host: kafka}\n"))
    assert found.broker.host == "kafka" and found.broker.token is not None
    assert found.broker.token.get_secret_value() == "hunter2"
    assert "hunter2" not in repr(found) + str(found.model_dump_json())
