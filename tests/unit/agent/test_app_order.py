"""Applications that take commands or functions: what their files say, and what jobs bring."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pilotage.agent import staging
from pilotage.agent.app import command, files, policy
from pilotage.agent.app.model import Application, Parameter
from pilotage.agent.staging import PreparedJob
from pilotage.base import errors
from pilotage.bus.model import Job
from pilotage.edge import message, order
from pilotage.job import model
from pilotage.match import submission

PYTHON = {"executable": "/usr/bin/python3", "sha256": "0" * 64}
COMMANDS = Application(takes="commands")
FUNCTIONS = Application(takes="functions", **PYTHON)  # type: ignore[arg-type]
BASE = "/project"


def job(config: str, **more: Any) -> Job:
    return Job(site="s", application="commands", config=config, wall_time=60, **more)


def test_such_an_application_has_the_name_that_hubs_know_and_nothing_else():
    files.check("commands", COMMANDS)
    files.check("functions", FUNCTIONS)
    text = Parameter(kind="integer")
    for name, app, word in (
        ("run", COMMANDS, "takes"),
        ("commands", FUNCTIONS, "takes"),
        ("commands", Application(takes="commands", **PYTHON), "executable"),  # type: ignore[arg-type]
        ("commands", Application(takes="commands", argv=("x",)), "argv"),
        ("functions", Application(takes="functions"), "executable"),
        ("functions", Application(takes="functions", parameter={"a": text}, **PYTHON), "parameter"),  # type: ignore[arg-type]
        ("sim", Application(), "executable"),
    ):
        with pytest.raises(files.Mistake) as caught:
            files.check(name, app)
        assert caught.value.keys[0] == word


def test_it_is_read_from_a_file_and_written():
    parsed = files.parse('takes = "commands"\n', "commands", Path("commands.toml"))
    assert parsed == COMMANDS
    assert parsed.programs() == {}
    assert 'takes = "functions"' in files.text("functions", FUNCTIONS)


def test_a_command_becomes_the_program_that_runs():
    asked = job(order.write_command(["sh", "-c", "echo {x}\necho 2", "--y"]))
    assert policy.judge(COMMANDS, asked, "me").allowed
    made = staging.fill(COMMANDS, asked, PreparedJob(), 7)
    assert made.argv == ("sh", "-c", "echo {x}\necho 2", "--y")
    spec = staging.spec_of(model.JobSpec(model.Command(("x",)), "x"), made, "/site/7.1")
    assert spec.recipe == command.recipe(made.argv)
    assert (spec.cwd, spec.base) == ("/site/7.1", "/site/7.1")


def test_a_function_becomes_calls_in_the_python_of_the_site():
    recipe = model.Call("f", source="def f(): pass\n", file="/home/me/f.py", python="/mine")
    asked = job(order.write_function(recipe, {"calls": [[[1], {}]]}))
    assert policy.judge(FUNCTIONS, asked, "me").allowed
    made = staging.fill(FUNCTIONS, asked, PreparedJob(), 7)
    assert made.function == model.Call("f", source=recipe.source, python="/usr/bin/python3")
    assert made.calls == {"calls": [[[1], {}]]}


@pytest.mark.parametrize(
    "config",
    ["", "x", "[]", "{}", '{"argv": []}', '{"argv": [""]}', '{"argv": [1]}', '{"argv": "sh"}',
     '{"argv": ["a\\u0000b"]}', '{"argv": ["a"], "env": {}}', '{"function": "f", "source": "x"}',
     '{"function": "", "source": "x", "calls": {"calls": []}}',
     '{"function": "f", "source": "x", "calls": {"calls": 1}}',
     '{"function": "f", "source": "x", "calls": {"calls": [], "alone": [1]}}'],
)  # fmt: skip
def test_what_is_neither_is_refused(config: str):
    for app in (COMMANDS, FUNCTIONS):
        (reason,) = policy.judge(app, job(config), "me").reasons
        assert "`config` is no" in reason


def test_what_it_does_not_take_is_refused():
    good = order.write_command(["true"])
    for more, word in (
        ({"config_file": "x"}, "config_file"),
        ({"parameters": {"a": 1}}, "parameter"),
        ({"env": {"A": "1"}}, "env"),
    ):
        assert word in " ".join(policy.judge(COMMANDS, job(good, **more), "me").reasons)
    plain = Application(**PYTHON)  # type: ignore[arg-type]
    assert "reads none" in " ".join(policy.judge(plain, job(good), "me").reasons)


def remote(recipe: model.Recipe, binding: model.Binding, **more: Any) -> message.RemoteJob:
    return message.remote(model.JobSpec(recipe, "x", **more), binding, BASE, 5)


def test_a_hub_sends_programs_and_functions_to_such_applications():
    plain = model.Binding()
    one = remote(model.Command(("{base}/bin/fit", "{{x}}", "{job}")), plain, cwd=".")
    assert (one.application, one.parameters) == ("commands", {})
    assert order.command(one.config) == ("./bin/fit", "{x}", "5")
    one = remote(model.Command((f"{BASE}/bin/fit",)), plain, cwd=BASE)
    assert order.command(one.config) == ("./bin/fit",)
    bound = model.Binding(data={"calls": [[["a"], {}]], "writes": ["out/y"]})
    call = model.Call("f", source="x", file="/f.py")
    one = remote(call, bound, outputs={"argument-0": "{message.writes.0}"})
    assert (one.application, one.outputs) == ("functions", {"argument-0": "out/y"})
    assert order.function(one.config).calls == {**bound.data, "alone": ["out/y"]}
    assert "alone" not in order.function(remote(call, bound).config).calls
    for bad in ({"cwd": "sub"}, {"cwd": "/elsewhere"}):
        with pytest.raises(errors.UsageError, match="no folder"):
            remote(model.Command(("x",)), plain, **bad)
    with pytest.raises(errors.UsageError, match="registered"):
        remote(model.Script(source="x"), plain)


def test_a_site_must_have_the_application():
    for recipe, name in ((model.Command(("x",)), "commands"), (model.Call("f"), "functions")):
        asked = submission.requirements(model.JobSpec(recipe, "x", site="far"))
        assert f'"{name}" in applications' in asked
    asked = submission.requirements(model.JobSpec(model.Script(source="x"), "x", site="far"))
    assert asked.endswith("not only_applications")
