"""The pages tell the truth: all is documented, generated pages are fresh, links lead somewhere, and files keep the manners."""

from __future__ import annotations

import importlib.util
import pkgutil
import re
import subprocess
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
LINES_MAX = 400
TEXT = {".py", ".md", ".sql", ".toml", ".yaml", ".yml", ".sh", ".txt", ".cfg", ".json", ""}
LENGTHY = re.compile(r"^(tests/cases/|docs/(events|roi|cli)\.md$)")  # captured data, and pages that are made from the code


def _load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


generate = _load(DOCS / "_generate.py")


def files() -> list[str]:
    """Files of the project as git knows them: tracked, or new and not ignored. Without git, all that is not hidden or built."""
    try:
        command = ["git", "-C", str(ROOT), "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
        listed = subprocess.run(command, capture_output=True, check=True, timeout=30).stdout.decode().split("\0")
    except (OSError, subprocess.CalledProcessError):
        hidden = re.compile(r"(^|/)(\.(?!ci|gitignore)|__pycache__|build/|dist/)")
        listed = [str(path.relative_to(ROOT)) for path in ROOT.rglob("*") if not hidden.search(str(path.relative_to(ROOT)))]
    return [name for name in listed if name and (ROOT / name).is_file()]


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8", errors="replace")


def own_text() -> list[str]:
    """Files that people wrote: text, and not captured from a trainer."""
    return [name for name in files() if Path(name).suffix in TEXT and not name.startswith("tests/cases/")]


def sections(page: str) -> set[str]:
    return set(re.findall(r"^## (.+)$", read(f"docs/{page}"), re.MULTILINE))


# generated pages ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", list(generate.PAGES))
def test_a_generated_page_is_fresh(page: str) -> None:
    """A page that is made from the code says what the code says now."""
    path = DOCS / page
    assert path.exists(), f"docs/{page} is missing; run `make docs`"
    assert path.read_text(encoding="utf-8") == generate.PAGES[page](), f"docs/{page} is stale; run `make docs`"


def test_every_event_and_field_is_documented() -> None:
    """Each event has its section, each field its meaning, and no meaning is left over."""
    meanings = generate.meanings()
    common = {field.alias or name for name, field in generate.events.Event.model_fields.items()}
    wanted = set(common)
    for kind in generate.event_types():
        assert kind.__doc__, f"{kind.__name__} has no docstring"
        for name in generate.own_fields(kind):
            special = f"{kind.table}.{name}"
            assert special in meanings or name in meanings, f"docs/_fields.yaml does not say what `{special}` means"
            wanted.add(special if special in meanings else name)
    left = sorted(set(meanings) - wanted)
    assert not left, f"docs/_fields.yaml speaks of fields that are gone: {left}"
    assert {kind.table for kind in generate.event_types()} <= sections("events.md")


def test_every_query_is_documented() -> None:
    """Each ROI query of the catalogue has its section, its question, its columns and parameters."""
    from yolometer_sql.catalog import catalog

    queries = catalog()
    assert set(queries) == sections("roi.md")
    page = read("docs/roi.md")
    for query in queries.values():
        for name in [*(column.name for column in query.columns), *(parameter.name for parameter in query.parameters)]:
            assert f"| `{name}` |" in page


def test_every_command_is_documented() -> None:
    """Each command that `--help` lists has its section."""
    assert {name for name, _ in generate.commands()} == sections("cli.md")


def test_every_format_is_documented() -> None:
    """Each log format has its line in formats.md, and no line names a format that is gone."""
    import yolometer_agent.formats as package

    there = {info.name for info in pkgutil.iter_modules(package.__path__) if not info.name.startswith("_")}
    table = read("docs/formats.md").split("## Families", 1)[1].split("\n## ", 1)[0]
    named = set(re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE))
    assert there == named


# links ----------------------------------------------------------------------------------------------------------


