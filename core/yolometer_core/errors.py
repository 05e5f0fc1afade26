"""The errors of yolometer: two words for failure, and nothing else.

YolometerError
├── Bad            never retried: the input is wrong and stays wrong (dead-lettered, counted)
│   ├── BadConfig      a setting is unknown, of the wrong type or out of range
│   ├── BadInput       a file, line, row or event cannot be understood
│   ├── BadUsage       the command was called in a way that cannot work
│   ├── BadDeploy      so many messages are refused that this version must not go on eating the stream
│   └── BadStore       the stored data contradicts what the program expects (damage, edited migration)
│       └── EmptyStore     the store is there and has no tables yet
└── Unavailable    retried with back-off: the outside world is not there right now, nothing is lost
    └── StoreUnavailable   a store is away, locked by another process, or out of space

Every message is one sentence that says what to do.
"""

from __future__ import annotations


class YolometerError(Exception):
    """Base of every error that yolometer raises on purpose; `str()` is one sentence for a person."""


class Bad(YolometerError):
    """Wrong now and wrong for ever: never retry it."""


class BadConfig(Bad):
    """A setting is unknown, of the wrong type or out of range."""


class BadInput(Bad):
    """A file, line, row or event cannot be understood."""


class BadUsage(Bad):
    """The command was called in a way that cannot work."""


class BadDeploy(Bad):
    """So many messages are refused that this version must stop, before it dead-letters the whole stream."""


class BadStore(Bad):
    """The store answers, but its content contradicts the program (damage, an edited migration)."""


class EmptyStore(BadStore):
    """The store is there and has no tables yet: a migration makes them."""


class Unavailable(YolometerError):
    """Not there right now: retry with back-off, nothing is lost."""


class StoreUnavailable(Unavailable):
    """A store is away, locked by another process, or out of space."""
