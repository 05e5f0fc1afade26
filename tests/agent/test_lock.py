"""Two agents never work on one node, nor in one folder; a lock ends with its process, however that ends."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from yolometer_agent.lock import Held, NodeLock
from yolometer_core.errors import Unavailable


def test_one_folder_and_one_node(tmp_path: Path) -> None:
    node = secrets.token_hex(8)
    with NodeLock(tmp_path / "a", node):
        me = f"process {os.getpid()}"
        with pytest.raises(Held, match=rf"Another agent \({me}\) uses the state folder {tmp_path}/a"):
            NodeLock(tmp_path / "a", node + "other")
        with pytest.raises(Held, match=rf"Another agent \({me}\) reports for the node {node}; stop it"):
            NodeLock(tmp_path / "b", node)
        with NodeLock(tmp_path / "c", node + "other"):  # a refused one holds nothing
            pass
        with NodeLock(tmp_path / "b", node + "x" * 300):
            pass
    with NodeLock(tmp_path / "a", node):
        pass


def test_a_killed_process_holds_nothing(tmp_path: Path) -> None:
    node = secrets.token_hex(8)
    code = "import sys; from pathlib import Path; from yolometer_agent.lock import NodeLock\n" \
           "lock = NodeLock(Path(sys.argv[1]), sys.argv[2]); print('held', flush=True); sys.stdin.read()"  # fmt: skip
    argv = [sys.executable, "-c", code, str(tmp_path), node]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout
        assert other.stdout.readline() == "held\n"
        with pytest.raises(Held, match=rf"process {other.pid}\)"):
            NodeLock(tmp_path, node)
        other.send_signal(signal.SIGKILL)
    with NodeLock(tmp_path, node):
        assert (tmp_path / "lock").read_text() == f"{os.getpid()}\n"
        assert (tmp_path / "lock").stat().st_mode & 0o777 == 0o600


def test_a_folder_that_cannot_be_used_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(Unavailable, match=r"The state folder .* cannot be used"):
        NodeLock(tmp_path / "file" / "state", "n")
    (tmp_path / "link").mkdir()
    (tmp_path / "link" / "lock").symlink_to(tmp_path / "file")
    with pytest.raises(Unavailable, match="cannot be used"):
        NodeLock(tmp_path / "link", "n")
