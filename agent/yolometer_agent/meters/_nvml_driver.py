"""The way into NVML: opening and closing it, one call at a time with its time, and what its errors mean to us."""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import struct
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from yolometer_core.errors import Unavailable

T = TypeVar("T")


class NvmlError(Exception):
    """NVML refused a call; the class says what to do about it."""


class Never(NvmlError):
    """This card, or this driver, cannot answer that: do not ask again."""


class NotNow(NvmlError):
    """There is no answer at the moment; the value is unknown now."""


class Lost(NvmlError):
    """The GPU does not answer to anything: it fell off the bus, or waits for a reset."""


class Gone(NvmlError):
    """The driver went away under us: all handles are worthless, NVML is to be opened again."""


# by the numbers of nvmlReturn_t
_NEVER = frozenset({3, 4, 13, 22, 25, 26})  # not supported, no permission, no function, vGPU has no ECC, version, deprecated
_LOST = frozenset({15, 16})  # lost, reset required
_GONE = frozenset({1, 9, 12, 18})  # uninitialized, driver not loaded, library not found, versions differ

_OPENING = {
    4: "NVML may not be read; give the user of the agent access to /dev/nvidiactl and /dev/nvidia0, /dev/nvidia1, ...",
    9: "The NVIDIA driver is not loaded; load it (modprobe nvidia), the agent then goes on by itself.",
    12: "There is no libnvidia-ml.so.1 here; install the NVIDIA driver, or name that file with meters.nvml.library.",
    18: "The NVIDIA driver and its library are of different versions, as after an update; reboot the node, "
    "or restart the agent when the driver was loaded again.",
}
GONE = "The NVIDIA driver went away; load it again (modprobe nvidia) if it stays away, the agent then goes on by itself."


def fate(code: int) -> type[NvmlError] | None:
    """What a return code of NVML means; None for success."""
    if not code:
        return None
    return Never if code in _NEVER else Lost if code in _LOST else Gone if code in _GONE else NotNow


class Driver:
    """NVML, open. Made by one thread and used by that one; `call_seconds` may be read by any.

    Unavailable when it cannot be opened, with one sentence that says what to do.
    """

    def __init__(self, library: Path | None, times: dict[str, list[float]]) -> None:
        self._times = times
        self.nvml = _pynvml(library)
        self._error: type[Exception] = self.nvml.NVMLError
        try:
            self.nvml.nvmlInit()
        except self._error as error:
            code = getattr(error, "value", 999)
            said = f"NVML could not be opened ({error}); see what nvidia-smi says."
            raise Unavailable(_OPENING.get(code, said)) from None

    def close(self) -> None:
        """Let go of it. What it says to that does not matter: the driver can be gone already."""
        with contextlib.suppress(self._error):
            self.nvml.nvmlShutdown()

    def bound(self, name: str, *args: Any) -> Callable[[], Any]:
        """A function of NVML with its arguments: called, it measures its time and raises one of the errors above."""
        function = getattr(self.nvml, name, None)
        if function is None:
            return _missing
        spent = self._times.setdefault(name, [0, 0.0, 0.0])
        error_kind, clock = self._error, time.perf_counter

        def ask() -> Any:
            begun = clock()
            try:
                return function(*args)
            except error_kind as error:
                kind = fate(getattr(error, "value", 999)) or NotNow
                raise kind(f"{name}: {error}") from None
            finally:
                _note(spent, clock() - begun)

        return ask

    def bound_fields(self, handle: Any, keys: Sequence[tuple[int, int]]) -> Callable[[], list[tuple[int, float]]]:
        """`nvmlDeviceGetFieldValues` for these fields, each of a scope: for each the return code and the number.

        The binding makes the request anew for each call and has slow structures; this is the same function of the same
        library, with a request that is made once.
        """
        name = "nvmlDeviceGetFieldValues"
        function = getattr(getattr(self.nvml, "nvmlLib", None), name, None)
        if function is None:
            return _missing
        request = (ctypes.c_char * (_FIELD.size * len(keys)))()
        for at, (number, scope) in enumerate(keys):
            _FIELD.pack_into(request, at * _FIELD.size, number, scope, 0, 0, 0, 0, 0)
        count, pointer = ctypes.c_int(len(keys)), ctypes.byref(request)

        spent = self._times.setdefault(name, [0, 0.0, 0.0])
        clock, unpacked = time.perf_counter, _FIELD.iter_unpack

        def ask() -> list[tuple[int, float]]:
            begun = clock()
            kind = fate(function(handle, count, pointer))
            _note(spent, clock() - begun)
            if kind is not None:
                raise kind(name)
            return [(code, value if form == _UNSIGNED_64 else _number(form, value))
                    for _, _, _, _, form, code, value in unpacked(request)]  # fmt: skip

        return ask

    def ask(self, name: str, *args: Any) -> Any:
        """Call a function of NVML once."""
        return self.bound(name, *args)()

    def ask_or_none(self, name: str, *args: Any) -> Any:
        """The same; None where it has no answer."""
        try:
            return self.ask(name, *args)
        except (Never, NotNow):
            return None


def call_seconds(times: Mapping[str, list[float]]) -> dict[str, tuple[int, float, float]]:
    """How often each function was called, the seconds of all calls together, and of the longest."""
    # list() of a dictionary's items is one step for the interpreter, so another thread may add to it meanwhile
    return {name: (int(spent[0]), spent[1], spent[2]) for name, spent in list(times.items()) if spent[0]}


def _note(spent: list[float], took_s: float) -> None:
    """Add the time of one call: how many, all together, the longest."""
    spent[0] += 1
    spent[1] += took_s
    if took_s > spent[2]:  # noqa: PLR1730  # a call of max() costs more than all of this
        spent[2] = took_s


_FIELD = struct.Struct("=IIqqiiQ")
"""A field as it is asked and answered: its number, its scope, when, how long it took, the type, the return code, the value."""
_FORMS = "dIQQqiH"
"""How its value is kept, by its type: double, 32 and 64 bits without and with a sign, 16 bits."""
_UNSIGNED_32, _UNSIGNED_64 = 1, 3


def _number(form: int, value: int) -> float:
    """The number that was kept in these 8 bytes."""
    if form == _UNSIGNED_32:
        return value & 0xFFFFFFFF
    kind = _FORMS[form] if 0 <= form < len(_FORMS) else "Q"
    return struct.unpack_from(f"={kind}", value.to_bytes(8, sys.byteorder))[0]  # type: ignore[no-any-return]


def _missing() -> Any:
    raise Never("this version of nvidia-ml-py does not know it")


def _pynvml(library: Path | None) -> ModuleType:
    """The binding, with the library that was named: the loader then gives it that one, for it goes by the name inside."""
    try:
        pynvml = importlib.import_module("pynvml")  # it ships no types
    except ImportError:
        raise Unavailable("The package nvidia-ml-py is missing; install it, for example with pip.") from None
    if library is not None and pynvml.nvmlLib is None:
        try:
            ctypes.CDLL(str(library))
        except OSError as error:
            raise Unavailable(f"The library {library} of meters.nvml.library cannot be loaded ({error}); correct it.") from None
    return pynvml


__all__ = ["GONE", "Driver", "Gone", "Lost", "Never", "NotNow", "NvmlError", "call_seconds", "fate"]
