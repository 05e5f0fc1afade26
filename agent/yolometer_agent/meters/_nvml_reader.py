"""The reader of NVML: all GPUs at each tick, in a thread of its own, through everything that a driver can do."""

from __future__ import annotations

import contextlib
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from yolometer_agent.meters._base import Device, Reading
from yolometer_agent.meters._nvml_card import Card, Pace, processes_of
from yolometer_agent.meters._nvml_driver import GONE, Driver, Gone, NvmlError, call_seconds
from yolometer_agent.meters._nvml_energy import Energy
from yolometer_agent.meters._nvml_events import Events
from yolometer_agent.meters._nvml_mig import memory_total
from yolometer_agent.meters._nvml_wants import NAMES
from yolometer_agent.meters._nvml_watch import Hung, Watch
from yolometer_agent.meters._nvml_words import Fault, GpuFacts, GpuProcess
from yolometer_core.errors import Unavailable

_FIRST_WAIT_S, _LONGEST_WAIT_S = 1.0, 30.0
_MOST_FAULTS = 10_000
SAMPLE = "sample"
_HUNG = (
    "NVML does not answer, so nothing is known of the GPUs; look for NVRM in dmesg, and reset the GPU or reboot the node "
    "if it stays so."
)


class Habits(NamedTuple):
    """How a reader works; what each means stands at the settings."""

    period_s: float = 1.0
    processes_s: float = 12.0
    slow_s: float = 30.0
    hung_s: float = 3.0
    reopen_s: float = 60.0
    library: Path | None = None


