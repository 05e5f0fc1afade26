"""The agent on a node of GPUs, to the tables: whose each GPU is, which there are, and what befell them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from _fleet import Fleet
from _nvml_stub import CONTROL, Stub

CAPTURED = Path(__file__).parents[1] / "cases" / "replay"
TRAINER = "import sys, time; file = open(sys.argv[1], 'a'); print('up', flush=True); time.sleep(600)"
pytestmark = pytest.mark.timeout(200)


@pytest.fixture
def run(tmp_path: Path) -> Iterator[tuple[Path, int]]:
    """A training: its folder, and the pid of a process that holds its log."""
    folder = tmp_path / "runs" / "train"
    shutil.copytree(next(path for path in sorted(CAPTURED.iterdir()) if (path / "train.log").exists()), folder)
    trainer = subprocess.Popen(
        [sys.executable, "-S", "-c", TRAINER, str(folder / "train.log")], cwd=folder, stdout=subprocess.PIPE
    )  # fmt: skip
    assert trainer.stdout is not None
    trainer.stdout.readline()
    yield folder, trainer.pid
    trainer.kill()
    trainer.wait()
    trainer.stdout.close()


def test_each_gpu_has_its_holder(tmp_path: Path, run: tuple[Path, int], monkeypatch: pytest.MonkeyPatch) -> None:
    folder, pid = run
    stub = Stub(tmp_path, gpus=2)
    stub.set(0, procs=f"{pid}:1048576")
    monkeypatch.setenv(CONTROL, str(stub.control))
    with Fleet(tmp_path, partitions=1) as fleet:
        fleet.start_sink()
        nvml = {"nvml": {"library": str(stub.library), "period_s": 0.2, "processes_s": 0.5}}
        agent = fleet.start_agent("n1", [folder.parent], nvml)
        store = fleet.store()
        store.migrate()
        asked = "SELECT DISTINCT gpu_uuid, holder, attribution_source, user FROM gpus WHERE ts > now() - 3 ORDER BY gpu_uuid"
        place = f"n1:{os.path.realpath(folder)}"

        def held() -> bool:
            rows = store.query(asked).rows
            return [row[1:3] for row in rows] == [(place, "workdir"), (None, "idle")]

        fleet.wait_until(held, what="The holders of both GPUs", why=lambda: str(store.query(asked).rows))
        stub.xid(1, 79)
        faults = "SELECT gpu_uuid, xid, detail FROM gpu_faults WHERE what = 'xid'"
        fleet.wait_until(lambda: store.query(faults).rows, what="The XID")
        assert [row[1:] for row in store.query(faults).rows] == [(79, "the GPU has fallen off the bus")]
        devices = store.query("SELECT gpu_index, gpu_model, energy_source FROM gpu_devices ORDER BY gpu_index").rows
        assert [row[0] for row in devices] == [0, 1] and all(row[1] and row[2] == "counter" for row in devices)
        assert fleet.term(agent) == 0
