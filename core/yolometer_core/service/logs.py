"""Logs of a service: one line an event on stderr, for a person or as JSON, without secrets and without floods."""

from __future__ import annotations

import logging
import os
import re
import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, MutableMapping
from importlib import import_module
from types import TracebackType
from typing import TYPE_CHECKING, Any, TextIO

from yolometer_core.service.hiding import hide, plain, scrub

if TYPE_CHECKING:
    from structlog.stdlib import BoundLogger

REPEAT_S = 60.0
MOST_REMEMBERED = 1000
OWN = "yolometer"
_CLIENTS = ("kafka", "aiokafka")
_COLOURS = {"warning": "\x1b[33m", "error": "\x1b[31m", "critical": "\x1b[31;1m"}
_PLAIN = "\x1b[0m"

_DIGITS = re.compile(r"\d+")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_EventDict = MutableMapping[str, Any]


def configure(service: str, *, json: bool = False, level: str = "INFO", repeat_s: float = REPEAT_S) -> None:
    """Log to stderr from now on: own lines from `level` on, those of libraries from WARNING on, through the same formatter.

    `json` writes one object a line. The same warning or error comes at most once in `repeat_s` seconds, with the count of
    those left out. Warnings of Python and exceptions that nobody caught are logged too. A stderr that is closed or whose
    reader is gone is no error: the lines are dropped.
    """
    structlog = _structlog()
    _keep_number_two()
    root = logging.getLogger()
    for old in [each for each in root.handlers if isinstance(each, _Stderr)]:
        root.removeHandler(old)
    root.addHandler(handler(service, json=json, repeat_s=repeat_s))
    root.setLevel(logging.WARNING)
    logging.getLogger(OWN).setLevel(level)
    logging.captureWarnings(True)
    sys.excepthook = _uncaught
    threading.excepthook = lambda args: _uncaught(args.exc_type, args.exc_value, args.exc_traceback)
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            structlog.stdlib.PositionalArgumentsFormatter(),
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        wrapper_class=structlog.stdlib.BoundLogger,
        logger_factory=structlog.stdlib.LoggerFactory(),
    )


def logger(part: str = "", **always: object) -> BoundLogger:
    """A logger of yolometer: `logger("sink").warning("The store is away", table="epochs")`. `always` stands in each line."""
    structlog = _structlog()
    found: BoundLogger = structlog.stdlib.get_logger(f"{OWN}.{part}" if part else OWN).bind(**always)
    return found


def handler(
    service: str,
    *,
    json: bool = False,
    stream: TextIO | None = None,
    repeat_s: float = REPEAT_S,
    clock: Callable[[], float] = time.monotonic,
) -> logging.Handler:
    """The handler behind `configure`, for a stream of its own (None: whatever stderr is at that time)."""
    structlog = _structlog()
    made = _Stderr(stream)
    last: list[Any] = [structlog.processors.JSONRenderer()] if json else [_one_line, _console(made.colours), _hidden]
    add = structlog.stdlib
    made.setFormatter(
        add.ProcessorFormatter(
            processors=[
                add.add_log_level,
                _no_trace_of_clients,
                _about(service),
                structlog.processors.TimeStamper(fmt="iso", utc=True),
                add.ProcessorFormatter.remove_processors_meta,
                structlog.processors.format_exc_info,
                _plain,
                *last,
            ],
        )
    )
    made.addFilter(Repeats(repeat_s, clock))
    return made


class Repeats(logging.Filter):
    """Lets the same warning or error of one logger through once in `seconds`; numbers in it do not make it another one.

    The next one that passes carries `left_out`, the count of those that did not. INFO and CRITICAL always pass.
    """

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._seconds, self._clock = seconds, clock
        self._said: OrderedDict[tuple[str, int, str], list[float]] = OrderedDict()  # when, and how many left out since
        self._lock = threading.Lock()

    def filter(self, record: logging.LogRecord) -> bool:
        if not logging.WARNING <= record.levelno < logging.CRITICAL:
            return True
        key = (record.name, record.levelno, _DIGITS.sub("0", _message(record)))
        now = self._clock()
        with self._lock:
            seen = self._said.get(key)
            if seen is not None and 0 <= now - seen[0] < self._seconds:
                seen[1] += 1
                return False
            self._said[key] = [now, 0]
            self._said.move_to_end(key)
            if len(self._said) > MOST_REMEMBERED:
                self._said.popitem(last=False)
        if seen is not None and seen[1]:
            record.left_out = int(seen[1])
        return True


