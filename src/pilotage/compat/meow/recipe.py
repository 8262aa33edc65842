"""MEOW recipes: shell scripts, Python scripts and notebooks."""

from __future__ import annotations

import ast
import copy
import re
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from pilotage.base import text
from pilotage.compat.meow import check
from pilotage.job import model

_SHELL = re.compile(r"((?:export|readonly|declare|typeset)(?:\s+-\w+)*\s+)?(\w+)=(.*)")
_HERE = re.compile(r"(?<!<)<<-?\s*[\"'\\]?(\w+)")
_MAGIC = re.compile(r"^(\s*)[%!?]", re.MULTILINE)


def bash(source: str, names: AbstractSet[str]) -> str:
    """Rename the defaults of a shell script to unused variables.

    What is assigned may go on over lines or run programs; a name can always be another.
    """
    lines, left, skip_to = source.split("\n"), set(names), 0
    for at, line in enumerate(lines):
        found = _SHELL.match(line) if at >= skip_to else None
        if found and found[2] in left:
            left.remove(found[2])
            if not re.search(rf"\$\{{?{found[2]}\b", found[3]):
                lines[at] = f"{found[1] or ''}_default_{found[2]}={found[3]}"
        if at >= skip_to and (here := _HERE.search(line)):
            skip_to = _end(lines, at, here[1])
    return "\n".join(lines)


def _end(lines: Sequence[str], start: int, word: str) -> int:
    """Find the end of a here-document; `1 << n` begins none."""
    ends = (at for at in range(start + 1, len(lines)) if lines[at].strip("\t") == word)
    return next(ends, start)


def python(source: str, names: AbstractSet[str]) -> str:
    """Blank the defaults of a Python script."""
    return _python(source, names, set(names))


def notebook(content: dict[str, Any], names: AbstractSet[str]) -> dict[str, Any]:
    """Blank the defaults of a notebook, if it is in Python."""
    changed, left = copy.deepcopy(content), set(names)
    if language(content) == "python":
        for cell in changed["cells"]:
            if cell.get("cell_type") == "code":
                cell["source"] = _python("".join(cell["source"]), names, left)
    return changed


def language(content: dict[str, Any]) -> str:
    """Return in which language a notebook is; Python, if it does not tell."""
    facts = content.get("metadata", {})
    named = facts.get("language_info", {}).get("name")
    return str(named or facts.get("kernelspec", {}).get("language") or "python")


def _python(source: str, names: AbstractSet[str], left: set[str]) -> str:
    try:
        # Lines for IPython are comments to the parser; they stay in the source.
        tree = ast.parse(_MAGIC.sub(r"\1#", source))
    except (SyntaxError, ValueError):
        return source  # The job will say what is wrong with it, with the right line.
    lines = source.encode().split(b"\n")
    for node in reversed(list(_defaults(tree.body, names, left))):
        first, last = node.lineno - 1, (node.end_lineno or node.lineno) - 1
        head, tail = lines[first][: node.col_offset], lines[last][node.end_col_offset :]
        blank = b"(" + b"\n" * (last - first) + b")" if last > first else b"pass"
        lines[first : last + 1] = (head + blank + tail).split(b"\n")
    return b"\n".join(lines).decode()


def _defaults(
    body: Sequence[ast.stmt], names: AbstractSet[str], left: set[str]
) -> Iterator[ast.Assign | ast.AnnAssign]:
    """Yield the first assignment to each name, unless it makes the value from itself."""
    for node in body:
        if isinstance(node, ast.If) and "__name__" in _names(node.test, ast.Load):
            yield from _defaults(node.body, names, left)
        if not isinstance(node, (ast.Assign, ast.AnnAssign)) or node.value is None:
            continue
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        bound = set().union(*(_names(target, ast.Store) for target in targets))
        if not bound & left:
            continue
        left -= bound
        if bound & _names(node.value, ast.Load):
            continue
        if not bound <= names:
            told = ", ".join(sorted(bound))
            raise ValueError(f"line {node.lineno} of a recipe assigns {told} together: split it")
        yield node


