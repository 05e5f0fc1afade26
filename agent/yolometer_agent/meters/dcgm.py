"""DCGM: the page of a dcgm-exporter that runs on this node already, so that profiling counters need no second reader."""

from __future__ import annotations

import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from http.client import HTTPException
from typing import Any
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, field_validator

from yolometer_agent.meters._base import Device, Reading
from yolometer_agent.meters._dcgm_page import FOUND, Gpu, page_of
from yolometer_agent.meters._nvml_values import Values
from yolometer_agent.meters._nvml_words import Fault, GpuFacts, xid_words
from yolometer_core.errors import Unavailable

_MOST_BYTES = 16 * 2**20
_LIMIT_S = 5.0
_HERE = frozenset({"127.0.0.1", "::1", "localhost"})


class Dcgm(BaseModel):
    """Reads the page once in a period and gives one reading for each GPU on it.

    The exporter renews its page at its own pace (each 30 s unless it is told otherwise): a shorter period here reads the
    same numbers again. A GPU in MIG mode gives what is of the whole GPU; the page does not name the UUIDs of its MIG
    devices. The engine that ran and the memory interface that was busy (profiling) stand in for the two utilisations where
    those are not on the page. Whether a GPU is lost, and who computes on it, the page does not tell: None.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    url: str = Field(default="http://127.0.0.1:9400/metrics", description="the page of dcgm-exporter, on this node")
    period_s: float = Field(default=30.0, ge=1, le=300, description="seconds between samples; not less than the exporter's own")

    _values: dict[str, Values] = PrivateAttr(default_factory=dict)
    _facts: dict[str, GpuFacts] = PrivateAttr(default_factory=dict)
    _xids: dict[str, int] = PrivateAttr(default_factory=dict)
    _refused: Counter[str] = PrivateAttr(default_factory=Counter)
    _faults: list[Fault] = PrivateAttr(default_factory=list)

    @field_validator("url")
    @classmethod
    def _is_here(cls, url: str) -> str:
        """Another node's page would give this node GPUs it does not have."""
        parts = urlsplit(url)
        if parts.scheme != "http" or parts.hostname not in _HERE:
            raise ValueError("it must begin with http:// and name this node, for example http://127.0.0.1:9400/metrics")
        return url

    def sample(self, now: datetime) -> Sequence[Reading]:
        """What the page says now. Unavailable when there is none, or no GPU is on it."""
        text = self._fetched()
        gpus, bad = page_of(text)
        self._refused["line"] += bad
        if not gpus:
            raise Unavailable(f"The page {self.url} names no GPU; correct meters.dcgm.url, or see what dcgm-exporter logs.")
        now_s = time.monotonic()  # counters are judged by it; a wall clock can be set
        return [self._reading(uuid, gpu, now_s) for uuid, gpu in gpus.items()]

    def devices(self) -> list[GpuFacts]:
        """The GPUs that were on the page."""
        return list(self._facts.values())

    def faults(self) -> list[Fault]:
        """The XID errors that came since the last call."""
        found = self._faults[:]
        del self._faults[: len(found)]
        return found

    @property
    def refused(self) -> Mapping[str, int]:
        """By value: how many numbers no card can mean; under `line`, how many lines could not be read."""
        return {name: count for name, count in self._refused.items() if count}

    def _reading(self, uuid: str, gpu: Gpu, now_s: float) -> Reading:
        values = self._values.setdefault(uuid, Values(self._refused))
        said = {name: None if raw is None else values.known(name, raw, now_s) for name, raw in gpu.numbers.items()}
        source = "counter" if said.get("energy_j") is not None or self._source(uuid) else None
        total = said.get("memory_total_bytes")
        self._facts[uuid] = GpuFacts(uuid, gpu.model, None, None, None if total is None else int(total), gpu.driver_version,
                                     gpu.pci_bus_id, gpu.gpu_index, source)  # fmt: skip
        self._note_xid(uuid, gpu.xid)
        return Reading(Device(uuid=uuid, model=gpu.model, energy_source=source), {**dict.fromkeys(FOUND), **said})

    def _source(self, uuid: str) -> str | None:
        return self._facts[uuid].energy_source if uuid in self._facts else None

    def _note_xid(self, uuid: str, xid: int | None) -> None:
        """The page keeps the last error: what stands there at first is old, and the same again is not seen."""
        if xid is None:
            return
        before = self._xids.get(uuid, xid)
        self._xids[uuid] = xid
        if xid not in {0, before}:
            self._faults.append(Fault("xid", uuid, xid, xid_words(xid)))

    def _fetched(self) -> str:
        """The text of the page. Neither a proxy nor another address is asked for it, and it may not take for ever."""
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), _NoRedirect)
        until_s = time.monotonic() + _LIMIT_S
        parts: list[bytes] = []
        try:
            with opener.open(self.url, timeout=_LIMIT_S) as answer:
                while part := answer.read1(2**16):
                    parts.append(part)
                    if sum(map(len, parts)) > _MOST_BYTES or time.monotonic() > until_s:
                        raise Unavailable(f"The page {self.url} does not end; correct meters.dcgm.url.")
        except urllib.error.HTTPError as error:
            error.close()
            said = f"The page {self.url} was refused with {error.code}; correct meters.dcgm.url, or see what dcgm-exporter logs."
            raise Unavailable(said) from None
        except (OSError, HTTPException) as error:
            why = getattr(error, "reason", error)
            said = f"The page {self.url} cannot be read ({why}); start dcgm-exporter, or correct meters.dcgm.url."
            raise Unavailable(said) from None
        return b"".join(parts).decode("utf-8", "replace")


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        """An answer that leads elsewhere is an error."""


METER = Dcgm
