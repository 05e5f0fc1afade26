"""Discovery of sources: the files that names, folders and globs stand for."""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

_WEIGHTS = ".pt .pth .onnx .engine .weights .safetensors .torchscript .tflite .mlmodel .mlpackage .pb .bin .ckpt .h5 .pkl"
_PICTURES = ".jpg .jpeg .png .bmp .tif .tiff .gif .webp .heic .dng .pfm .svg .pdf .mp4 .avi .mov .mkv .webm"
_ARCHIVES = ".zip .tar .gz .tgz .bz2 .xz .zst .7z .rar .npy .npz .cache .parquet .arrow .db .sqlite .lmdb .mdb"
_PROGRAMS = ".so .o .a .dll .whl .py .pyc .pyi .ipynb .md .html .css .js .c .cc .cpp .cu .h .sh"
NEVER_LOGS = frozenset(f"{_WEIGHTS} {_PICTURES} {_ARCHIVES} {_PROGRAMS}".split())
NEVER_FOLDERS = frozenset({".git", ".hg", ".svn", "__pycache__", ".ipynb_checkpoints", "node_modules", "site-packages"})
_MAGIC = re.compile(r"[*?[]")
_DIGITS = re.compile(r"(\d+)")

Directory = tuple[int, int]


class Found(NamedTuple):
    """The files, in natural order, and what was left out: (path or pattern, one sentence why)."""

    files: list[Path]
    skipped: list[tuple[str, str]]


def find(patterns: Sequence[str | Path], *, max_files: int = 100_000, exclude: Sequence[str] = ()) -> Found:
    """Find the regular files that `patterns` name: files, folders (walked to the bottom) or globs (`**` and `~` too).

    A file reached by two ways is listed once, under its real name if one of the ways is that, and every folder is
    walked once however many links lead to it. Walking silently passes over what cannot be a log by its suffix or
    folder, and over names or paths that match a pattern of `exclude` (`*`, `?`, `[]`); a file that is named outright
    is always taken. Never raises OSError: what cannot be read, and a pattern that matches nothing, is in `skipped`.
    """
    search = _Search(max_files, tuple(exclude))
    for pattern in patterns:
        search.pattern(str(pattern))
    search.links()
    return Found(sorted(search.files.values(), key=natural), search.skipped)


def natural(path: str | Path) -> tuple[object, ...]:
    """Sort key of a path: `train2.log` after `train.log` and before `train10.log`."""
    return tuple((_natural_name(part), part) for part in str(path).split("/"))


@lru_cache(maxsize=8192)
def _natural_name(name: str) -> tuple[object, ...]:
    stem, dot, suffix = name.rpartition(".")
    pieces = _DIGITS.split(stem if dot and stem else name)
    return tuple((0, int(piece), "") if at % 2 else (1, 0, piece) for at, piece in enumerate(pieces) if piece), suffix


