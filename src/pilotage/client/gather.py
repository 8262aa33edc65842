"""The source of a function and of whatever it uses, taken out of a program or a notebook."""

from __future__ import annotations
import __future__

import ast
import inspect
import textwrap
import types
from typing import Any

from pilotage import errors


def source(function: types.FunctionType) -> str:
    """Write a module that holds a function and all that it uses of the module around it."""
    pieces: dict[str, str] = {}
    _add(function.__name__, function, function.__globals__, pieces)
    future = "from __future__ import annotations\n" if _postponed(function) else ""
    imports = [piece for piece in pieces.values() if piece.startswith(("import ", "from "))]
    rest = [piece for piece in pieces.values() if not piece.startswith(("import ", "from "))]
    return future + "\n".join([*imports, *rest]) + "\n"


def _add(name: str, value: Any, around: dict[str, Any], pieces: dict[str, str]) -> None:  # noqa: ANN401 - anything
    if name in pieces:
        return
    if isinstance(value, types.ModuleType):
        pieces[name] = f"import {value.__name__} as {name}"
        return
    module, known = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    if module not in (None, "__main__", around.get("__name__")) and known and "." not in known:
        pieces[name] = f"from {module} import {known} as {name}"
    elif isinstance(value, (types.FunctionType, type)):
        _add_source(name, value, around, pieces)
    else:
        pieces[name] = f"{name} = {_constant(name, value)}"


def _add_source(
    name: str, value: types.FunctionType | type, around: dict[str, Any], pieces: dict[str, str]
) -> None:
    try:
        code = textwrap.dedent(inspect.getsource(value))
        tree = ast.parse(code)
    except (OSError, TypeError, SyntaxError):
        message = f"the source of `{name}` cannot be found"
        raise errors.UsageError(message, hint="define it in a file or a notebook") from None
    # Held as a place before its own needs are looked at, since functions may call each other.
    pieces[name] = ""
    for used in sorted(_names(tree) - {name}):
        if used in around:
            _add(used, around[used], around, pieces)
    del pieces[name]
    pieces[name] = code


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
