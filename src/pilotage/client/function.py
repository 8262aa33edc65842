"""Turn a Python function into a self-contained recipe."""

from __future__ import annotations
import __future__

import ast
import functools
import hashlib
import inspect
import os
import sys
import sysconfig
import textwrap
import types
from collections.abc import Callable
from typing import Any, NamedTuple

from pilotage.base import errors
from pilotage.job.model import Call


class SourcePiece(NamedTuple):
    """A part of a module: one statement, or a definition with the place that it has in its file."""

    text: str
    file: str = ""
    line: int = 0


Pieces = dict[str, SourcePiece]


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
        pieces[name] = SourcePiece(f"import {value.__name__} as {name}")
        return
    module, known = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    if module not in (None, "__main__", around.get("__name__")) and known and "." not in known:
        pieces[name] = SourcePiece(f"from {module} import {known} as {name}")
    elif isinstance(value, (types.FunctionType, type)):
        _add_source(name, value, around, pieces)
    else:
        pieces[name] = SourcePiece(f"{name} = {_constant(name, value)}")


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
    pieces[name] = SourcePiece("")
    for used in sorted(_names(tree) - {name}):
        if used in around:
            _add(used, around[used], around, pieces)
    del pieces[name]
    pieces[name] = SourcePiece(code if code.endswith("\n") else f"{code}\n", file, first)


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


_HINT = "define it with `def` at the top of a file, and pass what it needs as arguments"


def recipe(function: Callable[..., Any]) -> Call:
    """Return how to call a function elsewhere."""
    if isinstance(function, functools.partial):
        raise errors.UsageError("a partial function cannot be sent", hint=_HINT)
    name = getattr(function, "__qualname__", "")
    module = sys.modules.get(getattr(function, "__module__", None) or "")
    if not name or "<lambda>" in name:
        raise errors.UsageError(f"{function!r} has no name to call it by", hint=_HINT)
    if inspect.ismethod(function):
        raise errors.UsageError(f"the method `{name}` belongs to an object", hint=_HINT)
    if not isinstance(function, types.FunctionType):
        return _imported(function, name)
    if function.__closure__ and "__class__" not in function.__code__.co_freevars:
        names = ", ".join(function.__code__.co_freevars)
        raise errors.UsageError(f"`{name}` uses {names} of the function around it", hint=_HINT)
    if module is None or module.__name__ == "__main__" or "<locals>" in name:
        # Its file is a program, or there is none: take what the function needs, and no more.
        return Call(function.__name__, source=source(function), file=_file(function))
    return _of_module(module, name)


def _of_module(module: types.ModuleType, name: str) -> Call:
    file = os.path.abspath(getattr(module, "__file__", None) or "")
    if not file.endswith(".py") or _installed(file):
        return Call(name, source=_import(module.__name__, name))
    if module.__package__:
        return _of_package(module, name, file)
    with open(file, encoding="utf-8") as text:
        return Call(name, source=text.read(), file=file)


def _of_package(module: types.ModuleType, name: str, file: str) -> Call:
    """Name a function by its package: only as a part of it can its file import its neighbours."""
    tail = os.sep + module.__name__.replace(".", os.sep)
    stem = file.removesuffix(".py").removesuffix(f"{os.sep}__init__")
    if not stem.endswith(tail):
        return Call(name, file=file)
    root = stem.removesuffix(tail) or os.sep
    # A worker that has loaded another version of these files is another worker.
    lines = [f"# {_version(module.__name__.partition('.')[0])}", "import sys"]
    lines += [f"sys.path.insert(0, {root!r})", _import(module.__name__, name)]
    return Call(name, source="\n".join(lines))


def _version(package: str) -> str:
    """Return a digest of the loaded files of a package."""
    found = []
    for name, module in sorted(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if (name == package or name.startswith(f"{package}.")) and file and os.path.exists(file):
            found.append(f"{name} {os.stat(file).st_mtime_ns}")
    return hashlib.blake2b("\n".join(found).encode(), digest_size=8).hexdigest()


def _imported(function: Callable[..., Any], name: str) -> Call:
    """Name something that is no Python function, such as `math.sqrt`, by its module."""
    module = getattr(function, "__module__", None)
    if not module or "." in name or not hasattr(sys.modules.get(module), name):
        raise errors.UsageError(f"{function!r} cannot be found by its name", hint=_HINT)
    return Call(name, source=_import(module, name))


def _import(module: str, name: str) -> str:
    return f"from {module} import {name.partition('.')[0]}\n"


def _installed(file: str) -> bool:
    """Return whether a file belongs to Python or to an installed package."""
    folders = {sysconfig.get_path(kind) for kind in ("stdlib", "platstdlib", "purelib", "platlib")}
    return any(folder and file.startswith(folder + os.sep) for folder in folders)


def _file(function: types.FunctionType) -> str:
    file = os.path.abspath(function.__code__.co_filename)
    return file if os.path.isfile(file) else ""
