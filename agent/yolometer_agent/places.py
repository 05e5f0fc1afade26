"""Places: which training directory a source belongs to, and which directories are copies of one that is known."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from yolometer_agent.reader import digest_of


class KnownSource(NamedTuple):
    """A source that a store already holds: its place, where its file was, and the digest of its content when it had that size."""

    place: str
    path: str
    digest: str
    size_bytes: int


def place_of(node: str, folder: Path) -> str:
    """The name of a place: the node, and the real path of the folder."""
    return f"{node}:{folder}"


def folder_of_place(place: str, node: str) -> str:
    """The folder that a place of this node is named after, whichever of the trainings that lived there it is."""
    return place.removeprefix(f"{node}:").rpartition("#")[0] if _number(place) > 1 else place.removeprefix(f"{node}:")


def standing_of(place: str, members: Iterable[Path], known: Iterable[KnownSource]) -> str:
    """The name of a place as it stands now: the same while any log or table goes on as the store knows it.

    Where all of them were replaced, other trainings live in the folder now: it is another place, `place#2`.
    """
    mine = [source for source in known if source.place == place or source.place.startswith(f"{place}#")]
    if not mine:
        return place
    newest = max({source.place for source in mine}, key=_number)
    here = {str(path): path for path in members}
    still = [source for source in mine if source.place == newest and source.path in here]
    goes_on = [digest_of(here[source.path], source.size_bytes) == source.digest for source in still]
    return f"{place}#{_number(newest) + 1}" if goes_on and not any(goes_on) else newest


def _number(place: str) -> int:
    number = place.rpartition("#")[2]
    return int(number) if "#" in place and number.isdigit() else 1


def folder_of(path: Path) -> Path:
    """The real folder that a file lies in."""
    return Path(os.path.realpath(path.parent))


def home_of(log: Path, save_dir: str, declared: Mapping[str, list[str]], working_dir: Path | None = None) -> Path | None:
    """The folder that a console log means by `save_dir`; None when it cannot be found here (then the log's own folder is meant).

    `declared` maps directories as settings files name them to the folders those files lie in: a folder that was
    moved together with its settings is still found by the name it had.
    """
    own = folder_of(log)
    named = declared.get(save_dir.rstrip("/\\"), [])
    if str(own) in named:
        return own
    meant = Path(save_dir)
    bases = [working_dir] if working_dir else []
    candidates = [meant] if meant.is_absolute() else [base / meant for base in (*bases, own, *list(own.parents)[:8])]
    for candidate in candidates:
        try:
            if candidate.is_dir():
                return candidate.resolve()
        except OSError:
            continue
    return Path(named[0]) if len(named) == 1 else None


def copies(
    folders: Mapping[Path, Iterable[Path]], known: Iterable[KnownSource], name: Callable[[Path], str], *, earlier: bool
) -> dict[Path, str]:  # fmt: skip
    """Which folders hold nothing but copies of the logs and tables of another one: `{folder: the one it copies}`.

    `folders` maps each folder to its logs and tables (no settings), in the order in which they count; `known` is what
    the store holds; `name` gives the place of a folder. A folder that the store knows by its place is no copy. With
    `earlier`, a log that ends before its twin does, and is the same so far, is a copy too; not for logs that still
    grow, for trainings that were started alike look alike at first.
    """
    by_digest: dict[str, set[str]] = {}
    files: dict[str, dict[str, Path]] = {}
    homes: set[str] = set()
    for source in known:
        by_digest.setdefault(source.digest, set()).add(source.place)
        files.setdefault(Path(source.path).name, {})[source.place] = Path(source.path)
        homes.add(source.place)
    found: dict[Path, str] = {}
    for folder, members in folders.items():
        place = name(folder)
        digests = {path: digest for path in members if (digest := digest_of(path))}
        twins = None
        for path, digest in digests.items():
            same = set(by_digest.get(digest, ()))
            if earlier:
                same |= {other for other, file in files.get(path.name, {}).items() if _begins_alike(path, file)}
            twins = same if twins is None else twins & same
        others = (twins or set()) - {place}
        if others and place not in homes:
            found[folder] = min(others)
            continue
        homes.add(place)
        for path, digest in digests.items():
            by_digest.setdefault(digest, set()).add(place)
            files.setdefault(path.name, {})[place] = path
    return found


def _begins_alike(one: Path, other: Path, block_bytes: int = 1 << 16) -> bool:
    """Whether one file is the other as it was at an earlier time: not empty, and the same bytes up to its end."""
    try:
        if one.samefile(other):
            return False
        left = min(one.stat().st_size, other.stat().st_size)
        if left < 64:
            return False
        with one.open("rb") as a, other.open("rb") as b:
            while left > 0:
                step = min(left, block_bytes)
                if a.read(step) != b.read(step):
                    return False
                left -= step
    except OSError:
        return False
    return True
