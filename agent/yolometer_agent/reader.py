"""Reader: one file from bytes to facts. Follows it, recognises its format, folds its records, and says where it stands."""

from __future__ import annotations

import codecs
import hashlib
import math
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from yolometer_agent.formats._base import Format, Found
from yolometer_agent.recognise import HEAD_BYTES, best_format, decide
from yolometer_agent.tail.follow import Follow
from yolometer_agent.tail.records import MAX_RECORD_BYTES
from yolometer_core.events import Fact, Progress, ResultRow, Role, SourceState

READ_BYTES = 1 << 18
LARGEST_DOCUMENT = 1 << 20
UNKNOWN = "It is no training log, table or settings file that yolometer knows."
_LARGEST = 1 << 40
"""More epochs, images, pixels or parameters than any training has: a damaged log, and more than the store can hold."""
_MAY_BE_NAN = frozenset({"map50", "map50_95", "top1"})
"""A training that diverged prints nan for these. (So it does for losses, which are lists and not looked into.)"""
_SLOTS = 8
"""`seq` is the position of a record's end times this, plus the number of the fact in the record."""


class Reader:
    """Turns one file into the facts of one source.

    `place` and `source` name what the facts are about; `now` gives the time of an observation. The facts depend on
    the bytes alone, not on how they arrived; only their `ts` is when they were seen.
    """

    def __init__(
        self,
        path: Path,
        formats: Mapping[str, Format],
        *,
        node: str,
        place: str,
        source: str,
        state: dict[str, Any] | None = None,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self.path = path
        self.place = place
        self.source = source
        self._node = node
        self._formats = formats
        self._now = now
        saved = state or {}
        self.format: str | None = saved.get("format")
        self._parser: dict[str, Any] = saved.get("parser", {})
        self._hopeless = bool(saved.get("hopeless"))
        self._document: list[Any] = saved.get("document", [0, ""])
        self._told: list[Any] = saved.get("told", [])
        self._follow = Follow(path, saved.get("follow"))
        self._peeked: list[Any] = []
        self._judged: tuple[tuple[int, ...], str | None] | None = None
        self.silent = False

    @property
    def problem(self) -> str | None:
        """Why the file or a part of it cannot be read, or says nothing; one sentence, None when all is well."""
        if self._follow.problem:
            return self._follow.problem
        if self.format is None:
            return UNKNOWN if self.silent else None
        passed = self._follow.long_records
        too_long = f"Lines longer than {MAX_RECORD_BYTES >> 10} KiB were passed over ({passed}); the rest was read."
        return too_long if passed else None

    @property
    def role(self) -> Role | None:
        return self._formats[self.format].role if self.format else None

    def poll(self) -> tuple[list[Fact], bool]:
        """(facts that are new, whether there may be more at once)."""
        if self.format and self._formats[self.format].whole_document:
            return self._read_document(), False
        batch = self._follow.poll(READ_BYTES)
        if batch is None:
            return [], False
        records, ends = batch.chunk.records, batch.chunk.ends
        if self.format is None:
            return self._recognise(batch.at_end, batch.fresh)
        fmt = self._formats[self.format]
        if batch.fresh and batch.incarnation and fmt.role == "table":
            # another file at the same path is another table; the console of a rotated log goes on
            self._parser = fmt.start()
        found = _slots(fmt.fold(self._parser, records))
        ts = self._now() if found or batch.chunk.remainder else None
        facts = _whole(self._fact(item, ends(at) * _SLOTS + slot, ts) for at, item, slot in found)
        facts += self._peek(fmt, batch.chunk.remainder, ts)
        return facts, not batch.at_end

    def state(self) -> dict[str, Any]:
        """Where to go on, as a JSON dict; to be saved after the facts were handed on."""
        follow = self._follow.state() if self.format or self._hopeless else None
        return {"format": self.format, "parser": self._parser, "follow": follow, "hopeless": self._hopeless,
                "document": self._document, "told": self._told}  # fmt: skip

    def close(self) -> None:
        self._follow.close()

    def look(self) -> str | None:
        """The format of the file by its head, without reading on; None when it is not known."""
        return self.format or self._decided()

    def _decided(self) -> str | None:
        """The format of the head; all formats look at it, so an unchanged file is not asked twice."""
        try:
            seen = self.path.stat()
        except OSError:
            return None
        stamp = (seen.st_dev, seen.st_ino, seen.st_size, seen.st_mtime_ns)
        if self._judged is None or self._judged[0] != stamp:
            self._judged = stamp, decide(self._formats, _head_records(self.path))
        return self._judged[1]

    def stands(self, open_for_writing: bool | None, *, digest: bool) -> list[Fact]:
        """What the agent knows of the source itself, if that changed since it was last said."""
        if self.format is None:
            return []
        size = _size(self.path)
        role = self._formats[self.format].role
        position = self._document[0] if role == "settings" else self._follow.position
        if [position, open_for_writing] == self._told[:2] and (not digest or self._told[2:] == [True]):
            return []
        self._told = [position, open_for_writing, digest]
        rank = {None: 0, True: 2, False: 4}[open_for_writing] + digest
        return [
            SourceState(ts=self._now(), node=self._node, source=self.source, seq=position * _SLOTS + rank,
                        place=self.place, role=role, format=self.format, path=str(self.path), size_bytes=size,
                        open_for_writing=open_for_writing,
                        digest=digest_of(self.path, size) if digest else None)
        ]  # fmt: skip

    def _recognise(self, at_end: bool, fresh: bool) -> tuple[list[Fact], bool]:
        """Look at the head until it is known; then read from the start. A head that says nothing is not looked at again."""
        if self._hopeless and not fresh:
            return [], False
        document = self._as_document()
        if document is not None:
            return document, False
        name = self._decided()
        if name is None:
            self._hopeless = _size(self.path) >= HEAD_BYTES
            self.silent = at_end or self._hopeless
            return [], False
        self.format, self._parser, self._hopeless = name, self._formats[name].start(), False
        self._follow.close()
        self._follow = Follow(self.path)
        return self.poll()

    def _as_document(self) -> list[Fact] | None:
        try:
            if self.path.stat().st_size > LARGEST_DOCUMENT:
                return None
            text = document_of(self.path)
        except OSError:
            return None
        found = best_format(self._formats, text.decode("utf-8", "replace"), whole=True)
        if found is None:
            return None
        self.format = found[0]
        return self._read_document()

    def _read_document(self) -> list[Fact]:
        if self.format is None:
            return []
        try:
            seen = self.path.stat()
            stamp = f"{seen.st_ino}/{seen.st_size}/{seen.st_mtime_ns}"
            if stamp == self._document[1] or seen.st_size > LARGEST_DOCUMENT:
                return []
            text = document_of(self.path)
        except OSError:
            return []
        self._document = [self._document[0] + 1, stamp]
        fmt = self._formats[self.format]
        version = self._document[0]
        return _whole(
            self._fact(found._replace(session=version - 1), version * _SLOTS + slot)
            for _, found, slot in _slots(fmt.fold(fmt.start(), [text]))
        )

    def _peek(self, fmt: Format, remainder: bytes, ts: datetime | None) -> list[Fact]:
        if not remainder:
            return []
        found = fmt.peek(self._parser, remainder)
        said = [[item.kind.__name__, item.fields] for item in found]
        if said == self._peeked:
            return []
        self._peeked = said
        # as if its end came now: when it does, the same fact has the same number and is not told again
        at = (self._follow.position + len(remainder) + 1) * _SLOTS + 1
        return _whole(self._fact(item, at + slot, ts) for slot, item in enumerate(found[: _SLOTS - 1]))

    def _fact(self, found: Found, seq: int, ts: datetime | None = None) -> Fact | None:
        """The fact, without values that no training can mean; None when what is left is no fact."""
        fields = {name: value for name, value in found.fields.items() if _can_be(name, value)}
        said = {"ts": ts or self._now(), "node": self._node, "source": self.source, "seq": seq, "place": self.place,
                "session": found.session, **fields}  # fmt: skip
        try:
            return found.kind.model_validate(said)
        except ValidationError as error:
            wrong = {str(mistake["loc"][0]) for mistake in error.errors(include_input=False, include_url=False) if mistake["loc"]}
        try:
            # one field that is damaged does not take the others with it
            return found.kind.model_validate({name: value for name, value in said.items() if name not in wrong})
        except ValidationError:
            return None


def _can_be(name: str, value: Any) -> bool:
    """Whether a training can mean a value: no number larger than any column, and NaN only where a diverged training says it."""
    if isinstance(value, float):
        return math.isfinite(value) or name in _MAY_BE_NAN
    return not isinstance(value, int) or -_LARGEST <= value <= _LARGEST


def _whole(facts: Iterable[Fact | None]) -> list[Fact]:
    return [fact for fact in facts if fact is not None]


def _slots(found: list[tuple[int, Found]]) -> list[tuple[int, Found, int]]:
    """Number the facts of one record from 1, so that each has a `seq` of its own (0 is for what a peek says)."""
    numbered: list[tuple[int, Found, int]] = []
    last, slot = -1, 0
    for at, item in found:
        slot = slot + 1 if at == last else 1
        last = at
        numbered.append((at, item, min(slot, _SLOTS - 1)))
    return numbered


def _head_records(path: Path) -> list[bytes]:
    """The complete records of the head of a file."""
    follow = Follow(path)
    try:
        batch = follow.poll(HEAD_BYTES)
        return list(batch.chunk.records) if batch else []
    finally:
        follow.close()


def document_of(path: Path) -> bytes:
    """A whole file as UTF-8, whatever its byte order mark says it was written in. OSError when it cannot be read."""
    raw = path.read_bytes()
    if raw.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return raw.decode("utf-16", "replace").encode()
    return raw.removeprefix(codecs.BOM_UTF8)


def has_epoch(path: Path, fmt: Format, longest_bytes: int = 1 << 25) -> bool:
    """Whether a file tells of at least one whole epoch (or, where there are none, of an iteration)."""
    with Follow(path) as follow:
        state = fmt.start()
        while (batch := follow.poll(READ_BYTES)) is not None:
            for _, found in fmt.fold(state, batch.chunk.records):
                said = found.fields
                whole = said.get("iterations_done") == said.get("iterations_total") or said.get("epoch") is None
                if found.kind is ResultRow or (found.kind is Progress and whole):
                    return True
            if batch.at_end or batch.size_bytes > longest_bytes:
                break
    return False


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def digest_of(path: Path, size_bytes: int | None = None) -> str | None:
    """Digest of the content of a file, or of its first bytes; None when it cannot be read, is empty, or has fewer."""
    found = hashlib.blake2b(digest_size=16)
    left = _size(path) if size_bytes is None else size_bytes
    try:
        with path.open("rb") as file:
            while left > 0 and (block := file.read(min(left, READ_BYTES))):
                found.update(block)
                left -= len(block)
            return found.hexdigest() if file.tell() and left <= 0 else None
    except OSError:
        return None
