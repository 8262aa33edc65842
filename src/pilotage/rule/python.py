"""Rule files in Python: functions with `@rule(...)`, and rules that are only declared.

    from pilotage.book import recipe, rule

    @rule(files="raw/{scan}.csv", sweep={"level": [1, 2, 3]})
    def clean(path, level): ...

    count = rule(files="clean/*.csv", run=["wc", "-l", "{path}"])

The keys are those of TOML books. Importing such a file starts nothing; a function stays as it is.
"""

from __future__ import annotations

import importlib.util
import inspect
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType, FunctionType, ModuleType
from typing import Any, Literal, TypeVar

from pilotage.base import errors
from pilotage.rule.draft import Draft
from pilotage.rule.schema import RECIPES
from pilotage.rule.span import SourceSpan

_F = TypeVar("_F", bound=Callable[..., Any])
_MARK = "__pilotage__"


class Declaration:
    """A rule or recipe that waits for a name: that of its function or of its variable."""

    def __init__(self, kind: Literal["rule", "recipe"], name: str, keys: dict[str, Any]) -> None:
        """Keep what was written; it is checked when the rule file is loaded."""
        self.kind = kind
        self.name = name
        self.keys = keys
        self.line = _caller_line()

    def __call__(self, function: _F) -> _F:
        """Make a function the recipe, and leave it as it is."""
        declared = [*getattr(function, _MARK, ()), self]
        setattr(function, _MARK, declared)
        return function


def rule(*, name: str = "", **keys: Any) -> Declaration:  # noqa: ANN401 - the keys of a rule
    """Declare a rule; the keys are those of `[rule.NAME]`."""
    return Declaration("rule", name, keys)


def recipe(*, name: str = "", **keys: Any) -> Declaration:  # noqa: ANN401 - the keys of a recipe
    """Declare a recipe; the keys are those of `[recipe.NAME]`."""
    return Declaration("recipe", name, keys)


def drafts(file: Path, base: str) -> tuple[list[Draft], list[Draft]]:
    """Import a file by its path and read the recipes and the rules in it."""
    found: dict[str, list[Draft]] = {"recipe": [], "rule": []}
    module = _import(file)
    seen: set[int] = set()
    for name, value in vars(module).items():
        mine = isinstance(value, FunctionType) and value.__module__ == module.__name__
        declared = getattr(value, _MARK, ()) if mine else (value,)
        for each in declared:
            if isinstance(each, Declaration) and id(each) not in seen:
                seen.add(id(each))
                function = value if mine else None
                found[each.kind].append(_draft(each, name, function, file, base))
    return found["recipe"], found["rule"]


def _draft(
    declared: Declaration, variable: str, function: FunctionType | None, file: Path, base: str
) -> Draft:
    name = declared.name or (function.__name__ if function else variable)
    place = SourceSpan(str(file), "", (declared.kind, name), declared.line)
    data = dict(declared.keys)
    if function is not None:
        for taken in ("recipe", *RECIPES):
            if taken in data:
                raise errors.BadRule(
                    "the function is what runs already",
                    hint=f"without a function: `{name} = {declared.kind}({taken}=...)`",
                    file=str(file),
                    line=declared.line,
                    at=f"{declared.kind}.{name}.{taken}",
                )
        data["python"] = f"{file.name}:{function.__name__}"
    return Draft(name, place, data, base, str(file.absolute().parent))


def _import(file: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"pilotage_book_{file.stem}", file.absolute())
    if spec is None or spec.loader is None:
        raise errors.BadRule("cannot be imported", file=str(file))
    module = importlib.util.module_from_spec(spec)
    with _beside(file, module):
        try:
            spec.loader.exec_module(module)
        # What a person's own code may raise has no bounds.
        except (Exception, SystemExit) as error:
            raise errors.BadRule(
                f"{type(error).__name__}: {error}", file=str(file), line=_line(error, file)
            ) from error
    return module


@contextmanager
def _beside(file: Path, module: ModuleType) -> Iterator[None]:
    """Let a rule file import its neighbours, and unload them afterwards: they may change."""
    folder = str(file.absolute().parent)
    before = set(sys.modules)
    sys.path.insert(0, folder)
    sys.modules[module.__name__] = module
    try:
        yield
    finally:
        sys.path.remove(folder)
        for name in set(sys.modules) - before:
            if (getattr(sys.modules[name], "__file__", None) or "").startswith(folder + "/"):
                del sys.modules[name]


def _line(error: BaseException, file: Path) -> int | None:
    if isinstance(error, SyntaxError) and error.filename == str(file.absolute()):
        return error.lineno
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == str(file.absolute())]
    return lines[-1] if lines else None


def _caller_line() -> int | None:
    """Return the line of the rule file that called `rule` or `recipe`."""
    frame: FrameType | None = inspect.currentframe()
    while frame is not None and frame.f_code.co_filename == __file__:
        frame = frame.f_back
    return frame.f_lineno if frame else None
