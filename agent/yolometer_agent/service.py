"""Service: the agent as it runs on a node: logs and meters into spools, spools into Kafka, and the positions behind them."""

from __future__ import annotations

import contextlib
import json
import time
from collections import deque
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, NamedTuple

from yolometer_agent import formats as format_parts
from yolometer_agent.agent import Agent, settings_first
from yolometer_agent.attribute._base import Known
from yolometer_agent.attribute.attribute import Attributor, sources_of
from yolometer_agent.config import AgentConfig, meters_of
from yolometer_agent.emit import Emitter, Pace
from yolometer_agent.formats._base import Format
from yolometer_agent.gpus import Held, Lists
from yolometer_agent.lanes import FACT, GPU, FactLane, GpuLane
from yolometer_agent.lock import NodeLock
from yolometer_agent.meters._base import Closes, Meter, Ticker
from yolometer_agent.meters._tell import Teller
from yolometer_agent.rhythm import ScanRhythm
from yolometer_agent.sending import check_codec
from yolometer_agent.spool.spool import Spool
from yolometer_agent.tail.checkpoint import Checkpoint
from yolometer_core import wire
from yolometer_core.delivery import Loss
from yolometer_core.errors import Unavailable
from yolometer_core.kafka import client_settings, topic
from yolometer_core.parts import discover
from yolometer_core.service.health import Health, serve
from yolometer_core.service.logs import logger
from yolometer_core.service.metrics import Metrics
from yolometer_core.service.stopping import Stop

STATE_VERSION = 1
SECOND_S = 1.0
SAVE_S = 5.0
MOST_TAKEN = 1000
SLICE_FILES = 4
LAST_READ_S = 1.5
LAST_SEND_S = 5.0
STUCK_S = 60.0


def run(
    config: AgentConfig, stop: Stop, *, metrics: Metrics, health: Health, once: bool = False, pace: Pace | None = None
) -> None:  # fmt: skip
    """Run until `stop`; with `once` only until all that is there was read and acknowledged. The order of the end:

    1. Meters and logs are read a last time, into the spools. 2. For up to 5 s they are sent. 3. What was acknowledged is saved.

    BadConfig for settings that cannot work, Held when another agent works here, Unavailable when the state folder cannot be
    used, or `once` was stopped too early. Nothing is lost in any case.
    """
    codec = None if config.compression == "none" else config.compression
    check_codec(codec)
    client_settings(config.kafka)  # what is wrong with it is told at once, not by the thread that sends
    meters = {} if once else meters_of(config)
    attributor = Attributor(sources_of(config.attribution), node=config.name, teams=config.teams, cluster=config.cluster)
    log = logger("agent")
    with contextlib.ExitStack() as stack:
        stack.enter_context(NodeLock(config.folder, config.name))
        stack.enter_context(serve(metrics, health, config.metrics_host, None if once else config.metrics_port))
        (config.folder / "spool").mkdir(mode=0o700, exist_ok=True)
        spools = {FACT: _spool(config, FACT, drop=False), GPU: _spool(config, GPU, drop=True)}
        for spool in spools.values():
            stack.callback(spool.close)
        emitter = Emitter(
            spools,
            lambda: client_settings(config.kafka),
            topic=lambda name: topic(config.kafka, name),
            compression=codec,
            pace=pace or Pace(bytes_per_s=config.replay_bytes_per_s),
            health=health,
            warn=log.warning,
        )
        loop = Loop(config, spools, emitter, metrics, health, once=once)
        stack.callback(loop.close)
        lane = GpuLane(spools[GPU], config.name)
        tickers = [
            Ticker(name, _held(meter, attributor, loop), config.name, lane.put, warn=log.warning,
                   news=Teller(meter, config.name, name).news)
            for name, meter in meters.items()
        ]  # fmt: skip
        if attributor.blind and any(isinstance(meter, Lists) for meter in meters.values()):
            log.warning(attributor.blind)
        for meter in meters.values():
            if isinstance(meter, Closes):
                stack.callback(meter.close)
        emitter.start()
        stack.callback(emitter.stop, LAST_SEND_S)
        for ticker in tickers:
            ticker.start()
            stack.callback(ticker.close, 1.0)
        log.info("The agent reads", node=config.name, watch=list(config.watch), meters=list(meters), folder=str(config.folder))
        while not stop.wished and not once:
            with health.working():
                loop.round()
            stop.wait(0.0 if loop.is_busy else config.poll_s)
        loop.finish(stop)
        for ticker in tickers:
            ticker.close(1.0)
        if once:
            loop.drain(stop)
        emitter.stop(LAST_SEND_S)
        loop.every_second(last=True)


