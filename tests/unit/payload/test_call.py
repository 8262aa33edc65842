from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from pilotage.payload import call

CALL = Path(call.__file__)


def run(folder: Path, recipe: str, params: dict[str, object], *more: str, name: str = "recipe.py"):
    (folder / name).write_text(recipe)
    (folder / "params.json").write_text(json.dumps(params))
    argv = [sys.executable, str(CALL), "--file", name, "--params", "params.json", *more]
    return subprocess.run(argv, cwd=folder, capture_output=True, text=True, check=False)


def result(folder: Path) -> object:
    return json.loads((folder / "result.json").read_text())


@pytest.mark.parametrize("name", ["recipe.py", "no suffix", "json.py", "a-b.txt"])
def test_a_function_is_called_with_what_it_takes(tmp_path, name):
    recipe = "def f(a, /, b, *, c=3):\n    return [a, b, c]\n"
    params = {"a": 1, "b": "ü", "other": None}
    done = run(tmp_path, recipe, params, "--function", "f", "--result", "result.json", name=name)
    assert (done.returncode, done.stderr) == (0, "")
    assert result(tmp_path) == [1, "ü", 3]
    assert not list(tmp_path.glob("*.part"))


def test_extra_parameters_go_to_keyword_arguments(tmp_path):
    recipe = "def f(a, **rest):\n    return rest\n"
    done = run(tmp_path, recipe, {"a": 1, "x": 2}, "--function", "f", "--result", "result.json")
    assert done.returncode == 0
    assert result(tmp_path) == {"x": 2}


def test_a_file_of_a_package_may_import_its_siblings(tmp_path):
    inner = tmp_path / "outer/inner"
    inner.mkdir(parents=True)
    for name, text in {"__init__.py": "", "inner/__init__.py": "", "base.py": "n = 3\n"}.items():
        (tmp_path / "outer" / name).write_text(text)
    recipe = "from ..base import n\nfrom . import __name__ as me\ndef f():\n    return [me, n]\n"
    done = run(inner, recipe, {}, "--function", "f", "--result", "result.json")
    assert (done.returncode, done.stderr) == (0, "")
    assert result(inner) == ["outer.inner", 3]


def test_missing_parameters_are_named(tmp_path):
    done = run(tmp_path, "def f(a, b, c=1): ...\n", {"c": 2}, "--function", "f")
    assert done.returncode == 2
    assert "f needs parameters that are not given: a, b" in done.stderr


def test_a_missing_function_is_named(tmp_path):
    done = run(tmp_path, "g = 1\n", {}, "--function", "g")
    assert done.returncode == 2
    assert "recipe.py has no function 'g'" in done.stderr


def test_an_exception_is_status_one_with_a_traceback(tmp_path):
    recipe = "def f():\n    raise RuntimeError('out of foam')\n"
    done = run(tmp_path, recipe, {}, "--function", "f", "--result", "result.json")
    assert done.returncode == 1
    assert "RuntimeError: out of foam" in done.stderr
    assert 'recipe.py", line 2, in f' in done.stderr
    assert not (tmp_path / "result.json").exists()


@pytest.mark.parametrize("value, shown", [("{1}", "{1}"), ("float('nan')", "nan")])
def test_a_result_that_json_cannot_hold_is_its_repr(tmp_path, value, shown):
    recipe = f"def f():\n    return {value}\n"
    assert run(tmp_path, recipe, {}, "--function", "f", "--result", "result.json").returncode == 0
    assert result(tmp_path) == shown


def test_a_coroutine_function_is_awaited(tmp_path):
    recipe = "async def f(a):\n    return a\n"
    done = run(tmp_path, recipe, {"a": 5}, "--function", "f", "--result", "result.json")
    assert (done.returncode, done.stderr) == (0, "")
    assert result(tmp_path) == 5


def test_the_recipe_imports_what_lies_beside_it(tmp_path):
    (tmp_path / "model.py").write_text("x = 4\n")
    recipe = "import model\ndef f():\n    return model.x\n"
    assert run(tmp_path, recipe, {}, "--function", "f", "--result", "result.json").returncode == 0
    assert result(tmp_path) == 4


def test_classes_of_the_recipe_know_their_module(tmp_path):
    recipe = (
        "from __future__ import annotations\n"
        "import dataclasses, sys\n"
        "@dataclasses.dataclass\n"
        "class C:\n    x: int\n"
        "def f():\n    return sys.modules[C.__module__].C(2).x\n"
    )
    done = run(tmp_path, recipe, {}, "--function", "f", "--result", "result.json")
    assert (done.returncode, done.stderr) == (0, "")
    assert result(tmp_path) == 2


def test_without_a_function_the_file_is_a_script(tmp_path):
    recipe = "import sys\nif __name__ == '__main__':\n    print(a + 1, sys.argv)\n    sys.exit(7)\n"
    done = run(tmp_path, recipe, {"a": 1})
    assert done.returncode == 7
    assert done.stdout == f"2 {[str(tmp_path / 'recipe.py')]}\n"
