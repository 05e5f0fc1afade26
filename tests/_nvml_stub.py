"""A node of GPUs without a GPU: the library of tests/agent/nvml_stub.c, compiled once, and the text that tells it what to say.

`Stub` is such a node. In the process of a test: `stub` is a fixture, and the meter is told the library. For another program:
`environment()`, which has it find this library as if a driver were installed.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

SOURCES = (Path(__file__).parent / "agent" / "nvml_stub.c", Path(__file__).parent / "agent" / "nvml_stub_state.h")
CACHE = Path(__file__).parents[1] / ".cache" / "nvml-stub"
CONTROL = "NVML_STUB_CONTROL"
_SEEN_S = 0.012  # the stub looks at the text as often as a coarse clock goes on: each 4 to 10 ms


@lru_cache(maxsize=1)
def library() -> Path:
    """The compiled library; a changed source gets a new folder."""
    digest = hashlib.sha256(b"".join(source.read_bytes() for source in SOURCES)).hexdigest()[:16]
    ready = CACHE / digest / "libnvidia-ml.so.1"
    if not ready.exists():
        compiler = shutil.which("gcc") or shutil.which("cc")
        if compiler is None:
            raise RuntimeError("The tests compile a stub of NVIDIA's library and need a C compiler; install gcc.")
        ready.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(CACHE / "lock", timeout=120):
            if not ready.exists():
                made = ready.with_suffix(".made")
                flags = ["-O2", "-Wall", "-Wextra", "-Werror", "-Wno-format-truncation", "-shared", "-fPIC"]
                name = "-Wl,-soname,libnvidia-ml.so.1"  # the loader gives a library that is loaded to whoever asks for this name
                subprocess.run([compiler, *flags, name, "-o", str(made), str(SOURCES[0]), "-lpthread"], check=True)
                made.rename(ready)
    return ready


class Stub:
    """A node whose GPUs say what the text says. Numbers are in NVML's own units; names are explained in nvml_stub.c."""

    def __init__(self, folder: Path, gpus: int = 1) -> None:
        self.control = folder / "nvml"
        self._lines: dict[tuple[str, str], object] = {}
        self._xids = 0
        self.set("node", gpus=gpus)

    @property
    def library(self) -> Path:
        return library()

    def environment(self) -> dict[str, str]:
        """An environment in which any program finds this node's library."""
        return {**os.environ, CONTROL: str(self.control), "LD_LIBRARY_PATH": str(library().parent)}

    def set(self, who: str | int, **values: object) -> None:
        """Change values: of the `node`, of `all` GPUs, of one (3) or of a MIG device of it ("3/0"). None: as it was at first."""
        for key, value in values.items():
            self._put(who, key, value)
        self._write()

    def fail(self, who: str | int, function: str, code: int | None = 3) -> None:
        """Let a function return an error; None: not any more. `*` is every function that asks a device."""
        self._put(who, f"fail {function}", None if code is None else code)
        self._write()

    def fail_field(self, who: str | int, number: int, code: int | None = 3) -> None:
        """Let a field return an error."""
        self._put(who, f"field {number}", None if code is None else code)
        self._write()

    def xid(self, gpu: int, number: int) -> None:
        """Let a GPU report an error."""
        self._xids += 1
        self._put(gpu, "xid", f"{number}={self._xids}")
        self._write()

    def release(self) -> None:
        """Let everything return that hangs."""
        for line in [line for line in self._lines if line[1] == "hang"]:
            del self._lines[line]
        self._write()

    def calls(self, function: str) -> int:
        """How often this process has called a function of the library."""
        loaded = ctypes.CDLL(str(library()))
        loaded.stub_calls.restype = ctypes.c_uint64
        return int(loaded.stub_calls(function.encode()))

    def _put(self, who: str | int, key: str, value: object) -> None:
        if value is None:
            self._lines.pop((str(who), key), None)
        else:
            self._lines[str(who), key] = value

    def _write(self) -> None:
        text = [f"{who} {key}{'=' if ' ' in key else ' '}{value}" for (who, key), value in self._sorted()]
        made = self.control.with_suffix(".made")
        made.write_text("\n".join(text) + "\n")
        made.rename(self.control)
        time.sleep(_SEEN_S)

    def _sorted(self) -> list[tuple[tuple[str, str], Any]]:
        """Later lines win, so what is for all comes before what is for one."""
        return sorted(self._lines.items(), key=lambda line: line[0][0] not in {"node", "all"})


@pytest.fixture
def stub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stub]:
    """A node of one GPU for the process of this test; `stub.set("node", gpus=8)` before the first sample makes it eight."""
    node = Stub(tmp_path)
    monkeypatch.setenv(CONTROL, str(node.control))
    yield node
    node.release()


__all__ = ["CONTROL", "Stub", "library", "stub"]
