"""Functions become recipes that need nothing of the program around them."""

from __future__ import annotations

import functools
import json
import math
import os
import os.path
import sys
import traceback
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pilotage.base import errors
from pilotage.client import function, options, where, work
from pilotage.client.file import File
from pilotage.client.options import Options
from pilotage.job.model import Call, Command, JobSpec
from pilotage.payload import warm

PROGRAM = """
import math
import os.path as paths
from collections import Counter

SCALE = 3
NAMES = {"a": [1, 2.5, None]}
handle = open(__file__)

class Box:
    def __init__(self, value):
        self.value = scale(value)

def scale(value):
    return value * SCALE

def even(n):
    return n == 0 or odd(n - 1)

def odd(n):
    return n != 0 and even(n - 1)

def wrapped(function):
    return lambda value: function(value) + 1

def work(value):
    return [Box(value).value, math.floor(2.5), paths.join("a", "b"), Counter("aa"), NAMES, even(4)]

def uses_a_file():
    return handle.read()

def outer(bias):
    def inner(value):
        return value + bias
    def free(value):
        return scale(value)
    return inner, free

raise_if_loaded = 1
"""


@pytest.fixture
def program(tmp_path, monkeypatch) -> Iterator[types.ModuleType]:
    """A script that runs, as `__main__`."""
    file = tmp_path / "program.py"
    file.write_text(PROGRAM)
    module = types.ModuleType("__main__")
    module.__file__ = str(file)
    monkeypatch.setitem(sys.modules, "__main__", module)
    exec(compile(PROGRAM, str(file), "exec"), vars(module))  # noqa: S102 - a program for the test
    yield module
    module.handle.close()


def load(recipe: Call) -> Any:
    return warm.find({"function": recipe.function, "source": recipe.source, "file": recipe.file})


@pytest.fixture(autouse=True)
def _same_path(monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))


def test_of_a_program_only_what_the_function_needs_is_sent(program):
    recipe = function.recipe(program.work)
    assert "raise_if_loaded" not in recipe.source
    assert "handle" not in recipe.source
    assert load(recipe)(2) == program.work(2)


def test_a_traceback_tells_the_lines_of_the_file(program):
    found = load(function.recipe(program.work))
    line = PROGRAM.splitlines()[found.__code__.co_firstlineno - 1]
    assert line == "def work(value):"


def test_a_function_inside_another_is_sent_if_it_uses_nothing_of_it(program):
    inner, free = program.outer(1)
    assert load(function.recipe(free))(2) == 6
    with pytest.raises(errors.UsageError, match="uses bias"):
        function.recipe(inner)


def test_what_cannot_be_sent_is_named(program):
    with pytest.raises(errors.UsageError, match="`handle`"):
        function.recipe(program.uses_a_file)


@pytest.mark.parametrize(
    "bad", [lambda: 1, functools.partial(math.sqrt, 2), "x".upper, Path("x").exists]
)
def test_what_has_no_name_of_its_own_is_refused_with_a_hint(bad):
    with pytest.raises(errors.UsageError) as caught:
        function.recipe(bad)
    assert "def" in caught.value.hint


def test_a_function_of_python_itself_is_imported():
    assert load(function.recipe(math.sqrt))(4.0) == 2.0
    assert load(function.recipe(os.path.join))("a", "b") == "a/b"
    assert function.recipe(math.sqrt).source == "from math import sqrt\n"


def test_a_file_is_sent_as_it_is_now(tmp_path, monkeypatch):
    (tmp_path / "plain_module.py").write_text("VALUE = 1\ndef f():\n    return VALUE\n")
    monkeypatch.syspath_prepend(tmp_path)
    import plain_module  # type: ignore[import-not-found]

    recipe = function.recipe(plain_module.f)
    (tmp_path / "plain_module.py").write_text("broken(")
    assert recipe.file == str(tmp_path / "plain_module.py")
    assert load(recipe)() == 1


