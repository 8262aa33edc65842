"""Build a recipe from its keys in a rule file."""

from __future__ import annotations

import ast
from pathlib import Path

from pilotage.base import errors
from pilotage.base.names import closest
from pilotage.job import template
from pilotage.job.model import App, Call, Command, Notebook, Python, Recipe, Script, Workflow
from pilotage.rule.schema import RECIPE_KEYS, RECIPES, STEP_KEYS, RecipeText
from pilotage.rule.span import key
from pilotage.rule.trigger import texts


def recipe(written: RecipeText, folder: str, base: str = "") -> Recipe:
    """Build the recipe; files are looked for beside the rule file, workflows in `base` as well."""
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
            case "flow":
                return Workflow(file=_workflow(written.flow or "", folder, base))
            case _:
                return App(app=_filled(written.app or ""), args=written.args or ())


def kind_of(written: RecipeText) -> str:
    """Return the kind of the recipe; reject keys that do not belong to it."""
    kinds = [name for name in RECIPES if getattr(written, name) is not None]
    if len(kinds) != 1:
        told = " and ".join(f"`{name}`" for name in kinds) or "nothing"
        raise errors.BadRule(
            f"a job runs one thing; here it is {told}",
            hint="give exactly one of `run`, `script`, `python`, `notebook`, `app`, `flow`; "
            "a rule may name a `recipe` instead",
        )
    for name, allowed in RECIPE_KEYS.items():
        if getattr(written, name) is not None and kinds[0] not in allowed:
            with key(name):
                takers = " and ".join(f"`{each}`" for each in allowed)
                raise errors.BadRule(f"this goes with {takers}, not with `{kinds[0]}`")
    for name in STEP_KEYS if kinds[0] == "flow" else ():
        if getattr(written, name) not in (None, {}):
            with key(name):
                raise errors.BadRule("a workflow has none of its own", hint="give it to its steps")
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
        case Python() | Call() | Workflow():
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
    text, function = _filled(written.python or ""), written.function or ""
    if "\n" in text:
        _check_function(text.encode(), "the text", function)
        return Python(source=text, function=function, python=written.python_bin or "")
    if not function and ":" in text:
        text, _, function = text.rpartition(":")
        _filled(function)
    file = _file(text, folder)
    if function:
        _check_function(_source(Path(file)), Path(file).name, function)
    return Python(file=file, function=function, python=written.python_bin or "")


def _source(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise errors.BadRule(f"{file.name} cannot be read: {error.strerror}") from None


def _file(name: str, folder: str) -> str:
    if "\0" in _filled(name) or not (file := Path(folder, name)).is_file():
        raise errors.BadRule(f"there is no file {name!r}", hint=f"it is looked for in {folder}")
    return str(file.absolute())


def _workflow(name: str, folder: str, base: str) -> str:
    places = [one for one in dict.fromkeys((folder, base)) if one]
    for place in places:
        if "\0" not in _filled(name) and (file := Path(place, name)).is_file():
            return str(file.absolute())
    raise errors.BadRule(
        f"there is no file {name!r}", hint=f"it is looked for in {' and in '.join(places)}"
    )


def _filled(text: str) -> str:
    if not text.strip():
        raise errors.BadRule("this is empty")
    return text


def _check_function(source: bytes, name: str, function: str) -> None:
    """Complain of a function that a text, which people call so, cannot have."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError) as error:
        raise errors.BadRule(f"{name} is not Python: {error}") from None
    found = {bound for node in tree.body for bound in _bound(node)}
    if function and function not in found and "*" not in found:
        defined = [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]
        raise errors.BadRule(
            f"{name} has no function {function!r}", hint=closest(function, defined)
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