class _Search:
    def __init__(self, max_files: int, exclude: tuple[str, ...]) -> None:
        self.files: dict[str, Path] = {}
        self._skipped: dict[tuple[str, str], None] = {}
        self._said = 0
        self._max_files = max_files
        self._exclude = exclude
        self._walked: set[Directory] = set()
        self._links: list[Path] = []
        self._full = False

    @property
    def skipped(self) -> list[tuple[str, str]]:
        return list(self._skipped)

    def pattern(self, pattern: str) -> None:
        path = Path(pattern).expanduser() if pattern.startswith("~") else Path(pattern)
        before = len(self.files), self._said, len(self._links)
        known = False
        if os.path.lexists(path):
            named = [path]
        elif _MAGIC.search(str(path)):
            named = list(self._expand(Path(path.anchor or "."), path.parts[1 if path.anchor else 0 :]))
        else:
            named = []
        for one in named:
            known |= self._take(one, walking=one != path)
        if not known and before == (len(self.files), self._said, len(self._links)):
            why = "holds no file that could be a log" if named == [path] else f"nothing matches {pattern}"
            self._skip(pattern, why)

    def links(self) -> None:
        """Walk the linked folders last, so that a file is known by its real name first."""
        while self._links:
            self._walk(self._links.pop(0))

    def _take(self, path: Path, *, walking: bool) -> bool:
        """Take a file or walk a folder; True when it, or a file in it, was known or is taken now."""
        try:
            seen = path.stat()
        except OSError as error:
            self._fail(path, error)
            return False
        if stat.S_ISDIR(seen.st_mode):
            known = (seen.st_dev, seen.st_ino) in self._walked
            if walking and path.is_symlink():
                self._links.append(path)
                return True
            return known or self._walk(path)
        if walking and self._never(path.name, str(path)):
            return False
        return self._add(path, os.path.realpath(path), seen.st_mode)

    def _walk(self, top: Path) -> bool:
        """Walk a folder and its real subfolders; links to folders wait. True when a file was taken or known."""
        known, waiting, real_of = False, [top], {top: os.path.realpath(top)}
        while waiting and not self._full:
            folder = waiting.pop()
            real = real_of.pop(folder)
            try:
                seen = folder.stat()
                if (seen.st_dev, seen.st_ino) in self._walked:
                    continue
                self._walked.add((seen.st_dev, seen.st_ino))
                with os.scandir(folder) as listing:
                    entries = sorted(listing, key=lambda entry: entry.name)
            except OSError as error:
                self._fail(folder, error)
                continue
            names = {entry.name for entry in entries}
            for entry in entries:
                path = folder / entry.name
                try:
                    if entry.is_dir():
                        if entry.name in NEVER_FOLDERS or self._excluded(entry.name, entry.path):
                            continue
                        # YOLO data sets: one .txt per picture, a hundred thousand of them.
                        if entry.name == "labels" and "images" in names:
                            continue
                        if entry.is_symlink():
                            self._links.append(path)
                        else:
                            waiting.append(path)
                            real_of[path] = os.path.join(real, entry.name)  # noqa: PTH118 - hot: one for each file
                    elif not self._never(entry.name, entry.path):
                        link = entry.is_symlink()
                        target = os.path.realpath(path) if link else os.path.join(real, entry.name)  # noqa: PTH118
                        mode = stat.S_IFREG if not link and entry.is_file(follow_symlinks=False) else path.stat().st_mode
                        known |= self._add(path, target, mode)
                except OSError as error:
                    self._fail(path, error)
        return known

    def _add(self, path: Path, real: str, mode: int) -> bool:
        if not stat.S_ISREG(mode):
            self._skip(path, "it is a pipe, a socket or a device, not a regular file")
            return False
        if not os.access(path, os.R_OK):
            self._skip(path, "it cannot be read: permission denied")
            return False
        if real in self.files:
            if str(path) == real:
                self.files[real] = path
            return True
        if len(self.files) >= self._max_files:
            if not self._full:
                self._skip(path, f"there are more than {self._max_files} files; name a smaller folder")
            self._full = True
            return False
        self.files[real] = path
        return True

    def _expand(self, folder: Path, parts: Sequence[str]) -> Iterator[Path]:
        """What a glob names below `folder`, level by level, so that folders it cannot match are never opened."""
        if not parts:
            yield folder
            return
        first, rest = parts[0], parts[1:]
        if first == "**":
            if not rest:
                yield folder
                return
            for below in self._folders(folder):
                yield from self._expand(below, rest)
        elif _MAGIC.search(first):
            for entry in self._entries(folder):
                name = entry.name
                if fnmatchcase(name, first) and (first.startswith(".") or not name.startswith(".")):
                    yield from self._expand(folder / name, rest)
        elif os.path.lexists(folder / first):
            yield from self._expand(folder / first, rest)

    def _folders(self, top: Path) -> Iterator[Path]:
        """`top` and every folder below it, each once: what can be reached without links comes first."""
        seen: set[Directory] = set()
        waiting, linked = [top], list[Path]()
        while waiting or linked:
            folder = waiting.pop(0) if waiting else linked.pop(0)
            try:
                here = folder.stat()
            except OSError:
                continue
            if (here.st_dev, here.st_ino) in seen or not stat.S_ISDIR(here.st_mode):
                continue
            seen.add((here.st_dev, here.st_ino))
            yield folder
            for entry in self._entries(folder):
                if not entry.name.startswith(".") and entry.name not in NEVER_FOLDERS:
                    if entry.is_symlink():
                        linked.append(folder / entry.name)
                    elif entry.is_dir():
                        waiting.append(folder / entry.name)

    def _entries(self, folder: Path) -> list[os.DirEntry[str]]:
        try:
            with os.scandir(folder) as listing:
                return sorted(listing, key=lambda entry: entry.name)
        except NotADirectoryError:
            return []
        except OSError as error:
            self._fail(folder, error)
            return []

    def _never(self, name: str, path: str) -> bool:
        suffix = os.path.splitext(name)[1].lower()  # noqa: PTH122 - hot: one for each file
        return suffix in NEVER_LOGS or "tfevents" in name or self._excluded(name, path)

    def _excluded(self, name: str, path: str) -> bool:
        return any(fnmatchcase(name, pattern) or fnmatchcase(path, pattern) for pattern in self._exclude)

    def _fail(self, path: Path, error: OSError) -> None:
        reasons = {errno.ENOENT: "it is a link that leads nowhere", errno.ELOOP: "it is a link that leads to itself"}
        self._skip(path, reasons.get(error.errno or 0, f"it cannot be read: {(error.strerror or 'unknown reason').lower()}"))

    def _skip(self, what: str | Path, why: str) -> None:
        self._skipped[str(what), why] = None
        self._said += 1
