"""What a worker fetches while Faust holds the flow is read again, also where nothing was ever committed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from _kafka import Broker
from _worker import fleet_on, gpu_event, messages_of, stop

_HELD = """
import asyncio, sys
from yolometer.cli import main
from yolometer_stream import faust_runner

class Held(faust_runner.Consumer):
    # As if the group were joined anew at the moment when the first messages come: Faust throws them away and seeks.
    fetched = False

    async def _getmany(self, *arguments, **named):
        records = await super()._getmany(*arguments, **named)
        if any(records.values()) and not Held.fetched:
            Held.fetched = True
            self.stop_flow()
            asyncio.get_running_loop().call_later(0.5, self.resume_flow)
            print("held", file=sys.stderr, flush=True)
        return records

faust_runner.Consumer = Held
sys.argv[0] = "yolometer"
main()
"""


def test_messages_fetched_in_a_rebalance_are_not_lost(kafka: Broker, prefix: str, tmp_path: Path) -> None:
    """The client seeks to what is committed, and passes over a partition without a commit: it would stay behind its messages."""
    with fleet_on(kafka.bootstrap, prefix, tmp_path, partitions=1) as fleet:
        fleet.topics()
        settings = tmp_path / "stream.json"
        where = {"bootstrap_servers": kafka.bootstrap, "prefix": prefix}
        settings.write_text(json.dumps({"kafka": where, "metrics_port": None, "session_timeout_s": 3, "linger_s": 0.05}))
        fleet.give(messages_of([gpu_event("n1", seq) for seq in range(1, 21)]))
        with (tmp_path / "said0").open("wb") as said:
            argv = [sys.executable, "-c", _HELD, "stream", "--config", str(settings)]
            worker = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=said, stdin=subprocess.DEVNULL)
        fleet.workers.append(worker)
        fleet.until(worker, "held")
        fleet.settle(20)
        assert sum(event.table == "coverage" for event in fleet.events("rate")) > 1
        assert stop(worker) == 0, fleet.said(worker)
