"""A secret is in no line of log, wherever it sits and however it is written."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st

from yolometer_core.service import hiding, logs
from yolometer_core.service.hiding import hide, plain, scrub, secret_key

# what a generator of passwords gives, and the characters that quoting changes; without `*`, which is what stands in its place
SECRETS = st.text(alphabet=st.sampled_from("abcXYZ019\"'\\/{}%+=:@$ \n\täß€😀\x1b\x00"), min_size=6, max_size=30).filter(
    lambda text: len(set(text.strip())) > 3
)
PLACES = st.sampled_from(
    [
        *("event", "argument", "value", "key", "list", "deep", "bytes"),
        *("object", "quoted", "exception", "cause", "number", "address", "error value"),
    ]
)


@pytest.fixture(autouse=True)
def nothing_hidden() -> Iterator[None]:
    yield
    forget()


def forget() -> None:
    hiding._values.clear()
    hiding._pattern = None


class Holder:
    def __init__(self, secret: object) -> None:
        self.held = secret

    def __repr__(self) -> str:
        return f"Holder({self.held!r}, {self.held})"


def speak(logger: Any, foreign: logging.Logger, place: str, secret: str) -> None:
    deep: object = {"a": [{"b": (secret, {"c": {"d": {"e": secret}}})}]}
    values: dict[str, object] = {
        "value": secret,
        "key": {secret: 1, f"x{secret}": 2},
        "list": [secret, f"before {secret} after"],
        "deep": deep,
        "bytes": secret.encode(),
        "object": Holder(secret),
        "quoted": [Holder(f"it's \"{secret}\""), Holder(f"it's \"{secret}\"".encode())],
        "address": quote(secret, safe=""),
        "error value": ValueError(secret),
    }
    if place == "event":
        logger.warning(f"before {secret} after")
    elif place == "argument":
        foreign.warning("before %s and %r after", secret, {"x": secret})
    elif place == "number":
        logger.warning("said", value=int.from_bytes(secret.encode(), "big"))
    elif place in ("exception", "cause"):
        try:
            try:
                raise ValueError(f"before {secret} after")
            except ValueError as error:
                if place == "cause":
                    raise RuntimeError(repr(secret)) from error
                raise
        except (ValueError, RuntimeError):
            logger.exception("It failed")
            foreign.exception("It failed")
    else:
        logger.warning("said", where=values[place])


def spoken(form: bool, place: str, secret: str) -> str:
    stream = io.StringIO()
    foreign = logging.Logger("faust", logging.DEBUG)
    foreign.addHandler(logs.handler("sink", json=form, stream=stream))
    last: Any = structlog.stdlib.ProcessorFormatter.wrap_for_formatter
    logger = structlog.wrap_logger(foreign, processors=[last], wrapper_class=structlog.stdlib.BoundLogger)
    speak(logger, foreign, place, secret)
    return stream.getvalue()


def texts(value: object) -> list[str]:
    if isinstance(value, dict):
        return [text for key, inner in value.items() for text in [key, *texts(inner)]]
    if isinstance(value, list):
        return [text for inner in value for text in texts(inner)]
    return [str(value)]


@given(secret=SECRETS, place=PLACES, form=st.booleans())
def test_a_hidden_value_is_nowhere(secret: str, place: str, form: bool) -> None:
    shown = str(int.from_bytes(secret.encode(), "big")) if place == "number" else secret
    try:
        hide(shown)
        out = spoken(form, place, secret)
    finally:
        forget()
    assert "***" in out
    assert shown not in out and shown.strip() not in out
    if form:
        assert all(shown.strip() not in text for line in out.splitlines() for text in texts(json.loads(line)))


def test_without_hiding_it_would_be_there() -> None:
    """The test above can fail."""
    for place in ("event", "argument", "value", "key", "list", "deep", "bytes", "object", "quoted", "cause", "error value"):
        for form in (True, False):
            assert "hunter2abc" in spoken(form, place, "hunter2abc"), place


@pytest.mark.parametrize(
    "key",
    [
        *("password", "PASSWORD", "sasl_plain_password", "sasl.mechanism", "sasl_oauth_token_provider", "saslPassword"),
        *("token", "access_token", "clientSecret", "Authorization", "api_key", "apiKey", "store-password", "ssl_passphrase"),
    ],
)
def test_keys_that_name_a_secret(key: str) -> None:
    assert secret_key(key)
    assert plain({key: "x", "inner": {key: ["x"]}}) == {key: "***", "inner": {key: "***"}}
    assert plain({key: None}) == {key: None}  # that none is given is no secret


@pytest.mark.parametrize("key", ["tokens", "wasted_tokens", "mtok", "key", "topic", "secretary", "", "tokens_total"])
def test_keys_that_do_not(key: str) -> None:
    assert not secret_key(key) and plain({key: 5}) == {key: 5}


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("cannot open clickhouse://yolo:hunter2@db:8443/x", "cannot open clickhouse://yolo:***@db:8443/x"),
        ("http://db:8123/ is away", "http://db:8123/ is away"),
        ("sasl_plain_password='a b', host=x", "sasl_plain_password=***, host=x"),
        ('{"password": "hunter2", "user": "u"}', '{"password": ***, "user": "u"}'),
        ("Authorization: Bearer abc.def next", "Authorization: Bearer *** next"),
        ("url?token=abc&x=1", "url?token=***&x=1"),
        ("tokens=5 and 3 tokens: many", "tokens=5 and 3 tokens: many"),
        ("The key 'password' is wrong; correct it.", "The key 'password' is wrong; correct it."),
    ],
)
def test_what_other_libraries_write(text: str, shown: str) -> None:
    assert scrub(text) == shown


def test_a_secret_with_quotes_beside_other_quotes() -> None:
    secret = "hün'ter'2abc"
    hide(secret)
    for shown in (repr(f"it's \"{secret}\""), repr(f"it's \"{secret}\"".encode()), json.dumps(secret), repr(secret)):
        assert "ter" not in scrub(shown)


def test_the_longer_of_two_secrets_and_the_empty_one() -> None:
    hide("")
    hide(None)
    hide("  \n")
    assert scrub("a b") == "a b"
    hide("hunter")
    hide(b"hunter2\n")
    assert scrub("hunter2, hunter and hunte") == "***, *** and hunte"


def test_our_own_words_stay_what_they_are() -> None:
    for word in ("event", "warning", "sink", "level"):
        hide(word)
    line = json.loads(spoken(True, "event", "x"))
    assert line["event"] == "before x after" and line["level"] == "warning" and line["service"] == "sink"


def test_a_long_text_is_cut_after_it_was_cleaned() -> None:
    hide("hunter2")
    text = scrub("a" * 14_996 + "hunter2" + "b" * 50_000 + " the end")
    assert len(text) < 20_100 and "hunt" not in text and text.endswith("the end") and "characters" in text