def test_a_function_of_a_package_finds_its_neighbours(tmp_path, monkeypatch):
    package = tmp_path / "some_package"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "other.py").write_text("VALUE = 2\n")
    (package / "mine.py").write_text("from .other import VALUE\ndef f():\n    return VALUE\n")
    monkeypatch.syspath_prepend(tmp_path)
    from some_package import mine  # type: ignore[import-not-found]

    recipe = function.recipe(mine.f)
    for name in [name for name in sys.modules if name.startswith("some_package")]:
        monkeypatch.delitem(sys.modules, name)
    sys.path.remove(str(tmp_path))
    assert load(recipe)() == 2


def test_another_version_of_a_package_is_another_recipe(tmp_path, monkeypatch):
    package = tmp_path / "next_package"
    package.mkdir()
    (package / "mine.py").write_text("def f():\n    return 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    from next_package import mine  # type: ignore[import-not-found]

    before = function.recipe(mine.f)
    assert function.recipe(mine.f) == before
    os.utime(package / "mine.py", (1, 1))
    assert function.recipe(mine.f) != before


# -- arguments -----------------------------------------------------------------------------------


def test_arguments_are_json():
    assert work.encode_call((1, "é", None, True), {}) == '[[1,"é",null,true],{}]'.encode()
    assert work.encode_call(((1, 2.5),), {"a": {"b": []}}) == b'[[[1,2.5]],{"a":{"b":[]}}]'
    assert work.encode_call((2**70,), {}) == b"[[%d],{}]" % 2**70


@pytest.mark.parametrize(
    "bad", [object(), {1, 2}, float("nan"), math.inf, b"x", "\udcff", {(1,): 2}]
)
def test_an_argument_that_is_not_json_is_refused_before_it_is_sent(bad):
    for args, kwargs in (((bad,), {}), ((), {"x": bad})):
        with pytest.raises(errors.UsageError) as caught:
            work.encode_call(args, kwargs)
        assert caught.value.hint


def test_an_argument_that_is_too_large_is_refused():
    with pytest.raises(errors.TooLarge):
        work.encode_call((["x" * (9 << 20)],), {})


# -- options -------------------------------------------------------------------------------------


def test_options_become_a_definition():
    wanted = options.change(
        Options(),
        {"cpus": 4, "memory": "8G", "timeout": "2h", "retries": 2, "priority": 5, "name": "fit"},
    )
    spec = wanted.spec(Command(("x",)), "x")
    assert (spec.name, spec.priority, spec.retry.attempts) == ("fit", 5, 3)
    assert (spec.resources.cpus, spec.resources.memory) == (4, 8 * 10**9)
    assert spec.resources.time == 7200.0


def test_an_option_that_is_not_there_is_refused():
    for bad in ({"cpu": 4}, {"cpus": "four"}):
        with pytest.raises(errors.UsageError, match="options"):
            options.change(Options(), bad)


def test_the_arguments_of_a_program_are_not_templates():
    assert options.command(["echo", "{path}"]).argv == ("echo", "{{path}}")
    for bad in ([], ["a", 1]):
        with pytest.raises(errors.UsageError):
            options.command(bad)  # type: ignore[arg-type]


def test_a_job_takes_no_arguments_and_is_no_shell_line():
    with pytest.raises(errors.UsageError, match="only functions"):
        work.Definitions(Options()).of_job(["echo"], (1,))
    with pytest.raises(errors.UsageError, match="list of text"):
        work.Definitions(Options()).of_job("echo hi", ())
    spec = JobSpec(Command(("x",)), "mine")
    assert b'"mine"' in work.Definitions(Options()).of_job(spec, ())


def test_a_function_is_looked_at_once():
    known = work.Definitions(Options(name="root", python="/opt/python"))
    first = known.of_call(math.sqrt, (4,), {})
    assert first.spec is known.of_call(math.sqrt, (9,), {}).spec
    assert b"/opt/python" in first.spec


def test_names_of_files_are_checked_before_anything_is_sent():
    for good, name in (("a/b.txt", "a/b.txt"), ("./a//b", "a/b"), (Path("é {x}"), "é {x}")):
        assert File(good).path == name
    for bad in ("", "/etc/passwd", "../x", "a/../../x", ".", "a/..", "x\0"):
        with pytest.raises(errors.UsageError):
            File(bad)
        for name in ("inputs", "outputs"):
            with pytest.raises(errors.UsageError):
                options.change(Options(), {name: [bad]})
    for change in ({"inputs": "x"}, {"inputs": 1}, {"inputs": {"a": "b"}}, {"outputs": "x"}):
        with pytest.raises(errors.UsageError, match="puts"):
            options.change(Options(), change)
    with pytest.raises(AttributeError):
        File("a").path = "b"  # type: ignore[misc]


def test_options_name_files_that_are_no_templates():
    wanted = options.change(Options(), {"inputs": [Path("in/{x}")], "outputs": {"o": "{y}"}})
    spec = wanted.spec(Command(("x",)), "x")
    assert (spec.inputs, spec.outputs, spec.cwd) == (("in/{{x}}",), {"o": "{{y}}"}, ".")
    assert wanted.spec(Call("f"), "f").cwd == ""
    assert options.change(wanted, {"cwd": "a"}).spec(Command(("x",)), "x").cwd == "a"
    listed = options.change(Options(), {"outputs": ["a/b"], "optional_outputs": ["c"]})
    assert (listed.outputs, listed.optional_outputs) == ({"a/b": "a/b"}, {"c": "c"})


def test_an_application_takes_arguments_and_parameters():
    wanted = options.change(Options(), {"app": "sim", "params": {"n": 1, "t": ["{x}"]}})
    spec = json.loads(work.Definitions(wanted).of_job(["{a}"], ()))
    assert spec["recipe"] == {"kind": "app", "app": "sim", "args": ["{{a}}"]}
    assert (spec["name"], spec["params"]) == ("sim", {"n": 1, "t": ["{{x}}"]})


def test_a_keyword_is_an_option_unless_the_function_takes_it():
    def plain(value, site=""):
        return value, site

    def open_(**kwargs):
        return kwargs

    given = {"site": "x", "inputs": ["a"], "cpus": 2, "other": 1}
    assert work.options_among(plain, given) == {"inputs": ["a"], "cpus": 2}
    assert work.options_among(open_, given) == {}
    assert work.options_among(["echo"], given) == given
    assert work.options_among(plain, {"value": 1}) == {}
    with pytest.raises(errors.UsageError, match="in itself"):
        work.options_among(JobSpec(Command(("x",)), "x"), given)


def test_files_among_arguments_are_a_job_of_their_own():
    known = work.Definitions(Options())
    assert known.of_call(math.sqrt, (4,), {}).binding == b""
    found = [
        known.of_call(math.sqrt, ([{"a": (File(name), 2)}],), {"to": File("out", output=True)})
        for name in ("x[1]", "y")
    ]
    assert found[0].spec is found[1].spec
    spec = json.loads(found[0].spec)
    assert spec["inputs"] == ["{message.reads.0}"]
    assert spec["outputs"] == {"argument-0": "{message.writes.0}"}
    data = json.loads(found[0].binding)["data"]
    assert data["calls"] == [[[[{"a": ["x[1]", 2]}]], {"to": "out"}]]
    assert data["files"] == [
        {"at": [0, 0, 0, 0, "a", 0], "path": "x[1]"}, {"at": [0, 1, "to"], "path": "out"},
    ]  # fmt: skip
    assert (data["reads"], data["writes"]) == (["x[[]1]"], ["out"])
    warm.put_files(data, "/w")
    assert data["calls"] == [[[[{"a": [Path("/w/x[1]"), 2]}]], {"to": Path("/w/out")}]]


def test_many_calls_share_jobs_unless_they_have_files():
    known = work.Definitions(Options())
    spec, calls, own = known.of_calls(math.sqrt, [(1,), (2,)])
    assert (len(calls), own) == (2, [])
    _, calls, own = known.of_calls(math.sqrt, [(1,), (File("a"),)])
    assert (calls, len(own)) == ([], 2)
    assert own[0] == (spec, b"[[1],{}]", b'{"data":{"calls":[[[1],{}]]}}')
    reading = known.changed({"inputs": ["a"]})
    assert [bool(one.binding) for one in reading.of_calls(math.sqrt, [(1,), (2,)])[2]] == [True] * 2
    with pytest.raises(errors.UsageError, match="same outputs"):
        known.changed({"outputs": ["a"]}).of_calls(math.sqrt, [(1,), (2,)])


# -- where ---------------------------------------------------------------------------------------


@pytest.fixture
def nowhere(tmp_path: Path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in (where.HUB, where.TOKEN, where.LOADING):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def test_what_is_given_counts_first(nowhere, monkeypatch):
    monkeypatch.setenv(where.HUB, "http://other:1")
    monkeypatch.setenv(where.TOKEN, "theirs")
    assert where.find("https://hub", "mine", "/ca") == where.Address(
        "hub", 8420, "mine", True, "/ca"
    )
    assert where.find() == where.Address("other", 1, "theirs")
    assert where.find("hub:9").name == "hub:9"
    assert where.find("http://[::1]:9").name == "[::1]:9"


def test_the_project_above_tells_the_rest(nowhere, monkeypatch):
    state = nowhere / ".pilotage"
    state.mkdir()
    (nowhere / "below").mkdir()
    monkeypatch.chdir(nowhere / "below")
    with pytest.raises(errors.NoRunner):
        where.find()
    (state / "hub.json").write_text('{"url":"https://127.0.0.1:5","ca":"/x"}')
    with pytest.raises(errors.Denied):
        where.find()
    (state / "admin-token").write_text("pil_a_x\n")
    assert where.find() == where.Address("127.0.0.1", 5, "pil_a_x", secure=True, ca="/x")


def test_only_its_own_hub_gets_the_token_of_a_project(nowhere):
    state = nowhere / ".pilotage"
    state.mkdir()
    (state / "hub.json").write_text('{"url":"http://127.0.0.1:5"}')
    (state / "admin-token").write_text("pil_a_x\n")
    assert where.find("127.0.0.1:5").token == "pil_a_x"
    for other in ("http://127.0.0.1:6", "https://hub.example.org:5", "hub.example.org"):
        with pytest.raises(errors.Denied, match="no token for the hub") as caught:
            where.find(other)
        assert where.TOKEN in caught.value.hint


def test_an_address_without_a_scheme_is_encrypted_unless_it_is_here(nowhere):
    assert where.find("hub.example.org", "token").secure
    assert not where.find("localhost:9", "token").secure


def test_what_to_do_is_in_the_traceback_of_who_does_not_catch_it(nowhere):
    with pytest.raises(errors.NoProject) as caught:
        where.find()
    assert "hint: give `url` and `token`" in "".join(traceback.format_exception(caught.value))


def test_without_a_project_and_an_address_it_says_what_to_do(nowhere):
    with pytest.raises(errors.NoProject) as caught:
        where.find()
    assert "PILOTAGE_HUB" in caught.value.hint
    for bad in ("ftp://hub", "http://hub:99999", "http://"):
        with pytest.raises(errors.UsageError):
            where.find(bad, "token")


def test_a_file_that_connects_while_it_is_loaded_in_a_worker_is_refused(nowhere, monkeypatch):
    monkeypatch.setenv(where.LOADING, "1")
    with pytest.raises(errors.UsageError, match="while it is loaded") as caught:
        where.find("http://hub", "token")
    assert "__main__" in caught.value.hint
