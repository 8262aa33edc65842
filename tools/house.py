#!/usr/bin/env python3
"""Print the map of our code in figures, and fail where one is out of its bound.

A bound is the value that was reached: it may fall and never rise. `-v` names what is counted.
"""

from __future__ import annotations

import ast
import itertools
import re
import sys
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path

SOURCE = Path(__file__).resolve().parent.parent / "src" / "pilotage"
#: The most that each figure may be.
BOUNDS = {
    "lines of the largest package": 9000,
    "lines of hub": 4500,
    "small modules with one importer": 17,
    "class names in more than two packages": 0,
    "pairs of structs with 80 % of their fields in common": 1,
    "imports for type checkers alone": 25,
    "words that need a second reading": 0,
}
#: Modules below this many lines are small.
SMALL = 120
#: Structs with fewer fields have too little in common with anything.
FIELDS = 5
#: Words of the domain that structs are counted for.
NOUNS = ("Job", "Attempt", "Event", "Rule", "Flow", "Step", "Pilot", "Pool", "Site", "Place")
RIDDLES = re.compile(r"\b(nobody|whoever|anew|so many)\b")


@dataclass
class Map:
    """What was counted."""

    lines: dict[str, int] = field(default_factory=dict)
    users: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    classes: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    structs: dict[str, frozenset[str]] = field(default_factory=dict)
    riddles: Counter[str] = field(default_factory=Counter)
    hidden: Counter[str] = field(default_factory=Counter)


def main() -> int:
    """Print all figures; return 1 if one is over its bound."""
    house = read(SOURCE)
    found = figures(house)
    for name, names in found.items():
        value, bound = (
            (len(names), BOUNDS[name]) if isinstance(names, list) else (names, BOUNDS[name])
        )
        print(f"  {value:6} of {bound:5}  {name}{'  <- over its bound' if value > bound else ''}")
        if "-v" in sys.argv[1:] and isinstance(names, list):
            print("".join(f"           {one}\n" for one in names), end="")
    print(f"  structs a noun: {', '.join(f'{one} {count}' for one, count in nouns(house).items())}")
    print(f"  names in several packages: {', '.join(_colliding(house))}")
    sizes = [len(one) if isinstance(one, list) else one for one in found.values()]
    return int(any(size > bound for size, bound in zip(sizes, BOUNDS.values(), strict=True)))


def read(source: Path) -> Map:
    """Read all modules of a package."""
    paths = {_name(source, path): path for path in sorted(source.rglob("*.py"))}
    found = Map()
    for name, path in paths.items():
        text = path.read_text()
        found.lines[name] = text.count("\n")
        found.riddles[name] = len(RIDDLES.findall(text))
        found.hidden[name] = len(re.findall(r"^if TYPE_CHECKING", text, re.MULTILINE))
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ClassDef):
                _add_class(found, name, node)
            for used in _imports(node, name, whole=path.name == "__init__.py"):
                if used in paths and used != name:
                    found.users[used].add(name)
    return found


def figures(found: Map) -> dict[str, int | list[str]]:
    """Return each figure of `BOUNDS`, or what it counts."""
    packages = Counter[str]()
    for name, lines in found.lines.items():
        packages[_package(name)] += lines
    twins = [
        f"{one} {other}"
        for (one, mine), (other, theirs) in itertools.combinations(found.structs.items(), 2)
        if len(mine & theirs) >= 0.8 * max(len(mine), len(theirs))
    ]
    alone = [
        name
        for name, users in found.users.items()
        if len(users) == 1 and found.lines[name] < SMALL and not name.endswith("__main__")
    ]
    values = (
        max(packages.values()), packages["hub"], sorted(alone),
        _colliding(found), twins, sorted(found.hidden.elements()), sorted(found.riddles.elements()),
    )  # fmt: skip
    return dict(zip(BOUNDS, values, strict=True))


def nouns(found: Map) -> Counter[str]:
    """Count the structs that have a noun of the domain in their name."""
    names = (name.rpartition(".")[2] for name in found.structs)
    words = (word for name in names for word in set(re.findall("[A-Z][a-z]+", name)))
    counts = Counter(word for word in words if word in NOUNS)
    return Counter({noun: counts[noun] for noun in NOUNS})


def _colliding(found: Map) -> list[str]:
    return sorted(name for name, where in found.classes.items() if len(where) > 2)


def _name(source: Path, path: Path) -> str:
    parts = path.relative_to(source).with_suffix("").parts
    return ".".join(("pilotage", *parts)).removesuffix(".__init__")


def _package(name: str) -> str:
    return name.split(".")[1] if "." in name else "."


def _add_class(found: Map, module: str, node: ast.ClassDef) -> None:
    if not node.name.startswith("_"):
        found.classes[node.name].add(_package(module))
    fields = frozenset(
        one.target.id
        for one in node.body
        if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name)
    )
    if len(fields) >= FIELDS:
        found.structs[f"{module.removeprefix('pilotage.')}.{node.name}"] = fields


def _imports(node: ast.AST, name: str, *, whole: bool) -> list[str]:
    """Return the modules that a statement may import; `whole` for one in an `__init__`."""
    match node:
        case ast.Import(names=names):
            return [one.name for one in names]
        case ast.ImportFrom(module=module, names=names, level=level):
            above = name.split(".") if whole else name.split(".")[:-1]
            parts = above[: len(above) - level + 1] if level else []
            base = ".".join([*parts, *([module] if module else [])])
            return [base, *(f"{base}.{one.name}" for one in names)]
        case _:
            return []


if __name__ == "__main__":
    sys.exit(main())
