"""Agent: finds the sources of a node, reads them, and gives their facts. Keeps a small state; never writes to a source."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from yolometer_agent.attribute._base import Known
from yolometer_agent.formats._base import Format
from yolometer_agent.places import KnownSource, copies, folder_of, folder_of_place, home_of, place_of, standing_of
from yolometer_agent.reader import Reader, digest_of, has_epoch
from yolometer_agent.tail.discover import find
from yolometer_agent.tail.writers import Writers, writers
from yolometer_core.events import Fact, Incident, Progress, ResultRow, Setting

QUIET_S = 900.0
"""Where not all processes can be looked at, a log that none is seen to write is closed after so long without a change."""


@dataclass
class _Source:
    """A reader, and the facts it gave while its place was still open."""

    reader: Reader
    settled: bool
    unasked: bool = False
    """Nobody named it: it was found because a process writes it."""
    held: list[Fact] = field(default_factory=list)
    quiet: int = 0
    rest: int = 0


class Agent:
    """Watches `patterns` (files, folders, globs), and with `processes` also the files that running processes write.

    `recent_s`: while it watches (`live`), a log that grew so lately counts as written though no process holds it open, for
    some trainers append and close.

    The order of side effects of one round:
    1. `scan` (now and then) finds new files and who writes what.
    2. `poll` reads what is new and gives facts.
    3. The caller hands the facts on, and only then saves `state()`.
    """

    def __init__(
        self,
        patterns: Sequence[str],
        formats: Mapping[str, Format],
        *,
        node: str,
        state: dict[str, Any] | None = None,
        known: Iterable[KnownSource] = (),
        processes: bool = False,
        keep_copies: bool = False,
        live: bool = True,
        exclude: Sequence[str] = (),
        recent_s: float = 30.0,
        now: Callable[[Path], datetime] = lambda path: datetime.now(UTC),
        look: Callable[[], Writers] = writers,
    ) -> None:
        saved = state or {}
        self.node = node
        self.skipped: dict[str, str] = dict(saved.get("skipped", {}))
        # absolute, so that a change of the working directory changes nothing
        self._patterns = [os.path.normpath(Path(pattern).expanduser().absolute()) for pattern in patterns]
        self._formats = formats
        self._known = list(known)
        self._processes = processes
        self._keep_copies = keep_copies
        self._live = live
        self._exclude = exclude
        self._recent_s = recent_s
        self._now = now
        self._look = look
        self._writers: Writers | None = None
        self._declared: dict[str, list[str]] = {key: list(value) for key, value in saved.get("declared", {}).items()}
        self._sources: dict[str, _Source] = {}
        self.copied: dict[str, str] = dict(saved.get("copied", {}))
        self._places: dict[str, str] = dict(saved.get("places", {}))
        self._seen_folders: set[str] = set(saved.get("folders", ()))
        for path, entry in saved.get("sources", {}).items():
            reader = self._reader(Path(path), entry["place"], entry["source"], entry["reader"])
            self._sources[path] = _Source(reader, settled=True)

    @property
    def sources(self) -> int:
        """How many files are followed."""
        return len(self._sources)

    def scan(self) -> list[Path]:
        """Find new files and look who writes; returns the files that are new."""
        self._writers = self._look()
        found = find(self._patterns, exclude=self._exclude) if self._patterns else None
        paths = list(found.files) if found else []
        named = {str(path) for path in paths}
        for what, why in found.skipped if found else []:
            self.skipped[what] = why
        if self._processes:
            paths += [opened.path for opened in self._writers.open_files()]
        new = [path for path in dict.fromkeys(paths) if str(path) not in self._sources and str(path) not in self.copied]
        self._name_places(new)
        for path in new:
            self._sources[str(path)] = _Source(
                self._reader(path, self._place(folder_of(path)), path.name, None), settled=False, unasked=str(path) not in named
            )  # fmt: skip
        self._set_copies_aside(new)
        return new

    def _name_places(self, new: list[Path]) -> None:
        folders: dict[Path, list[Path]] = {}
        for path in new:
            folders.setdefault(folder_of(path), []).append(path)
        for folder, members in folders.items():
            if str(folder) not in self._places:
                self._places[str(folder)] = standing_of(place_of(self.node, folder), members, self._known)

    def _place(self, folder: Path) -> str:
        return self._places.get(str(folder)) or place_of(self.node, folder)

    def poll(self, paths: Iterable[Path] | None = None, *, resting: bool = False) -> tuple[list[Fact], bool]:
        """(new facts of all sources or of `paths`, whether there may be more at once). Settings come first.

        A file that has been quiet for long is looked at less often; with `resting` it is looked at all the same.
        """
        facts: list[Fact] = []
        more = False
        for name in settings_first(self._followed_of(paths)):
            source = self._sources[name]
            source.rest = 0 if resting else max(source.rest - 1, 0)
            if source.rest:
                continue
            found, again = source.reader.poll()
            more = more or again
            source.quiet = 0 if found or again else source.quiet + 1
            source.rest = min(source.quiet // 40, 16)
            facts += self._settle(source, found, ended=not again)
        return facts, more

    def stands(self, paths: Iterable[Path] | None = None, *, digest: bool = False) -> list[Fact]:
        """What changed about the sources themselves: whether they are written, and how much there is of them.

        With `digest` it is the last word for now: what no process holds open is not written.
        """
        facts: list[Fact] = []
        for name in self._followed_of(paths):
            source = self._sources[name]
            if source.settled and source.reader.format:
                facts += source.reader.stands(self._open(source.reader, strict=digest), digest=digest)
        return facts

    def _followed_of(self, paths: Iterable[Path] | None) -> list[str]:
        """The names of the files that are followed: all, or those of `paths`."""
        return list(self._sources) if paths is None else [str(path) for path in paths if str(path) in self._sources]

    def format_of(self, path: Path) -> str | None:
        """The format of a file that is followed; None when it is not known (yet)."""
        source = self._sources.get(str(path))
        return source.reader.format if source else None

    def problem_of(self, path: Path) -> str | None:
        """One sentence on why a file says nothing, or cannot be read."""
        source = self._sources.get(str(path))
        return source.reader.problem if source else self.skipped.get(str(path))

    def known(self) -> tuple[Known, ...]:
        """The places whose files are followed, as attribution asks for them: folder, files, and who writes them."""
        files: dict[str, set[str]] = {}
        pids: dict[str, set[int]] = {}
        for source in self._sources.values():
            reader = source.reader
            if not source.settled or reader.format is None:
                continue
            files.setdefault(reader.place, set()).add(os.path.realpath(reader.path))
            with contextlib.suppress(OSError):
                seen = reader.path.stat()
                writing = self._writers.pids.get((seen.st_dev, seen.st_ino), frozenset()) if self._writers else frozenset()
                pids.setdefault(reader.place, set()).update(writing)
        return tuple(
            Known(place, folder_of_place(place, self.node), tuple(sorted(paths)), frozenset(pids.get(place, ())))
            for place, paths in sorted(files.items())
        )

    def forget(self, paths: Iterable[Path]) -> None:
        """Stop following files that were read to their end."""
        for path in paths:
            source = self._sources.pop(str(path), None)
            if source:
                source.reader.close()

    def state(self) -> dict[str, Any]:
        """All that is needed to go on, as a JSON dict."""
        return {
            "sources": {
                name: {"place": source.reader.place, "source": source.reader.source, "reader": source.reader.state()}
                for name, source in self._sources.items()
                if source.settled
            },
            "declared": self._declared,
            "copied": self.copied,
            "places": self._places,
            "folders": sorted(self._seen_folders),
            "skipped": self.skipped,
        }

    def close(self) -> None:
        """Give all descriptors back."""
        for source in self._sources.values():
            source.reader.close()

    def _reader(self, path: Path, place: str, source: str, state: dict[str, Any] | None) -> Reader:
        return Reader(path, self._formats, node=self.node, place=place, source=source, state=state, now=lambda: self._now(path))

    def _settle(self, source: _Source, found: list[Fact], ended: bool) -> list[Fact]:
        """Hand facts on once the place is sure: at once, but for a console that has not named its directory yet."""
        reader = source.reader
        if source.settled or reader.format is None:
            self._declare(reader, found)
            source.settled = source.settled or reader.format is not None
            return found
        source.held += found
        if reader.role != "console":
            return self._at(source, None)
        named = next((fact.save_dir for fact in source.held if isinstance(fact, Setting) and fact.save_dir), None)
        begun = any(isinstance(fact, Progress | Incident | ResultRow) for fact in source.held)
        if source.unasked and begun and not any(map(_opens, source.held)):
            # somebody looks at a log (tail, less, a pager's copy): the training itself is told elsewhere
            self.copied[str(reader.path)] = ""
            self.forget([reader.path])
            return []
        if named is None and not begun and (not ended or self._open(reader) is not False):
            return []
        home = home_of(reader.path, named, self._declared, self._working_dir(reader.path)) if named else None
        return self._at(source, home)

    def _at(self, source: _Source, home: Path | None) -> list[Fact]:
        """The place is known: give the facts held so far."""
        reader = source.reader
        if home is not None and home != folder_of(reader.path):
            reader.place, reader.source = self._place(home), str(reader.path)
        source.settled = True
        held = [fact.model_copy(update={"place": reader.place, "source": reader.source}) for fact in source.held]
        source.held = []
        self._declare(reader, held)
        return held

    def _declare(self, reader: Reader, facts: list[Fact]) -> None:
        for fact in facts:
            if isinstance(fact, Setting) and fact.role == "settings" and fact.save_dir:
                folders = self._declared.setdefault(fact.save_dir.rstrip("/\\"), [])
                folder = str(folder_of(reader.path))
                if folder not in folders:
                    folders.append(folder)

    def _open(self, reader: Reader, *, strict: bool = False) -> bool | None:
        """Whether a console is still written; None for other sources and where it cannot be told. `strict`: held open now."""
        if reader.role != "console" or self._writers is None:
            return None
        try:
            seen = reader.path.stat()
        except OSError:
            return False
        if (seen.st_dev, seen.st_ino) in self._writers.pids:
            return True
        age_s = datetime.now(UTC).timestamp() - seen.st_mtime
        if self._live and not strict and 0 <= age_s < self._recent_s:
            return True
        return False if self._writers.complete or age_s > QUIET_S else None

    def _working_dir(self, path: Path) -> Path | None:
        """Where the process was started that writes a log: what its relative names start from."""
        if self._writers is None:
            return None
        try:
            seen = path.stat()
            pid = min(self._writers.pids.get((seen.st_dev, seen.st_ino), ()), default=None)
            return (self._writers.proc / str(pid) / "cwd").readlink() if pid is not None else None
        except OSError:
            return None

    def _set_copies_aside(self, new: list[Path]) -> None:
        """Copies of a directory that is known are not read: they would count its training twice."""
        folders: dict[Path, list[Path]] = {}
        for path in new:
            if str(path.parent) not in self._seen_folders:
                folders.setdefault(path.parent, []).append(path)
        self._seen_folders |= {str(folder) for folder in folders}
        if self._keep_copies or not (self._known or len(folders) > 1 or len(self._seen_folders) > len(folders)):
            return
        mains = {
            folder: [] if any(map(self._is_written, members)) else [path for path in members if self._is_main(path)]
            for folder, members in folders.items()
        }
        known = self._known + self._followed(set(folders))
        twins = copies(mains, known, lambda item: place_of(self.node, item.resolve()), earlier=not self._live)
        for folder, twin in twins.items():
            for path in folders[folder]:
                self.copied[str(path)] = twin
                original = twin.partition(":")[2]
                self.skipped[str(path)] = f"It is a copy of {original} and would count twice; --keep-copies counts it."
                self.forget([path])

    def _followed(self, but: set[Path]) -> list[KnownSource]:
        return [
            KnownSource(source.reader.place, name, digest, 0)
            for name, source in self._sources.items()
            if source.reader.path.parent not in but
            and source.reader.role in ("console", "table")
            and (digest := digest_of(source.reader.path))
        ]

    def _is_main(self, path: Path) -> bool:
        """A log or a table that tells of an epoch: those of trainings that only began may be alike and yet be two."""
        reader = self._sources[str(path)].reader
        name = reader.look()
        if name is None or self._formats[name].role not in ("console", "table"):
            return False
        return has_epoch(path, self._formats[name])

    def _is_written(self, path: Path) -> bool:
        """Whether a process is seen to write a file: then it is no copy, however alike it still is to another one."""
        try:
            seen = path.stat()
        except OSError:
            return False
        return self._writers is not None and (seen.st_dev, seen.st_ino) in self._writers.pids


def is_settings(name: str) -> bool:
    """Whether a file is one of settings, by its name. They say by what name a directory that was moved is known."""
    return name.endswith((".yaml", ".yml"))


def settings_first(names: Iterable[str]) -> list[str]:
    """The names in an order in which they can be read: settings first, the others as they come."""
    return sorted(names, key=lambda name: not is_settings(name))


def _opens(fact: Fact) -> bool:
    """Whether a fact is of the beginning of a training: what it trains, where, or that it starts."""
    return isinstance(fact, Setting) and bool(fact.save_dir or fact.model or fact.started)
