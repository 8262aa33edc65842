"""A Python function becomes a recipe: where it runs, its source must say all that it needs."""

from __future__ import annotations

import functools
import hashlib
import inspect
import os
import sys
import sysconfig
import types
from collections.abc import Callable
from typing import Any

from pilotage.base import errors
from pilotage.client import gather
from pilotage.job.model import Call

_HINT = "define it with `def` at the top of a file, and pass what it needs as arguments"


def recipe(function: Callable[..., Any]) -> Call:
    """Say how to call a function elsewhere."""
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
        return Call(function.__name__, source=gather.source(function), file=_file(function))
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
    """Tell versions of the loaded files of a package apart."""
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
    """Tell whether a file belongs to Python or to an installed package."""
    folders = {sysconfig.get_path(kind) for kind in ("stdlib", "platstdlib", "purelib", "platlib")}
    return any(folder and file.startswith(folder + os.sep) for folder in folders)


def _file(function: types.FunctionType) -> str:
    file = os.path.abspath(function.__code__.co_filename)
    return file if os.path.isfile(file) else ""
