"""Run a Python recipe: call one function of a file, or run the file as a script.

    python call.py --file F [--function NAME] --params params.json [--result result.json]

It needs nothing but the standard library of Python 3.9 and nothing of this package, since the
recipe may want an interpreter of its own.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import importlib.machinery
import importlib.util
import inspect
import json
import os
import runpy
import sys
from types import ModuleType
from typing import Any, Callable


def main() -> None:
    """Do what the command line asks for; an exception of the recipe ends it with status 1."""
    parser = argparse.ArgumentParser(prog="call.py")
    parser.add_argument("--file", required=True, help="file that holds the recipe")
    parser.add_argument("--function", help="function to call; without it the file is a script")
    parser.add_argument("--params", required=True, help="file with a JSON object of parameters")
    parser.add_argument("--result", help="file to write what the function returns, as JSON")
    options = parser.parse_args()
    with open(options.params, encoding="utf-8") as file:
        params = json.load(file)
    path = os.path.abspath(options.file)
    put_first(os.path.dirname(path))
    sys.argv = [path]
    if options.function is None:
        runpy.run_path(path, init_globals=params, run_name="__main__")
        return
    function = getattr(load(path), options.function, None)
    if not callable(function):
        parser.error(f"{options.file} has no function {options.function!r}")
    args, kwargs, missing = choose(function, params)
    if missing:
        parser.error(f"{options.function} needs parameters that are not given: {missing}")
    result = function(*args, **kwargs)
    if inspect.iscoroutine(result):
        result = asyncio.run(result)
    if options.result is not None:
        write(options.result, result)


def put_first(folder: str) -> None:
    """Make imports of the recipe search its own folder, not the one of this file."""
    if sys.path and os.path.abspath(sys.path[0]) == os.path.dirname(os.path.abspath(__file__)):
        del sys.path[0]
    sys.path.insert(0, folder)


def load(path: str) -> ModuleType:
    """Import a file whatever its name; one that is in a package as a part of that package."""
    stem, suffix = os.path.splitext(os.path.basename(path))
    root, names = packages(os.path.dirname(path))
    if names and suffix == ".py" and stem.isidentifier() and names[0] not in sys.modules:
        # Behind the file's own folder, which comes first for every recipe.
        sys.path.insert(1, root)
        return importlib.import_module(".".join([*names, stem]))
    name = stem if stem.isidentifier() and stem not in sys.modules else "pilotage_recipe"
    loader = importlib.machinery.SourceFileLoader(name, path)
    spec = importlib.util.spec_from_file_location(name, path, loader=loader)
    if spec is None:
        raise ImportError(f"cannot load {path}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    loader.exec_module(module)
    return module


def packages(folder: str) -> tuple[str, list[str]]:
    """Return the packages that a folder is, the outermost first, and where that one lies."""
    names: list[str] = []
    while os.path.exists(os.path.join(folder, "__init__.py")):
        folder, name = os.path.split(folder)
        if not name.isidentifier():
            return folder, []
        names.insert(0, name)
    return folder, names


def choose(
    function: Callable[..., Any], params: dict[str, Any]
) -> tuple[list[Any], dict[str, Any], str]:
    """Pick the arguments that a function takes, and name those it misses."""
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    missing: list[str] = []
    known = inspect.signature(function).parameters.values()
    for one in known:
        if one.kind in (one.VAR_POSITIONAL, one.VAR_KEYWORD):
            continue
        if one.name not in params:
            missing += [one.name] if one.default is one.empty else []
        elif one.kind is one.POSITIONAL_ONLY:
            args.append(params[one.name])
        else:
            kwargs[one.name] = params[one.name]
    if any(one.kind is one.VAR_KEYWORD for one in known):
        named = {one.name for one in known}
        kwargs.update((name, value) for name, value in params.items() if name not in named)
    return args, kwargs, ", ".join(missing)


def write(path: str, result: object) -> None:
    """Write the result as JSON, or its `repr` where JSON has no word for it; all or nothing."""
    try:
        text = json.dumps(result, allow_nan=False)
    except (TypeError, ValueError):
        text = json.dumps(repr(result))
    part = f"{path}.part"
    with open(part, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(part, path)


if __name__ == "__main__":
    main()
