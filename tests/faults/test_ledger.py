"""Kill -9 at random, all services and the broker, under load: nothing is lost or twice, the state is that of a clean run."""

from __future__ import annotations

import random
import threading
import time
from pathlib import Path

import pytest
from _ledger import Writers, audit, check
from _site import SOAK, Site, site_in

SEED = 20261201
KILLS = 200 if SOAK else 20
LIVES_S = {"agent": (0.8, 9.0), "stream": (1.0, 13.0), "sink": (1.0, 11.0), "broker": (0.5, 3.5)}
"""How long each lives until it is killed: long enough at times that there is something to lose."""


class Killer:
    """Kills each service at times that a seed decides, and says how often."""

    def __init__(self, site: Site, seed: int, kills: int) -> None:
        self._site, self._chance, self._kills = site, random.Random(seed), kills
        self.counts = dict.fromkeys(LIVES_S, 0)
        self._due_s = {name: self._next_s(name) for name in LIVES_S}
        self._broker: threading.Thread | None = None
        self._failed: BaseException | None = None

    @property
    def share(self) -> float:
        """How much of it is done."""
        return min(self.counts.values()) / self._kills

    def turn(self) -> None:
        """Kill what is due."""
        if self._failed is not None:
            raise self._failed
        now = time.monotonic()
        for name, due_s in self._due_s.items():
            # the broker takes longest to come back: the others keep step with it, so that there is load all the time
            early = self.counts[name] > self.counts["broker"] + 1
            if now >= due_s and self.counts[name] < self._kills and not early and self._kill(name):
                self.counts[name] += 1
                self._due_s[name] = self._next_s(name)

    def _next_s(self, name: str) -> float:
        return time.monotonic() + self._chance.uniform(*LIVES_S[name])

    def _kill(self, name: str) -> bool:
        if name != "broker":
            service = self._chance.choice([each for each in self._site.services if each.kind == name])
            was_up = service.is_up
            service.kill()
            return bool(was_up)
        if self._broker is not None and self._broker.is_alive():
            return False
        self._broker = threading.Thread(target=self._again)
        self._broker.start()
        return True

    def _again(self) -> None:
        try:
            self._site.fleet.broker.kill()
            self._site.fleet.broker.start()
        except BaseException as error:  # noqa: BLE001  # the test raises it
            self._failed = error
        self._due_s["broker"] = self._next_s("broker")

    def close(self) -> None:
        if self._broker is not None:
            self._broker.join()


@pytest.mark.timeout(7200 if SOAK else 900)
def test_kills_under_load_lose_and_double_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    began = time.monotonic()
    with site_in(tmp_path, streams=2 if SOAK else 1) as site:
        writers = Writers(site.runs, SEED, copies=1)
        site.start()
        killer = Killer(site, SEED, KILLS)
        try:
            while killer.share < 1:
                writers.write(killer.share)
                killer.turn()
                site.supervise()
                time.sleep(0.05)
        finally:
            killer.close()
        killed_s = time.monotonic() - began
        writers.write(1)
        assert set(killer.counts.values()) == {KILLS}
        site.drain(120)
        assert [service.term(35) for service in site.services[1:]] == [0] * len(site.services[1:])
        counts = check(site)
        code, checks = audit(site)
        missing = {name: each["missing"] for name, each in checks.items() if each["missing"]}
        with capsys.disabled():
            print(f"\nseed {SEED}: {killer.counts} in {killed_s:.0f} s, all {time.monotonic() - began:.0f} s; {dict(counts)} "
                  f"audit {code} {missing}; ends {[dict.fromkeys(s.codes) for s in site.services]}")  # fmt: skip
        # while no agent ran there were no samples, and the audit says so; nothing else is missing
        assert missing.keys() <= {"samples"}
        assert counts["lost"] == 0
        for service in site.services:
            assert set(service.codes) <= {0, -9, 1, 70, 75}, service.codes
