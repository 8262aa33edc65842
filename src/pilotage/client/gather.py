"""The source of a function and of whatever it uses, taken out of a program or a notebook."""

from __future__ import annotations
import __future__

import ast
import inspect
import textwrap
import types
from typing import Any, NamedTuple

from pilotage.base import errors


class Piece(NamedTuple):
    """A part of a module: one statement, or a definition with the place that it has in its file."""

    text: str
    file: str = ""
    line: int = 0


Pieces = dict[str, Piece]


def source(function: types.FunctionType) -> str:
    """Write a module that holds a function and all that it uses of the module around it.

    Definitions have the lines that they have in their file, so that a traceback tells them.
    """
    pieces: Pieces = {}
    _add(function.__name__, function, function.__globals__, pieces)
    plain = [one.text for one in pieces.values() if not one.line]
    plain.sort(key=lambda text: not text.startswith(("import ", "from ")))
    future = ["from __future__ import annotations"] if _postponed(function) else []
    defined = [one for one in pieces.values() if one.line]
    if len({one.file for one in defined}) == 1:
        defined.sort(key=lambda one: one.line)
    written = "; ".join([*future, *plain])
    written += "\n" if written else ""
    for one in defined:
        written += "\n" * (one.line - 1 - written.count("\n")) + one.text
    return written


def _add(name: str, value: Any, around: dict[str, Any], pieces: Pieces) -> None:  # noqa: ANN401 - anything
    if name in pieces:
        return
    if isinstance(value, types.ModuleType):
        pieces[name] = Piece(f"import {value.__name__} as {name}")
        return
    module, known = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    if module not in (None, "__main__", around.get("__name__")) and known and "." not in known:
        pieces[name] = Piece(f"from {module} import {known} as {name}")
    elif isinstance(value, (types.FunctionType, type)):
        _add_source(name, value, around, pieces)
    else:
        pieces[name] = Piece(f"{name} = {_constant(name, value)}")


def _add_source(
    name: str, value: types.FunctionType | type, around: dict[str, Any], pieces: Pieces
) -> None:
    try:
        lines, first = inspect.getsourcelines(value)
        code = textwrap.dedent("".join(lines))
        tree = ast.parse(code)
        file = inspect.getsourcefile(value) or ""
    except (OSError, TypeError, SyntaxError):
        message = f"the source of `{name}` cannot be found"
        raise errors.UsageError(message, hint="define it in a file or a notebook") from None
    # Held as a place before its own needs are looked at, since functions may call each other.
    pieces[name] = Piece("")
    for used in sorted(_names(tree) - {name}):
        if used in around:
            _add(used, around[used], around, pieces)
    del pieces[name]
    pieces[name] = Piece(code if code.endswith("\n") else f"{code}\n", file, first)


def _names(tree: ast.AST) -> set[str]:
    return {
        node.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
    }


def _constant(name: str, value: Any) -> str:  # noqa: ANN401 - anything
    """Write a value as source, if it is made of numbers, text and the like."""
    written = repr(value)
    try:
        if ast.literal_eval(written) == value:
            return written
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        pass  # told below, with what to do
    message = f"`{name}`, which the function uses, cannot be sent"
    raise errors.UsageError(message, hint="pass it as an argument, or make it inside")


def _postponed(function: types.FunctionType) -> bool:
    return bool(function.__code__.co_flags & __future__.annotations.compiler_flag)
