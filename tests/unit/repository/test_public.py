"""What a program may import: exactly what we say, and without cost until it is used."""

from __future__ import annotations

import ast
import importlib
import importlib.metadata
import inspect
import pkgutil
import tomllib
from pathlib import Path

import pytest

import pilotage
import pilotage.book
from pilotage.client import file, sync
from pilotage.flow import build
from pilotage.hub.project import Project
from pilotage.rule import python
from tests.suite import every

ROOT = Path(__file__).parents[3]


def modules() -> list[str]:
    """List every module of ours, except those that run when they are imported."""
    found = pkgutil.walk_packages(pilotage.__path__, "pilotage.")
    return sorted(info.name for info in found if not info.name.endswith("__main__"))


def test_what_can_be_imported_is_what_is_said():
    assert pilotage.__all__ == ["File", "Flow", "Project", "__version__", "connect"]
    assert pilotage.File is file.File
    assert pilotage.Flow is build.Flow
    assert pilotage.Project is Project
    assert pilotage.connect is sync.connect
    assert sorted(pilotage.book.__all__) == ["recipe", "rule"]
    assert pilotage.book.rule is python.rule
    assert pilotage.book.recipe is python.recipe


def test_nothing_else_is_there():
    with pytest.raises(AttributeError, match="'pilotage' has no attribute 'Nothing'"):
        pilotage.Nothing  # noqa: B018 - asking is the test


def test_the_version_is_the_one_of_the_package():
    written = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    assert pilotage.__version__ == written["project"]["version"]


def test_importing_pilotage_imports_nothing_else():
    tree = ast.parse((ROOT / "src/pilotage/__init__.py").read_text("utf-8"))
    found = [node for node in tree.body if isinstance(node, (ast.Import, ast.ImportFrom))]
    assert {getattr(node, "module", None) for node in found} == {"__future__", "typing"}


def test_every_module_says_what_it_is_and_keeps_its_word():
    with every.cases() as case:
        for name in modules():
            with case(name):
                module = importlib.import_module(name)
                assert inspect.getdoc(module)
                listed = getattr(module, "__all__", [])
                assert [each for each in listed if not hasattr(module, each)] == []
                assert len(set(listed)) == len(listed)


def test_every_public_name_of_a_project_says_what_it_does():
    public = [name for name in vars(Project) if not name.startswith("_")]
    assert public
    assert [name for name in public if not inspect.getdoc(getattr(Project, name))] == []
