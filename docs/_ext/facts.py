"""What the code says of itself: fields with their `#:` comments, errors, states."""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Iterator
from enum import Enum
from functools import cache
from typing import NamedTuple

from pilotage.base import errors


class Field(NamedTuple):
    """A field of a class, as it stands in the source."""

    name: str
    #: Its annotation.
    kind: str
    #: Its default as it is written; empty if it has none.
    default: str
    #: The `#:` comment above it, or above the first of its group.
    about: str


def all_fields(owner: type) -> list[Field]:
    """Read the annotated fields of a struct, those of its bases first."""
    kinds = [kind for kind in reversed(owner.__mro__) if kind.__module__.startswith("pilotage")]
    return list({field.name: field for kind in kinds for field in fields(kind)}.values())


def fields(owner: type) -> list[Field]:
    """Read the annotated fields of a class, in order, without those of its bases."""
    lines = _source(owner.__module__).splitlines()
    found: list[Field] = []
    for node in _class(owner).body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            about = _comment(lines, node.lineno - 2) or (found[-1].about if found else "")
            default = _default(owner, node)
            found.append(Field(node.target.id, ast.unparse(node.annotation), default, about))
    return found


def _default(owner: type, node: ast.AnnAssign) -> str:
    """Write a default as it stands there, or as it is where a name stands for it."""
    if isinstance(node.value, ast.Name):
        return repr(getattr(sys.modules[owner.__module__], node.value.id))
    return ast.unparse(node.value) if node.value else ""


def members(owner: type[Enum]) -> dict[str, str]:
    """Read the members of an enumeration with their `#:` comments."""
    lines = _source(owner.__module__).splitlines()
    found = {}
    for node in _class(owner).body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            name = node.targets[0].id
            found[str(owner[name].value)] = _comment(lines, node.lineno - 2)
    return found


def error_tree(
    top: type[errors.PilotageError] = errors.PilotageError,
) -> Iterator[tuple[int, type[errors.PilotageError]]]:
    """Yield every error with how deep it stands below the first, in order of their codes."""
    for depth, kind in _walk(top, 0):
        if kind.__module__ == errors.__name__:
            yield depth, kind


def _walk(
    top: type[errors.PilotageError], depth: int
) -> Iterator[tuple[int, type[errors.PilotageError]]]:
    yield depth, top
    for below in sorted(top.__subclasses__(), key=lambda each: each.code):
        yield from _walk(below, depth + 1)


def sentence(owner: object) -> str:
    """Return the first line of a docstring."""
    return (inspect.getdoc(owner) or "").split("\n", 1)[0]


@cache
def _source(module: str) -> str:
    return inspect.getsource(sys.modules[module])


def _class(owner: type) -> ast.ClassDef:
    for node in ast.walk(ast.parse(_source(owner.__module__))):
        if isinstance(node, ast.ClassDef) and node.name == owner.__name__:
            return node
    raise LookupError(owner.__name__)


def _comment(lines: list[str], last: int) -> str:
    """Read the `#:` lines that end at a line."""
    found: list[str] = []
    while last >= 0 and lines[last].strip().startswith("#:"):
        found.insert(0, lines[last].strip().removeprefix("#:").strip())
        last -= 1
    return " ".join(found)
