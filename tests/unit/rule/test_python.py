"""Books in Python: decorated functions and declarations."""

from __future__ import annotations

import sys
import textwrap

import pytest

from pilotage.base import errors
from pilotage.job.model import Command, Python
from pilotage.rule import files
from pilotage.rule.python import rule


@pytest.fixture
def write(tmp_path):
    def write_book(text):
        file = tmp_path / "steps.py"
        file.write_text("from pilotage.rule.python import recipe, rule\n" + textwrap.dedent(text))
        return file

    return write_book


def test_functions_and_declarations(write, tmp_path):
    (tmp_path / "beside.py").write_text("LEVELS = [1, 2]")
    file = write("""
        import beside
        from pathlib import Path

        @rule(files=Path("raw/{scan}.csv"), sweep={"level": beside.LEVELS},
              outputs={"out": "clean/{scan}.{level}"})
        @rule(name="again", every="1h")
        def clean(path, level): ...

        count = rule(files="clean/*.csv", run=("wc", "-l", "{path}"))
        late = rule(every=3, recipe="shared")

        @recipe(cpus=4)
        def shared(): ...

        also = clean
        """)
    found = files.load(file, "/p")
    assert list(found.rules) == ["again", "clean", "count", "late"]
    assert found.rules["clean"].spec.recipe == Python(str(file), "", "clean")
    assert found.rules["clean"].points == ({"level": 1}, {"level": 2})
    assert found.rules["clean"].line == 6
    assert found.rules["count"].spec.recipe == Command(("wc", "-l", "{path}"))
    assert found.rules["late"].spec.resources.cpus == 4
    assert "beside" not in sys.modules
    assert str(tmp_path) not in sys.path


def test_a_decorated_function_stays_itself():
    def double(number):
        return 2 * number

    assert rule(files="x")(double) is double
    assert double(4) == 8


@pytest.mark.parametrize(
    "text, message",
    [
        ("\n1/0\n", ":3: ZeroDivisionError: division by zero"),
        ("def f(:\n", ":2: SyntaxError: "),
        ("import sys\nsys.exit(3)\n", ":3: SystemExit: 3"),
        ("@rule(fils='x')\ndef f(): ...\n", ":2: rule.f.fils: there is no key 'fils'"),
        (
            "@rule(files='x', run=['x'])\ndef f(): ...\n",
            ":2: rule.f.run: the function is what runs already",
        ),
        ("r = rule(files='x', run=['a'], params={'x': {1}})\n", ":2: rule.r.params.x: {1} is not"),
    ],
)
def test_a_mistake_is_told_with_its_line(write, text, message):
    file = write(text)
    with pytest.raises(errors.BadRule) as caught:
        files.load(file, "/p")
    assert str(caught.value).startswith(f"{file}{message}")