def _held(meter: Meter, attributor: Attributor, loop: Loop) -> Meter:
    """The meter, with holders where it lists processes."""
    return Held(meter, attributor, lambda: loop.known, time.monotonic) if isinstance(meter, Lists) else meter


def _spool(config: AgentConfig, name: str, *, drop: bool) -> Spool:
    settings = config.spool
    return Spool(
        config.folder / "spool" / name,
        max_bytes=settings.max_bytes,
        max_age_s=settings.max_age_s,
        fsync_s=settings.fsync_s,
        drop=drop,
    )


Reason = Literal["full", "old", "damaged", "too_large"]


class _Pending(NamedTuple):
    """A state of the agent, and the seq of the last message before it."""

    seq: int
    state: str


class Loop:
    """The rhythm of the agent. The order of side effects:

    1. What is new in the logs becomes facts in memory, for up to `linger_s`.
    2. They go into the spool; when that is full nothing more is read, for the logs are the last buffer.
    3. The state that follows from them goes into the spool behind them.
    4. When all before a state is acknowledged, the checkpoint is replaced by it.

    A start takes the newest state of the spool, for what is before it will be sent; when the spool is damaged, the checkpoint.
    """

    def __init__(
        self,
        config: AgentConfig,
        spools: dict[str, Spool],
        emitter: Emitter,
        metrics: Metrics,
        health: Health,
        *,
        once: bool,
        most_bytes: int = wire.MOST_BYTES,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._config, self._spools, self._emitter, self._metrics, self._health = config, spools, emitter, metrics, health
        self._once, self._clock = once, clock
        self._log = logger("agent")
        self._formats = discover(format_parts, "FORMAT", Format)
        self._facts = FactLane(spools[FACT], config.name, refused=self._refused, most_bytes=most_bytes, clock=clock)
        self._checkpoint = Checkpoint(config.folder / "agent.json")
        self._pending: list[_Pending] = []
        self._saved: str | None = None
        self._scans = ScanRhythm(clock)
        self._next_flush = self._next_second = self._next_save = clock()
        self._counted = 0
        self._full: str | None = None
        self.is_busy = False
        self._files: list[str] = []
        self._turn: deque[list[str]] = deque()
        self._more = False
        self._agent = self._start(is_whole=not self._lost())
        self.known: tuple[Known, ...] = ()
        """The places that are tailed; replaced as a whole, so that the threads of meters may read it."""

    def round(self) -> None:
        """Read what is new, and do what is due."""
        now = self._clock()
        scanning = self._scans.is_due(now)
        if scanning:
            self._scan()
            self.known = self._agent.known()
            self._scans.looked(now)
        self.is_busy = False
        if self._full is None:
            self.is_busy = self._read()
            if scanning:
                self._facts.take(self._agent.stands())
        if now >= self._next_flush or self._facts.taken > MOST_TAKEN or self._full:
            self._flush()
        if now >= self._next_second:
            self.every_second()
        self._health.progress()

    def finish(self, stop: Stop) -> None:
        """Look once more and put all of it into the spool; not longer than a moment, but with `once` to the end."""
        deadline = self._clock() + LAST_READ_S
        if self._once or self._full is None:
            self._scan()
            more = True
            while more and (self._once or self._clock() < deadline) and not (self._once and stop.wished):
                if self._full is None:
                    more = self._read(resting=True)
                elif stop.wait(self._config.poll_s):
                    break
                if self._facts.taken > MOST_TAKEN or self._full:
                    self._flush()
                self.every_second()
            self._facts.take(self._agent.stands(digest=self._once))
        self._flush(last=True)

    @property
    def is_done(self) -> bool:
        """Whether all that was read is acknowledged."""
        return not self._facts.is_waiting and not any(spool.messages_waiting for spool in self._spools.values())

    def drain(self, stop: Stop) -> None:
        """Wait until all is acknowledged. Unavailable when it is stopped before."""
        while not self.is_done:
            if self._facts.is_waiting:
                self._flush(last=True)
            self.every_second()
            if stop.wait(0.05):
                raise Unavailable("It was stopped before all was sent; the rest waits in the spool. Run it again.")

    def close(self) -> None:
        """Give all descriptors back."""
        self._agent.close()

    def every_second(self, *, last: bool = False) -> None:
        """Let the spools do what is due, save what was acknowledged, say how it is going."""
        now = self._clock()
        if now < self._next_second and not last:
            return
        self._next_second = now + SECOND_S
        if self._lost():
            self._agent.close()
            self._agent = self._start(is_whole=False)
            self._scans.again()
        for name, spool in self._spools.items():
            spool.tick()
            waiting = spool.messages_waiting
            self._metrics.lane_lag(name, waiting)
            self._metrics.spool(name, size_bytes=spool.size_bytes, messages=waiting)
        self._metrics.events("ok", self._facts.events - self._counted)
        self._counted = self._facts.events
        if now >= self._next_save or last:
            self._next_save = now + SAVE_S
            self._save()
        problems = [self._full, *(spool.problem for spool in self._spools.values()), self._emitter.problem]
        self._health.problem(next((problem for problem in problems if problem), None))

    # ---- inside

    def _scan(self) -> None:
        self._files = settings_first([*self._files, *map(str, self._agent.scan())])

    def _read(self, *, resting: bool = False) -> bool:
        """Read on, some files at a time, so that not all logs of a node are in memory at once; whether there is more now."""
        if not self._turn:
            self._turn.extend(self._files[at : at + SLICE_FILES] for at in range(0, len(self._files), SLICE_FILES))
        while self._turn and self._facts.taken <= MOST_TAKEN:
            facts, more = self._agent.poll(map(Path, self._turn.popleft()), resting=resting)
            self._facts.take(facts)
            self._more = self._more or more
        if self._turn:
            return True
        more, self._more = self._more, False
        return more

    def _flush(self, *, last: bool = False) -> None:
        self._next_flush = self._clock() + self._config.linger_s
        try:
            self._facts.flush()
            if last or self._facts.state_is_due():
                state = json.dumps({"version": STATE_VERSION, "agent": self._agent.state()}, separators=(",", ":"))
                if self._facts.put_state(state.encode()):
                    # the oldest will be acknowledged first, the newest holds most: those between are not needed
                    self._pending = [*self._pending[:1], _Pending(self._facts.last, state)]
            self._full = None
        except Unavailable as error:
            if self._full is None:
                self._log.warning(str(error))
            self._full = str(error)
        self._emitter.wake()

    def _start(self, *, is_whole: bool) -> Agent:
        """An agent that goes on where it may."""
        state = self._facts.last_state() if is_whole else None
        text = state.decode() if state is not None else self._loaded()
        saved: dict[str, Any] = json.loads(text) if text else {}
        if saved.get("version") != STATE_VERSION:
            saved = {}
        config = self._config
        agent = saved.get("agent") or {}
        self._files = list(agent.get("sources", ()))
        self._turn.clear()
        return Agent(
            config.watch,
            self._formats,
            node=config.name,
            state=agent,
            processes=config.processes and not self._once,
            exclude=(*config.exclude, str(config.folder), f"{config.folder}/*"),
            recent_s=config.recent_s,
            live=not self._once,
            now=_changed if self._once else lambda path: datetime.now(UTC),
        )

    def _loaded(self) -> str | None:
        saved = self._checkpoint.load()
        if self._checkpoint.problem:
            self._log.warning(self._checkpoint.problem)
        return str(saved["state"]) if saved and "state" in saved else None

    def _save(self) -> None:
        acked, idle = self._emitter.acked(FACT), not self._spools[FACT].messages_waiting
        done = [each for each in self._pending if idle or 0 < each.seq <= acked]
        if not done:
            return
        try:
            if done[-1].state != self._saved:
                # text in it: the losses of a training may be NaN, which a checkpoint does not take
                self._checkpoint.save({"state": done[-1].state})
                self._saved = done[-1].state
            self._pending = self._pending[len(done) :]
        except Unavailable as error:
            self._log.warning(str(error))

    def _lost(self) -> bool:
        """Say what the spools or Kafka did not keep. True when facts are damaged: they are still in the logs."""
        now, node = datetime.now(UTC), self._config.name
        found: list[tuple[str, int, int, int, int, Reason]] = []
        found += [(name, *each) for name, spool in self._spools.items() for each in spool.losses()]
        found += [(each.lane, each.seq, each.seq, 1, each.size_bytes, "too_large") for each in self._emitter.too_large()]
        for lane, first, last, messages, size_bytes, reason in found:
            self._metrics.dropped(reason, messages)
            self._log.warning("Messages are gone", lane=lane, messages=messages, reason=reason)
            self._facts.take([Loss(ts=now, node=node, source=lane, seq=first, last_seq=last, messages=messages,
                                   size_bytes=size_bytes, reason=reason)])  # fmt: skip
        return any(each[0] == FACT and each[-1] == "damaged" for each in found)

    def _refused(self, events: int, why: str) -> None:
        self._metrics.dropped("unsendable", events)
        self._log.warning("An event cannot be sent", why=why)


def _changed(path: Path) -> datetime:
    """When a file changed last: the time of all it says, when it is read afterwards."""
    try:
        return datetime.fromtimestamp(path.stat().st_mtime, UTC)
    except (OSError, ValueError, OverflowError):
        return datetime.now(UTC)


__all__ = ["STUCK_S", "Loop", "run"]
