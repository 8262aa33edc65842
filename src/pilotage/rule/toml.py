"""Books in TOML: `[recipe.NAME]` and `[rule.NAME]` tables, nothing else."""

from __future__ import annotations

import re
import tomllib
from typing import Any

from pilotage.base import errors, names, toml
from pilotage.rule.draft import Draft
from pilotage.rule.place import Place

_LINE = re.compile(r" \(at line (\d+), column (\d+)\)$")
_END = " (at end of document)"


def drafts(text: str, file: str, base: str, folder: str) -> tuple[list[Draft], list[Draft]]:
    """Read the recipes and the rules of a book."""
    data = _parse(text, file)
    for name in data:
        if name not in ("recipe", "rule"):
            raise errors.BadRule(
                f"a book has no table {name!r}",
                hint=names.closest(name, ("recipe", "rule")),
                file=file,
                line=toml.line_of(text, (name,)),
                at=name,
            )
    found: list[list[Draft]] = []
    for kind in ("recipe", "rule"):
        tables = _table(data.get(kind, {}), Place(file, text, (kind,)))
        found.append([])
        for name, value in tables.items():
            place = Place(file, text, (kind, name))
            found[-1].append(Draft(name, place, _table(value, place), base, folder))
    return found[0], found[1]


def _parse(text: str, file: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise errors.BadRule("the book is nested too deeply", file=file) from None
    except ValueError as error:
        message = str(error)
        line = None
        if found := _LINE.search(message):
            line, message = int(found[1]), f"{message[: found.start()]} (column {found[2]})"
        elif message.endswith(_END):
            line, message = text.count("\n") + 1, message.removesuffix(_END) + " at the end"
        hint = "text stands in quotes, lists in brackets: https://toml.io"
        raise errors.BadRule(f"not TOML: {message}", hint=hint, file=file, line=line) from None


def _table(value: Any, place: Place) -> dict[str, Any]:  # noqa: ANN401 - what a person wrote
    if isinstance(value, dict):
        return value
    path = ".".join(place.path)
    raise errors.BadRule(
        f"this is {value!r}"[:60] + ", not a table",
        hint=f"write `[{path}]`" if len(place.path) > 1 else f"write `[{path}.NAME]`",
        file=place.file,
        line=place.line_of(),
        at=path,
    )