def _anchors(name: str) -> set[str]:
    titles = re.findall(r"^#+ (.+)$", read(name), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("name", [name for name in files() if name.endswith(".md")])
def test_links_lead_somewhere(name: str) -> None:
    """A link inside the project leads to a file of the project, and to a heading that is there."""
    text = re.sub(r"```.*?```", "", read(name), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        there = (ROOT / name).parent / path if path else ROOT / name
        assert there.exists(), f"{name} links to {target}, which is not there"
        if anchor and there.suffix == ".md":
            headings = _anchors(str(there.resolve().relative_to(ROOT)))
            assert anchor in headings, f"{name} links to {target}, which has no such heading"


def test_every_page_is_reached_from_the_readme() -> None:
    """Who reads on from the README finds every page."""
    seen, waiting = set(), [ROOT / "README.md"]
    while waiting:
        page = waiting.pop()
        if page in seen or not page.exists():
            continue
        seen.add(page)
        links = re.findall(r"\]\(([^)\s#]+\.md)", page.read_text(encoding="utf-8"))
        waiting += [(page.parent / link).resolve() for link in links if ":" not in link]
    lost = [name for name in files() if re.match(r"docs/[^/]+\.md$", name) and ROOT / name not in seen]
    assert not lost, f"no page leads to {lost}"


def test_the_readme_names_commands_that_exist() -> None:
    """Each `make` target and each `yolometer` command of the README is there."""
    text = read("README.md")
    targets = set(re.findall(r"^([a-z0-9-]+):", read("Makefile"), re.MULTILINE))
    spoken = " ".join(re.findall(r"`[^`]+`|^make .*$", text, re.MULTILINE))
    assert set(re.findall(r"\bmake ([a-z0-9-]+)\b", spoken)) <= targets
    commands = {name.split()[1] for name, _ in generate.commands() if " " in name}
    assert set(re.findall(r"^yolometer ([a-z]+)", text, re.MULTILINE)) <= commands


# manners --------------------------------------------------------------------------------------------------------

# letters in brackets keep this file from naming what it looks for
_MACHINE = re.compile(r"(?<![\w.])/(wor[k]|roo[t]|workspac[e]|mn[t])/[\w.]|/hom[e]/(?!user\b)\w")
_REGISTRY = re.compile(r"\b(py[p]i\.org|python[h]osted\.org|repo\d?\.mave[n]\.org|npm[j]s\.org|proxy\.golan[g]\.org|/sim[p]le/)")


@pytest.mark.parametrize("name", files())
def test_no_file_names_a_machine_or_a_registry(name: str) -> None:
    """No path of somebody's machine and no host of a package registry stands in a file."""
    text = read(name)
    for wrong in (_MACHINE, _REGISTRY):
        found = wrong.search(text)
        assert found is None, f"{name} names {found[0]!r}" if found else ""
    if not name.startswith("tests/cases/"):
        for place in (ROOT, Path.home()):
            assert len(place.parts) < 2 or f"{place}/" not in text, f"{name} names the path {place}"


@pytest.mark.parametrize("name", [name for name in own_text() if not LENGTHY.match(name)])
def test_no_file_is_long(name: str) -> None:
    """A file that grows over the limit holds two things."""
    count = read(name).count("\n")
    assert count <= LINES_MAX, f"{name} has {count} lines; the limit is {LINES_MAX}"


@pytest.mark.parametrize("name", [name for name in files() if name.endswith(".py") and not name.startswith("tests/cases/")])
def test_a_file_says_what_it_is(name: str) -> None:
    """The first line of a Python file is its docstring."""
    lines = read(name).splitlines()
    first = lines[1] if lines and lines[0].startswith("#!") else lines[0] if lines else ""
    assert re.match(r'r?"""\S', first), f"{name} does not begin with a docstring"


def test_every_constraint_is_one_exact_version() -> None:
    """constraints.txt is plain: a name and a version a line, no address, no hash."""
    for line in read("constraints.txt").splitlines():
        assert re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.+!-]+", line), f"constraints.txt: {line!r} is no `name==version`"
