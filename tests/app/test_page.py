"""The page of a box: loopback only, this machine only, and answers to ROI queries from the store that `up` has open."""

from __future__ import annotations

import json
import socket
import urllib.error
import urllib.request
from datetime import UTC, datetime
from pathlib import Path

import pytest

from yolometer.page import SIGN, Page, ask
from yolometer_core.errors import BadUsage
from yolometer_core.events import Run
from yolometer_sinks.stores._base import Store


def _port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def _run(run_id: str) -> Run:
    now = datetime(2026, 11, 30, tzinfo=UTC)
    return Run(ts=now, node="n", source="run", seq=1, version=1, run_id=run_id, place="p", name="train", tokens_mtok=1.5)


def test_a_query_is_answered_through_the_page_and_the_sign_goes_away(tmp_path: Path, chdb_store: Store) -> None:
    chdb_store.write([_run("r-1"), _run("r-2")])
    url = f"chdb://{tmp_path}"
    assert ask(url, "runs", {}) is None
    with Page(_port(), chdb_store, url):
        assert (tmp_path / "yolometer" / SIGN).exists()
        found = ask(url, "runs", {"run_id": "r-1"})
        assert found is not None
        assert [(row["run_id"], row["tokens_mtok"], row["cost"]) for row in found.dicts()] == [("r-1", 1.5, None)]
        with pytest.raises(BadUsage, match="no parameter"):
            ask(url, "runs", {"x": "1"})
    assert not (tmp_path / "yolometer" / SIGN).exists()


def test_a_sign_left_behind_by_a_killed_box_is_no_answer(tmp_path: Path) -> None:
    (tmp_path / "yolometer").mkdir()
    (tmp_path / "yolometer" / SIGN).write_text(f"http://127.0.0.1:{_port()}/")
    assert ask(f"chdb://{tmp_path}", "runs", {}) is None
    (tmp_path / "yolometer" / SIGN).write_text("http://elsewhere.example/")
    assert ask(f"chdb://{tmp_path}", "runs", {}) is None


def test_other_hosts_and_paths_are_refused(chdb_store: Store) -> None:
    port = _port()
    with Page(port, chdb_store, "chdb://memory"):
        home = f"http://127.0.0.1:{port}"
        with urllib.request.urlopen(f"{home}/healthz") as answer:
            assert answer.read() == b"ok\n"
        with urllib.request.urlopen(f"{home}/runs.json") as answer:
            assert json.load(answer) == {"runs": []}
        evil = {"Host": f"evil.example:{port}"}
        none: dict[str, str] = {}
        refused = (("/", evil, 403), ("/nothing", none, 404), ("/roi/nothing.json", none, 400))
        for path, headers, code in refused:
            with pytest.raises(urllib.error.HTTPError) as caught:
                urllib.request.urlopen(urllib.request.Request(home + path, headers=headers))
            assert caught.value.code == code
            caught.value.close()