class _Stderr(logging.Handler):
    """Writes whole lines; a stream that is gone is no error."""

    def __init__(self, stream: TextIO | None) -> None:
        super().__init__()
        self._stream = stream

    @property
    def colours(self) -> bool:
        stream = self._stream or sys.stderr
        try:
            return stream is not None and stream.isatty() and not os.environ.get("NO_COLOR")
        except ValueError:
            return False

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = self.format(record)
        except Exception:  # noqa: BLE001  # a line that cannot be made must not end what it reports
            where = f"A line of {record.module}, line {record.lineno}, could not be shown"
            line = self.format(logging.LogRecord(record.name, record.levelno, record.pathname, record.lineno, where, (), None))
        stream = self._stream or sys.stderr
        if stream is None:
            return
        try:
            stream.write(line.encode("utf-8", "backslashreplace").decode() + "\n")
            stream.flush()
        except (OSError, ValueError):
            pass  # closed, full, or its reader is gone: there is nobody to tell


def _structlog() -> Any:
    """structlog, imported without rich, which it takes along for coloured traces: an agent would carry 5 MiB all its life."""
    if "structlog" in sys.modules or "rich" in sys.modules:
        return import_module("structlog")
    sys.modules["rich"] = None  # type: ignore[assignment]  # so Python says that it is not there
    try:
        return import_module("structlog")
    finally:
        del sys.modules["rich"]


def _about(service: str) -> Callable[[Any, str, _EventDict], _EventDict]:
    def about(_: Any, __: str, event: _EventDict) -> _EventDict:
        record: logging.LogRecord = event["_record"]
        event["service"] = service
        event["logger"] = record.name
        if hasattr(record, "left_out"):
            event["left_out"] = record.left_out
        return event

    return about


def _no_trace_of_clients(_: Any, __: str, event: _EventDict) -> _EventDict:
    """A broker that is away is no fault of a program, but the clients of Kafka show where in them they noticed it."""
    if event["_record"].name.partition(".")[0] in _CLIENTS and isinstance(event.get("exc_info"), tuple):
        event["event"] = f"{event['event']}: {event.pop('exc_info')[1]!r}"
    return event


def _plain(_: Any, __: str, event: _EventDict) -> _EventDict:
    words = {key: event[key] for key in ("level", "service", "logger", "timestamp") if key in event}
    shown = plain({key: value for key, value in event.items() if key not in ("event", "exception", *words)})
    texts = {key: scrub(str(event[key])) for key in ("event", "exception") if key in event}
    # our own words stay what they are, also where somebody's password is one of them
    return {**(shown if isinstance(shown, dict) else {}), **texts, **words}


def _one_line(_: Any, __: str, event: _EventDict) -> _EventDict:
    """What a message holds must not look like a line of its own, nor steer the terminal."""
    event["event"] = _CONTROL.sub(_escaped, str(event.get("event", ""))).replace("\n", "\\n")
    if "exception" in event:
        event["exception"] = _CONTROL.sub(_escaped, str(event["exception"]))
    return event


def _escaped(found: re.Match[str]) -> str:
    return f"\\x{ord(found[0]):02x}"


def _hidden(_: Any, __: str, line: Any) -> str:
    return scrub(str(line))


def _console(colours: bool) -> Callable[[Any, str, _EventDict], str]:
    """One line for a person; without rich, see `_structlog`."""

    def line(_: Any, __: str, event: _EventDict) -> str:
        level, trace = str(event.pop("level", "")), event.pop("exception", None)
        colour = _COLOURS.get(level, "") if colours else ""
        head = f"{event.pop('timestamp', '')} {colour}[{level:<8}]{_PLAIN if colour else ''} {event.pop('event', ''):<30}"
        about = [f"[{event.pop('logger', '')}]", *(f"{key}={_shown(event[key])}" for key in sorted(event))]
        return " ".join([head, *about]) + (f"\n{trace}" if trace else "")

    return line


def _shown(value: Any) -> str:
    text = value if isinstance(value, str) else repr(value)
    return repr(text) if isinstance(value, str) and (not text or set(text) & set(" '\"=\n")) else text


def _message(record: logging.LogRecord) -> str:
    try:
        return str(record.msg.get("event")) if isinstance(record.msg, dict) else record.getMessage()
    except Exception:  # noqa: BLE001  # an argument that cannot be shown is the formatter's to report
        return record.msg if isinstance(record.msg, str) else record.module


def _uncaught(kind: type[BaseException], error: BaseException | None, trace: TracebackType | None) -> None:
    """The last line of a thread or of the process: an interrupt of a person is no fault."""
    if not issubclass(kind, KeyboardInterrupt | SystemExit):
        found = error if error is not None else kind()
        logging.getLogger(OWN).critical("It met an error that nobody expected", exc_info=(kind, found, trace))


def _keep_number_two() -> None:
    """When the process began without a stderr, the next file that is opened would get its number, and the words of C code."""
    try:
        os.fstat(2)
    except OSError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        if nowhere != 2:
            os.dup2(nowhere, 2)
            os.close(nowhere)


__all__ = ["Repeats", "configure", "handler", "hide", "logger"]
