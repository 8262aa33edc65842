"""Which test files a change touches: themselves, or what they import changed, however far away.

Imports are read from the source, also those inside functions. A file that is not Python belongs to
the package that it lies in. What a test names as a path outside the packages, such as a page of the
documentation, is not seen: a change there runs the tests that read all of that folder.
"""

from __future__ import annotations

import functools
import re
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path

ROOT = Path(__file__).parents[2]
#: Folders with modules that import each other, and what comes before their names.
_SOURCES = {"src/pilotage": "src/", "tests": "", "testbed": "", "bench": "", "examples": ""}
#: An import, on one line or in parentheses; reading the whole syntax of all files takes seconds.
_IMPORT = re.compile(
    r"^[ \t]*(?:from[ \t]+(?P<dots>\.*)(?P<module>[\w.]*)[ \t]+import[ \t]+"
    r"(?P<some>\([^)]*\)|[^\n]*)|import[ \t]+(?P<plain>[^\n]*))",
    re.MULTILINE,
)
_NAME = re.compile(r"[\w.]+")
#: Whatever changes here may change anything.
_ALL = ("pyproject.toml", "requirements/", "tests/conftest.py", "Makefile", "tools/")
#: Tests that read whole folders instead of importing them.
_READERS = {
    "docs/": ("tests/unit/repository/test_docs.py", "tests/unit/repository/test_public.py"),
    "README.md": ("tests/unit/repository/test_docs.py",),
    "CHANGELOG.md": ("tests/unit/repository/test_docs.py",),
    "src/pilotage/web/": ("tests/acceptance/page/",),
}


def changed(revision: str) -> list[str]:
    """Return the files that differ from a revision, also those that git does not know yet."""
    told = _git("diff", "--name-only", "--relative", revision)
    return sorted({*told, *_git("ls-files", "--others", "--exclude-standard")})


def touched(files: Iterable[str]) -> set[str] | None:
    """Return the test files to run after a change of these files; None if it is all of them."""
    files = list(files)
    if any(file.startswith(_ALL) for file in files):
        return None
    modules, imports = _modules(), _graph()
    tests = [file for file in imports if Path(file).name.startswith("test_")]
    seeds = {seed for file in files for seed in _seeds(file, modules)}
    found = {test for test in tests if not seeds.isdisjoint(_reach(test, imports))}
    for file in files:
        readers = [
            reader for start, them in _READERS.items() if file.startswith(start) for reader in them
        ]
        found |= {test for test in tests if test.startswith(tuple(readers))} if readers else set()
    return found


def _seeds(file: str, modules: Mapping[str, str]) -> list[str]:
    """Return the module that a file is, or the package that it lies in."""
    known = set(modules.values())
    if file in known:
        return [file]
    return [
        one for one in (f"{parent}/__init__.py" for parent in Path(file).parents) if one in known
    ][:1]


@functools.cache
def _graph() -> dict[str, set[str]]:
    """Return the files that each file imports."""
    modules = _modules()
    return {file: _imports(file, modules) for file in modules.values()}


@functools.cache
def _modules() -> dict[str, str]:
    """Return the file of each module, by its name."""
    found = {}
    for folder, start in _SOURCES.items():
        for path in sorted((ROOT / folder).rglob("*.py")):
            file = str(path.relative_to(ROOT))
            name = file.removeprefix(start).removesuffix(".py").replace("/", ".")
            found[name.removesuffix(".__init__")] = file
    return found


def _imports(file: str, modules: Mapping[str, str]) -> set[str]:
    """Return the files that a file imports; one that a text speaks of may be among them."""
    package = list(Path(file.removeprefix("src/")).parent.parts)
    names: set[str] = set()
    for found in _IMPORT.finditer((ROOT / file).read_text()):
        dots, module, some, plain = found.group("dots", "module", "some", "plain")
        if plain is not None:
            names |= set(_NAME.findall(plain))
            continue
        above = package[: len(package) - len(dots) + 1] if dots else []
        base = ".".join([*above, *([module] if module else [])])
        names |= {base} | {f"{base}.{name}" for name in _NAME.findall(some)}
    return {modules[name] for name in names if name in modules}


def _reach(file: str, imports: Mapping[str, set[str]]) -> set[str]:
    """Return a file with all that it imports, and what those do."""
    found, front = {file}, [file]
    while front:
        new = imports.get(front.pop(), set()) - found
        found |= new
        front += new
    return found


def _git(*words: str) -> list[str]:
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()
