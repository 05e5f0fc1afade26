"""Mends of Faust: what it does wrong or too dearly, each with its reason. faust-streaming 0.15.3 was read for them.

The tests of the runner fail when a newer one behaves otherwise.
"""

from __future__ import annotations

import types
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import faust
from aiokafka.errors import IllegalStateError
from faust.tables.recovery import Recovery
from faust.transport.drivers import aiokafka as driver

_recovered = Recovery.on_recovery_completed


async def _recovered_and_quiet(self: Any, generation_id: int = 0) -> None:
    """Recovery resumes the partitions, then seeks, then clears the queues: what was fetched in between would be lost and
    committed past. So nothing is fetched until it has sought; the last step of recovery lets the flow go on."""
    self.app.consumer.stop_flow()
    await _recovered(self, generation_id)


Recovery.on_recovery_completed = _recovered_and_quiet  # type: ignore[method-assign]  # a mend, see there


class Producer(driver.Producer):
    """Faust knows idempotence only with transactions; without it a retry may put two batches of state out of order."""

    def _settings_extra(self) -> Mapping[str, Any]:
        return {"acks": "all", "enable_idempotence": True}


class Consumer(driver.Consumer):
    """Faust makes four tasks to hand over one message, so that it can give up when the flow is suspended meanwhile. Mostly
    the handing over does not wait at all, and then no task is needed; when it does wait, it goes on as Faust has it.

    What was fetched while the flow stood still is thrown away, and read again from where it was committed. The client passes
    over a partition without a commit: its first messages would be lost. So that one is read again from its beginning."""

    async def seek_to_committed(self) -> Any:
        committed = await super().seek_to_committed()
        # the changelog is never committed, and its recovery seeks for itself
        never = [tp for tp, offset in committed.items() if not offset and not self._is_changelog_tp(tp)]
        if never:
            with suppress(IllegalStateError):  # some went to another worker just now; after the rebalance it is sought again
                await self.seek_wait(await self.earliest_offsets(*never))
        return committed

    async def wait_first(self, *coros: Any, timeout: Any = None) -> Any:
        handing_over, *others = coros
        if timeout is None and others and hasattr(handing_over, "send"):
            try:
                waits_for = handing_over.send(None)
            except StopIteration:
                for other in others:
                    other.close()
                return None
            coros = _rest(handing_over, waits_for), *others
        return await super().wait_first(*coros, timeout=timeout)


async def _rest(begun: Any, waits_for: Any) -> None:
    """The rest of a coroutine that was begun and now waits."""
    await _resumed(begun, waits_for)


@types.coroutine
def _resumed(begun: Any, waits_for: Any) -> Any:
    try:
        while True:
            try:
                sent = yield waits_for
            except BaseException as error:  # noqa: BLE001  # also a cancellation goes where it was meant to go
                waits_for = begun.throw(error)
            else:
                waits_for = begun.send(sent)
    except StopIteration:
        return


class App(faust.App):
    """Writes no folders: the state lives in memory and in the changelog. Faust's own numbers are not kept: nobody reads them."""

    def _create_directories(self) -> None:
        pass

    def on_init_dependencies(self) -> Any:
        found = super().on_init_dependencies()
        self.sensors.remove(self.monitor)
        self.sensors.add(faust.Sensor())  # does nothing; without any Faust warns at each rebalance
        return found


class Worker(faust.Worker):
    """Leaves signals, logging and stdout to the service."""

    def install_signal_handlers(self) -> None:
        pass

    def _setproctitle(self, info: str, *, ident: str = "") -> None:
        pass

    def say(self, *_: Any, **__: Any) -> None:
        pass

    def on_init_dependencies(self) -> Any:
        self.spinner = None  # it hides and shows the cursor on stdout, also where that is a file
        return super().on_init_dependencies()
