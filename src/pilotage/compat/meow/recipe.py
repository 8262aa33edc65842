"""What MEOW runs: shell scripts, Python scripts and notebooks."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from pilotage.base import text
from pilotage.compat.meow import check, default
from pilotage.job import model


class Recipe:
    """What runs, with the defaults of its variables."""

    #: The type of the jobs that it makes.
    job_type: ClassVar[str]

    name: str
    parameters: dict[str, Any]
    requirements: dict[str, Any]

    def __post_init__(self) -> None:
        """Refuse what cannot work."""
        check.name(self.name, "the name of a recipe")
        self.parameters = check.facts(self.parameters, "parameters")
        self.requirements = check.facts(self.requirements, "requirements")

    def payload(self, supplied: AbstractSet[str]) -> model.Recipe:
        """Say what runs where a pattern supplies these names."""
        raise NotImplementedError


@dataclass
class BashRecipe(Recipe):
    """Lines of a shell script; parameters are environment variables."""

    name: str
    recipe: list[str]
    parameters: dict[str, Any] = field(default_factory=dict)
    requirements: dict[str, Any] = field(default_factory=dict)
    source: str = ""

    job_type = "bash"

    def __post_init__(self) -> None:
        """Refuse what cannot work."""
        super().__post_init__()
        check.suffix(self.source, (".sh", ".bash"), "source")
        self.recipe = check.lines(self.recipe, "recipe")

    def payload(self, supplied: AbstractSet[str]) -> model.Script:
        """Say what runs where a pattern supplies these names."""
        return model.Script(source=default.bash(_join(self.recipe), supplied))


@dataclass
class PythonRecipe(Recipe):
    """Lines of a Python script; parameters are its first globals."""

    name: str
    recipe: list[str]
    parameters: dict[str, Any] = field(default_factory=dict)
    requirements: dict[str, Any] = field(default_factory=dict)

    job_type = "python"

    def __post_init__(self) -> None:
        """Refuse what cannot work."""
        super().__post_init__()
        self.recipe = check.lines(self.recipe, "recipe")

    def payload(self, supplied: AbstractSet[str]) -> model.Python:
        """Say what runs where a pattern supplies these names."""
        return model.Python(source=default.python(_join(self.recipe), supplied))


@dataclass
class JupyterNotebookRecipe(Recipe):
    """A notebook, run by papermill."""

    name: str
    recipe: dict[str, Any]
    parameters: dict[str, Any] = field(default_factory=dict)
    requirements: dict[str, Any] = field(default_factory=dict)
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
        """Say what runs where a pattern supplies these names."""
        content = default.notebook(self.recipe, supplied)
        # Papermill runs nothing that does not say in which language it is.
        facts = content.setdefault("metadata", {})
        facts.setdefault("kernelspec", {"name": "python3", "display_name": "Python 3"})
        facts.setdefault("language_info", {"name": default.language(content)})
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
