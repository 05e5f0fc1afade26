"""Some wants of one card, read together: what it cannot answer is asked another way, and in the end not any more."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from yolometer_agent.meters._nvml_driver import Driver, Gone, Lost, Never, NotNow, fate
from yolometer_agent.meters._nvml_values import SENTINELS, Values
from yolometer_agent.meters._nvml_wants import Call, Fields, Want

_INVALID_ARGUMENT = 2
Key = tuple[int, int]
"""A field, and for which link."""


class Chain:
    """One want of one card, at the way it is asked at the moment; `way` is None when there is no other."""

    def __init__(self, want: Want, driver: Driver, handle: Any, links: int) -> None:
        self.names = want.names
        self._ways, self._driver, self._handle, self._links = list(want.ways), driver, handle, links
        self.way: Call | Fields | None = None
        self.ask: Callable[[], Any] | None = None
        self.keys: list[Key] = []
        self.advance()

    def leave(self, keys: list[Key]) -> None:
        """Do not ask for these fields any more, but for the others; without others, go on to the next way."""
        self.keys = [key for key in self.keys if key not in keys]
        if not self.keys:
            self.advance()

    def advance(self) -> None:
        """Go on to the next way that can be asked at all."""
        self.way, self.ask, self.keys = None, None, []
        while self._ways and self.way is None:
            way = self._ways.pop(0)
            if isinstance(way, Call):
                self.way, self.ask = way, self._driver.bound(way.function, self._handle, *way.args)
            else:
                self.keys = [(number, link) for number in way.ids for link in (range(self._links) if way.per_link else (0,))]
                self.way = way if self.keys else None


class _Prepared(NamedTuple):
    calls: list[Chain]
    fields: list[Chain]
    ask: Callable[[], list[tuple[int, float]]] | None


class Group:
    """Reads its wants with as few calls as there can be: all fields in one. Lost and Gone pass through."""

    def __init__(self, wants: Iterable[Want], driver: Driver, handle: Any, values: Values, links: int = 0) -> None:
        self._driver, self._handle, self._values = driver, handle, values
        self._chains = {want.names: Chain(want, driver, handle, links) for want in wants}
        self._prepared = self._prepare(self._chains.values())

    def alive(self) -> bool:
        """Whether there is anything that can still be asked."""
        return any(chain.way is not None for chain in self._chains.values())

    def can(self, want: Want) -> bool:
        """Whether there is still a way to ask for this."""
        chain = self._chains.get(want.names)
        return chain is not None and chain.way is not None

    def read(self, into: dict[str, float | None], now_s: float) -> None:
        """Ask for everything, and put what is known into `into`; what is not known now is left as it is there."""
        moved = self._pass(self._prepared, into, now_s)
        if not moved:
            return
        while moved:
            moved = self._pass(self._prepare(moved), into, now_s)
        self._prepared = self._prepare(self._chains.values())

    def _prepare(self, chains: Iterable[Chain]) -> _Prepared:
        calls = [chain for chain in chains if chain.ask is not None]
        fields = [chain for chain in chains if chain.keys]
        keys = [key for chain in fields for key in chain.keys]
        ask = self._driver.bound_fields(self._handle, keys) if keys else None
        return _Prepared(calls, fields, ask)

    def _pass(self, prepared: _Prepared, into: dict[str, float | None], now_s: float) -> list[Chain]:
        """Ask once; returns the chains that have to be asked another way."""
        moved = []
        known = self._values.known
        for chain in prepared.calls:
            try:
                numbers = chain.way.pick(chain.ask())  # type: ignore[union-attr, misc]  # a chain with `ask` is at a Call
            except Never:
                chain.advance()
                moved.append(chain)
            except NotNow:
                pass
            else:
                for name, number in zip(chain.names, numbers, strict=True):
                    into[name] = known(name, number, now_s)
        return moved + self._pass_fields(prepared, into, now_s)

    def _pass_fields(self, prepared: _Prepared, into: dict[str, float | None], now_s: float) -> list[Chain]:
        if prepared.ask is None:
            return []
        try:
            answers = prepared.ask()
        except Never:
            for chain in prepared.fields:
                chain.advance()
            return prepared.fields
        except NotNow:
            return []
        moved, at = [], 0
        for chain in prepared.fields:
            count = len(chain.keys)
            code, number = answers[at] if count == 1 else _sum(answers[at : at + count])
            if not code:
                name = chain.names[0]
                into[name] = self._values.known(name, number, now_s)
            else:
                never = [key for key, answer in zip(chain.keys, answers[at : at + count], strict=True) if _is_never(answer[0])]
                if never:
                    chain.leave(never)
                    moved.append(chain)
            at += count
        return moved


def _sum(answers: list[tuple[int, float]]) -> tuple[int, float]:
    """Some fields as one: their sum, or a sentinel among them, or what went wrong with one of them."""
    code = next((code for code, _ in answers if code), 0)
    bad = next((number for _, number in answers if number in SENTINELS), None)
    return code, sum(number for _, number in answers) if bad is None else bad


def _is_never(code: int) -> bool:
    """Whether a field cannot be had here. A driver that does not know the field calls it an invalid argument."""
    if code == _INVALID_ARGUMENT:
        return True
    kind = fate(code)
    if kind is Lost or kind is Gone:
        raise kind(f"nvmlDeviceGetFieldValues: a field returned {code}")
    return kind is Never


__all__ = ["Group"]
