"""From what a person wrote of a recipe to the recipe: what runs."""

from __future__ import annotations

import ast
from pathlib import Path

from pilotage import errors
from pilotage.job.model import App, Call, Command, Notebook, Python, Recipe, Script
from pilotage.rule import template
from pilotage.rule.names import closest
from pilotage.rule.place import key
from pilotage.rule.schema import RECIPE_KEYS, RECIPES, RecipeText
from pilotage.rule.trigger import texts


def recipe(written: RecipeText, folder: str) -> Recipe:
    """Build the recipe; files are looked for beside the book."""
    kind = kind_of(written)
    with key(kind):
        match kind:
            case "run":
                return Command(argv=_argv(written.run or ()))
            case "script":
                return _script(written, folder)
            case "python":
                return _python(written, folder)
            case "notebook":
                file = _file(written.notebook or "", folder)
                return Notebook(
                    file=file,
                    output=written.output or "",
                    kernel=written.kernel or "",
                    python=written.python_bin or "",
                )
            case _:
                return App(app=_filled(written.app or ""), args=written.args or ())


def kind_of(written: RecipeText) -> str:
    """Return which of the recipes it is, and complain of keys that do not go with it."""
    kinds = [name for name in RECIPES if getattr(written, name) is not None]
    if len(kinds) != 1:
        told = " and ".join(f"`{name}`" for name in kinds) or "nothing"
        raise errors.BadRule(
            f"a job runs one thing; here it is {told}",
            hint="give exactly one of `run`, `script`, `python`, `notebook`, `app`; "
            "a rule may name a `recipe` instead",
        )
    for name, allowed in RECIPE_KEYS.items():
        if getattr(written, name) is not None and kinds[0] not in allowed:
            with key(name):
                takers = " and ".join(f"`{each}`" for each in allowed)
                raise errors.BadRule(f"this goes with {takers}, not with `{kinds[0]}`")
    return kinds[0]


def check_templates(built: Recipe, known: set[str]) -> None:
    """Complain of keywords that nothing gives."""
    match built:
        case Command(argv=argv):
            with key("run"):
                _check(argv, known)
        case Script(args=args) | App(args=args):
            with key("args"):
                _check(args, known)
        case Notebook(output=output):
            with key("output"):
                _check((output,), known)
        case Python() | Call():
            pass


def _check(parts: tuple[str, ...], known: set[str]) -> None:
    for part in parts:
        template.check(part, known)


def _argv(written: tuple[str, ...]) -> tuple[str, ...]:
    if not written or not written[0]:
        raise errors.BadRule("no program is named", hint='write `run = ["prog", "{path}"]`')
    return written


def _script(written: RecipeText, folder: str) -> Script:
    interpreter, args = texts(written.interpreter), written.args or ()
    text = _filled(written.script or "")
    if "\n" in text:
        return Script(source=text, interpreter=interpreter, args=args)
    return Script(file=_file(text, folder), interpreter=interpreter, args=args)


def _python(written: RecipeText, folder: str) -> Python:
    name, colon, function = _filled(written.python or "").rpartition(":")
    if not colon:
        name, function = function, ""
    file = _file(name, folder)
    if colon:
        _check_function(Path(file), function)
    return Python(file=file, function=function, python=written.python_bin or "")


def _file(name: str, folder: str) -> str:
    if "\0" in _filled(name) or not (file := Path(folder, name)).is_file():
        raise errors.BadRule(f"there is no file {name!r}", hint=f"it is looked for in {folder}")
    return str(file.absolute())


def _filled(text: str) -> str:
    if not text.strip():
        raise errors.BadRule("this is empty")
    return text


def _check_function(file: Path, function: str) -> None:
    try:
        tree = ast.parse(file.read_bytes())
    except (SyntaxError, ValueError) as error:
        raise errors.BadRule(f"{file.name} is not Python: {error}") from None
    except OSError as error:
        raise errors.BadRule(f"{file.name} cannot be read: {error.strerror}") from None
    found = {name for node in tree.body for name in _bound(node)}
    if function not in found and "*" not in found:
        defined = [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]
        raise errors.BadRule(
            f"{file.name} has no function {function!r}", hint=closest(function, defined)
        )


def _bound(node: ast.stmt) -> set[str]:
    """Return the names that a statement of a module may bind."""
    found = {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
    for each in ast.walk(node):
        if isinstance(each, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            found.add(each.name)
        elif isinstance(each, (ast.Import, ast.ImportFrom)):
            found |= {alias.asname or alias.name for alias in each.names}
    return found