def _names(node: ast.AST, context: type[ast.expr_context]) -> set[str]:
    return {
        found.id
        for found in ast.walk(node)
        if isinstance(found, ast.Name) and isinstance(found.ctx, context)
    }


@dataclass
class Recipe:
    """What runs, with the defaults of its variables."""

    #: The type of the jobs that it makes.
    job_type: ClassVar[str]

    name: str
    recipe: Any
    parameters: dict[str, Any] = field(default_factory=dict)
    requirements: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check.name(self.name, "the name of a recipe")
        self.parameters = check.facts(self.parameters, "parameters")
        self.requirements = check.facts(self.requirements, "requirements")

    def payload(self, supplied: AbstractSet[str]) -> model.Recipe:
        """Return what runs where a pattern supplies these names."""
        raise NotImplementedError


@dataclass
class BashRecipe(Recipe):
    """Lines of a shell script; parameters are environment variables."""

    recipe: list[str]
    source: str = ""

    job_type = "bash"

    def __post_init__(self) -> None:
        super().__post_init__()
        check.suffix(self.source, (".sh", ".bash"), "source")
        self.recipe = check.lines(self.recipe, "recipe")

    def payload(self, supplied: AbstractSet[str]) -> model.Script:
        """Return what runs where a pattern supplies these names."""
        return model.Script(source=bash(_join(self.recipe), supplied))


@dataclass
class PythonRecipe(Recipe):
    """Lines of a Python script; parameters are its first globals."""

    recipe: list[str]

    job_type = "python"

    def __post_init__(self) -> None:
        super().__post_init__()
        self.recipe = check.lines(self.recipe, "recipe")

    def payload(self, supplied: AbstractSet[str]) -> model.Python:
        """Return what runs where a pattern supplies these names."""
        return model.Python(source=python(_join(self.recipe), supplied))


@dataclass
class JupyterNotebookRecipe(Recipe):
    """A notebook, run by papermill."""

    recipe: dict[str, Any]
    source: str = ""

    job_type = "papermill"

    def __post_init__(self) -> None:
        """Refuse what is no notebook."""
        super().__post_init__()
        check.suffix(self.source, (".ipynb",), "source")
        cells = check.kind(self.recipe, dict, "recipe").get("cells")
        if not isinstance(cells, list) or "nbformat" not in self.recipe:
            raise ValueError(f"recipe {self.name!r} is not a notebook: no cells or no nbformat")

    def payload(self, supplied: AbstractSet[str]) -> model.Notebook:
        """Return what runs where a pattern supplies these names."""
        content = notebook(self.recipe, supplied)
        # Papermill runs nothing that does not say in which language it is.
        facts = content.setdefault("metadata", {})
        facts.setdefault("kernelspec", {"name": "python3", "display_name": "Python 3"})
        facts.setdefault("language_info", {"name": language(content)})
        return model.Notebook(source=text.dump(content))


def get_recipe_from_notebook(
    name: str,
    notebook_filename: str,
    parameters: dict[str, Any] | None = None,
    requirements: dict[str, Any] | None = None,
) -> JupyterNotebookRecipe:
    """Make a recipe of a notebook file."""
    check.suffix(
        check.name(notebook_filename, "notebook_filename"), (".ipynb",), "notebook_filename"
    )
    content = text.load(Path(notebook_filename).read_bytes())
    return JupyterNotebookRecipe(
        name, content, parameters or {}, requirements or {}, notebook_filename
    )


def create_python_requirements(
    modules: str | list[str] = "", version: str = "", environment: str = ""
) -> dict[str, dict[str, Any]]:
    """Write down what a recipe needs of Python; jobs carry it in `MEOW_RULE` and `job.yml`."""
    wanted = [modules] if isinstance(modules, str) else check.kind(modules, list, "modules")
    facts = {"modules": [name for name in wanted if name], "version": version}
    facts["environment"] = environment
    return {"python": {name: fact for name, fact in facts.items() if fact}}


def _join(lines: list[str]) -> str:
    return "".join(f"{line.removesuffix(chr(10))}\n" for line in lines)