class Reader:
    """Reads all GPUs. `sample` is called by one thread; everything else may be called by any and never waits.

    NVML itself is only touched by the reader's own thread, so a call that hangs blocks nobody. At each tick:
    1. NVML is opened if it is not, or not any more; with back-off when that fails. New handles, known UUIDs.
    2. Each GPU is read; one that fails costs the others nothing.
    3. Events (XID errors) are fetched, without waiting.
    4. When a GPU is lost or mute, or there is none, NVML is opened anew now and then: old handles can stay dead for ever.
    """

    def __init__(self, habits: Habits, clock: Callable[[], float] = time.monotonic) -> None:
        self._habits, self._clock = habits, clock
        self._pace = Pace(habits.processes_s, habits.slow_s)
        self._watch: Watch[list[Reading]] = Watch("nvml")
        self._faults: deque[Fault] = deque(maxlen=_MOST_FAULTS)
        self._times: dict[str, list[float]] = {}
        self._refused: Counter[str] = Counter()
        self._blind: str | None = None
        # from here on only the reader's own thread writes
        self._driver: Driver | None = None
        self._events: Events | None = None
        self._cards: dict[str, Card] = {}
        self._unread = 0
        self._energy: dict[str, Energy] = {}
        self._remembered: dict[str, GpuFacts] = {}
        self._lost: set[str] = set()
        self._tried_at, self._wait_s, self._said = float("-inf"), 0.0, ""
        self._opened_at = 0.0

    def sample(self) -> Sequence[Reading]:
        """Read all GPUs now. Unavailable when nothing can be read, within `hung_s`; then the meter is blind."""
        try:
            readings = self._watch.run(self._read, self._habits.hung_s)
        except Hung:
            self._is_blind(_HUNG)
            raise Unavailable(_HUNG) from None
        except Unavailable as error:
            self._is_blind(str(error))
            raise
        if self._blind is not None:
            self._blind = None
            self._faults.append(Fault("seeing", None, None, ""))
        return readings

    def devices(self) -> list[GpuFacts]:
        """All GPUs and MIG devices that were seen; a lost GPU as it was last known."""
        cards = dict(self._cards)
        found: list[GpuFacts] = []
        for uuid, facts in list(self._remembered.items()):
            found.append(facts._replace(energy_source=self._energy[uuid].source))
            if uuid in cards:
                found.extend(part.facts for part in list(cards[uuid].slices.values()))
        return found

    def faults(self) -> list[Fault]:
        """What went wrong, or right again, since the last call."""
        found = []
        while self._faults:
            found.append(self._faults.popleft())
        return found

    def processes(self) -> dict[str, tuple[GpuProcess, ...]]:
        """The processes of each GPU and MIG device as they were last listed; without those where that is unknown."""
        return processes_of(dict(self._cards)) if self._blind is None else {}

    @property
    def call_seconds(self) -> Mapping[str, tuple[int, float, float]]:
        """By function of NVML: how often it was called, the seconds of all calls, and of the longest; `sample`: all of one."""
        return call_seconds(self._times)

    @property
    def refused(self) -> Mapping[str, int]:
        """By value: how many numbers no card can mean."""
        return dict(self._refused)

    def close(self) -> None:
        """Let go of NVML and end the thread; one that hangs ends with the process."""

        def shut() -> list[Reading]:
            self._shut()
            return []

        if self._driver is not None:
            with contextlib.suppress(Hung):
                self._watch.run(shut, self._habits.hung_s)
        self._watch.close()

    def _is_blind(self, why: str) -> None:
        if self._blind is None:
            self._faults.append(Fault("blind", None, None, why))
        self._blind = why

    # ---- in the reader's own thread ----

    def _read(self) -> list[Reading]:
        now_s = self._clock()
        driver = self._driver
        if driver is None:
            driver = self._open(now_s)
        elif now_s - self._opened_at >= self._habits.reopen_s and self._is_incomplete():
            self._shut()
            driver = self._open(now_s)
        begun_s = time.perf_counter()
        try:
            readings = self._read_all(now_s)
            if self._events is not None:
                self._faults.extend(self._events.new())
        except Gone:
            self._shut()
            self._later(now_s, GONE)
            raise Unavailable(GONE) from None
        took_s = time.perf_counter() - begun_s
        calls, seconds, longest_s = self._times.get(SAMPLE, (0, 0.0, 0.0))
        self._times[SAMPLE] = [calls + 1, seconds + took_s, max(longest_s, took_s)]
        return readings

    def _read_all(self, now_s: float) -> list[Reading]:
        readings: list[Reading] = []
        for uuid, facts in self._remembered.items():
            card = self._cards.get(uuid)
            if card is None:
                self._note_lost(uuid, "It was there before, and is not any more.")
                device = Device(uuid=uuid, model=facts.model, energy_source=self._energy[uuid].source)
                readings.append(Reading(device, {**dict.fromkeys(NAMES), "lost": 1.0}))
                continue
            readings += card.read(now_s)
            if card.lost is not None:
                self._note_lost(uuid, card.lost)
            elif uuid in self._lost:
                self._lost.discard(uuid)
                self._faults.append(Fault("back", uuid, None, ""))
        return readings

    def _note_lost(self, uuid: str, why: str) -> None:
        if uuid not in self._lost:
            self._lost.add(uuid)
            self._faults.append(Fault("lost", uuid, None, why))

    def _is_incomplete(self) -> bool:
        return bool(self._lost or self._unread or not self._cards or any(card.mute for card in self._cards.values()))

    def _open(self, now_s: float) -> Driver:
        if now_s < self._tried_at + self._wait_s:
            raise Unavailable(self._said)
        try:
            driver = Driver(self._habits.library, self._times)
        except Unavailable as error:
            self._later(now_s, str(error))
            raise
        self._driver = driver
        try:
            self._find(driver)
        except NvmlError as error:
            self._shut()
            said = f"The GPUs could not be listed ({error}); see what nvidia-smi says."
            self._later(now_s, said)
            raise Unavailable(said) from None
        self._opened_at, self._wait_s = now_s, 0.0
        return driver

    def _find(self, driver: Driver) -> None:
        """Make a card of each GPU. One that does not even say who it is, is left out; if nobody is missing, that is said."""
        version = driver.ask_or_none("nvmlSystemGetDriverVersion")
        cards: dict[str, Card] = {}
        failed: list[str] = []
        for index in range(driver.ask("nvmlDeviceGetCount")):
            try:
                handle = driver.ask("nvmlDeviceGetHandleByIndex", index)
                facts = _facts(driver, handle, index, version)
            except Gone:
                raise
            except NvmlError as error:
                failed.append(f"index {index}: {error}")
                continue
            energy = self._energy.setdefault(facts.uuid, Energy(self._habits.period_s))
            self._remembered[facts.uuid] = facts
            cards[facts.uuid] = Card(driver, handle, facts, energy, self._pace, self._refused)
        nameless = len(failed) - len(self._remembered.keys() - cards.keys())
        if nameless > self._unread:
            self._faults.extend(Fault("lost", None, None, said) for said in failed[-(nameless - self._unread) :])
        self._unread = max(nameless, 0)
        self._cards = cards
        self._events = Events(driver, {uuid: card.handle for uuid, card in cards.items()})

    def _shut(self) -> None:
        driver, self._driver, self._events, self._cards = self._driver, None, None, {}
        if driver is not None:
            driver.close()

    def _later(self, now_s: float, said: str) -> None:
        """Try again, but not at once, and ever more rarely."""
        self._tried_at, self._said = now_s, said
        self._wait_s = min(max(self._wait_s * 2, _FIRST_WAIT_S), _LONGEST_WAIT_S)


def _facts(driver: Driver, handle: Any, index: int, version: str | None) -> GpuFacts:
    """Who a GPU is. Its UUID must be known, the rest may be."""
    uuid = driver.ask("nvmlDeviceGetUUID", handle)
    pci = driver.ask_or_none("nvmlDeviceGetPciInfo", handle)
    bus_id = getattr(pci, "busId", None)
    return GpuFacts(
        uuid=uuid,
        model=driver.ask_or_none("nvmlDeviceGetName", handle),
        parent_uuid=None,
        sm_share_ratio=None,
        memory_total_bytes=memory_total(driver, handle),
        driver_version=version,
        pci_bus_id=bus_id.decode("ascii", "replace") if isinstance(bus_id, bytes) else bus_id,
        gpu_index=index,
        energy_source=None,
    )


__all__ = ["SAMPLE", "Habits", "Reader"]
