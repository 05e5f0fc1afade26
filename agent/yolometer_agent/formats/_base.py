"""What a log format is: it recognises content and folds records of bytes into facts. No IO, no clock."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

from yolometer_core.events import Fact, Role

State = dict[str, Any]


class Found(NamedTuple):
    """A fact as a format finds it: the class of the event, its fields, and which session of the source said it."""

    kind: type[Fact]
    fields: dict[str, Any]
    session: int = 0


@runtime_checkable
class Format(Protocol):
    """One log format. Stateless itself: everything it remembers is in `state`, which survives a JSON round trip.

    A *record* is what stands between two line ends, LF or CR, so every redraw of a progress bar is a record.
    Records are raw bytes (UTF-8, colours still in) without the line end. The facts must not depend on how the
    records were cut into calls, but for progress that a later call completes (docs/formats.md, "Chunks").
    """

    @property
    def role(self) -> Role:
        """What a source of this format is to its run: console, table or settings."""

    @property
    def whole_document(self) -> bool:
        """True: the file is replaced as a whole (YAML) and is given as one record each time it changes."""

    def recognise(self, head: str) -> int:
        """How sure it is that a file beginning with `head` (up to 64 KiB) is of this format: 0 no, 100 certain."""

    def start(self) -> State:
        """The state before the first byte."""

    def fold(self, state: State, records: Sequence[bytes]) -> list[tuple[int, Found]]:
        """Fold complete records into facts: (index of the record that says it, fact), in order. Changes `state`.

        Never raises on strange content: what means nothing says nothing. After the last record it may add the
        progress of an epoch that is still under way (index of the last record).
        """

    def peek(self, state: State, record: bytes) -> list[Found]:
        """What a record whose line end is not written yet already says for certain. Does not change `state`."""
