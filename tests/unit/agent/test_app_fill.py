"""Parameters become arguments: whatever they hold, one is one, and the template stays as it is."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pilotage.agent.app import command
from pilotage.agent.app.model import Application, Config, Parameter
from pilotage.base import errors
from pilotage.bus.model import Job, Resources
from pilotage.bus.wire import BAD
from pilotage.job import model, template
from pilotage.run import launch
from tests.corpus import injection

ANY = Parameter(kind="text", pattern="(?s).*", longest=4096, dash=True)


def app(argv: tuple[Any, ...] = (), **parameters: Parameter) -> Application:
    return Application(executable="/bin/sim", sha256="0" * 64, argv=argv, parameter=parameters)


JOB = Job(site="here", application="sim", nodes=2, tasks=4, resources=Resources(cpus=3))


def argv(one: Application, job: Job = JOB, **given: Any) -> tuple[str, ...]:
    return command.make(one, job, given).argv


def refused(one: Parameter, raw: object) -> str:
    with pytest.raises(errors.Denied) as caught:
        argv(app(("{x}",), x=one), x=raw)
    assert "`x`" in str(caught.value)
    return str(caught.value)


def taken(one: Parameter, raw: object) -> tuple[str, ...]:
    return argv(app(("{x}",), x=one), x=raw)[1:]


# -- the kinds -----------------------------------------------------------------------------------


def test_every_kind_of_parameter():
    assert taken(Parameter(kind="integer"), 7) == ("7",)
    assert taken(Parameter(kind="integer"), "7") == ("7",)
    assert taken(Parameter(kind="number"), 0.5) == ("0.5",)
    assert taken(Parameter(kind="number"), "1e3") == ("1000.0",)
    assert taken(Parameter(kind="number", minimum=-1), -0.5) == ("-0.5",)
    assert taken(Parameter(kind="text", pattern="[a-z]+"), "abc") == ("abc",)
    assert taken(Parameter(kind="choice", choices=("a", "-b")), "-b") == ("-b",)
    assert taken(Parameter(kind="path"), "in/x.dat") == ("./in/x.dat",)
    assert taken(Parameter(kind="path"), "-rf") == ("./-rf",)
    assert taken(Parameter(kind="flag", flag="--fast"), True) == ("--fast",)
    assert taken(Parameter(kind="flag", flag="--fast"), False) == ()
    assert taken(Parameter(kind="flag", flag="--fast"), "yes") == ("--fast",)


@pytest.mark.parametrize(
    "one, raw",
    [
        (Parameter(kind="integer"), -1),
        (Parameter(kind="integer"), 1.5),
        (Parameter(kind="integer"), True),
        (Parameter(kind="integer"), "1 "),
        (Parameter(kind="integer"), "0x10"),
        (Parameter(kind="integer"), "\u0661"),
        (Parameter(kind="integer", maximum=5), 6),
        (Parameter(kind="integer"), "9" * 30),
        (Parameter(kind="number"), "nan"),
        (Parameter(kind="number"), "inf"),
        (Parameter(kind="number"), float("nan")),
        (Parameter(kind="number", maximum=1), "1e300"),
        (Parameter(kind="text", pattern="[a-z]+"), "abc\n"),
        (Parameter(kind="text", pattern="[a-z]+"), "abcD"),
        (Parameter(kind="text", pattern="a|b"), "ab"),
        (Parameter(kind="text", pattern=".*"), "-x"),
        (Parameter(kind="text", pattern=".*", longest=3), "abcd"),
        (Parameter(kind="text", pattern=".*"), None),
        (Parameter(kind="text", pattern=".*"), ["a"]),
        (Parameter(kind="choice", choices=("a",)), "A"),
        (Parameter(kind="path"), "../x"),
        (Parameter(kind="path"), "/etc/passwd"),
        (Parameter(kind="path"), ""),
        (Parameter(kind="path", pattern=r".*\.dat"), "x.txt"),
        (Parameter(kind="flag", flag="--fast"), "maybe"),
        (Parameter(kind="flag", flag="--fast"), 1),
    ],
)
def test_what_a_parameter_may_not_be(one: Parameter, raw: object):
    assert refused(one, raw)


def test_all_that_is_wrong_is_told_at_once():
    one = app(("{a}",), a=Parameter(kind="integer"), b=Parameter(kind="integer"))
    _, reasons = command.fill_values(one, {"a": "x", "c": 1})
    assert len(reasons) == 3
    assert [name in " ".join(reasons) for name in ("`a`", "`b`", "`c`")] == [True] * 3


def test_what_is_absent_takes_its_group_with_it():
    one = app(
        ("run", ("--seed", "{seed}"), "--label={label}", "{fast}", "end"),
        seed=Parameter(kind="integer", required=False),
        label=Parameter(kind="text", pattern=".*", required=False),
        fast=Parameter(kind="flag", flag="--fast"),
    )
    assert argv(one)[1:] == ("run", "end")
    assert argv(one, seed=1, label="", fast=True)[1:] == (
        "run", "--seed", "1", "--label=", "--fast", "end",
    )  # fmt: skip


def test_defaults_and_words_of_ours():
    one = app(
        ("{n}", "{nodes}x{tasks}={ranks}", "{cpus}", "{{literal}}", "{job}", "{config}"),
        n=Parameter(kind="integer", default=5),
    )
    found = command.make(one, JOB, {}, number=42).argv
    assert found[1:] == ("5", "2x4=8", "3", "{literal}", "42")


@pytest.mark.parametrize(
    "launcher, first",
    [
        ("", ()),
        ("none", ()),
        ("srun", ("srun", "--ntasks=8", "--nodes=2", "--kill-on-bad-exit=1", "--mpi=pmix")),
        ("mpirun", ("mpirun", "-n", "8", "--mpi=pmix")),
    ],
)
def test_what_starts_the_tasks_stands_before_it(launcher: Any, first: tuple[str, ...]):
    one = Application(
        executable="/bin/sim", sha256="", launcher=launcher, launcher_words=("--mpi=pmix",)
    )
    made = command.make(one, JOB, {})
    assert made.argv == (*first, "/bin/sim")
    assert made.launcher == ("none" if launcher else "")


def test_before_and_after_are_filled_too():
    one = Application(
        executable="/bin/sim", sha256="", preprocess=("/bin/pre", "{x}"),
        postprocess=("/bin/post", "{job}"), parameter={"x": ANY}, container="docker://sim",
        env={"A": "1"}, env_allow=("B",),
    )  # fmt: skip
    job = Job(site="s", application="sim", env={"B": "$(x)"})
    made = command.make(one, job, {"x": "; touch PWNED"}, number=3)
    assert made.preprocess == ("/bin/pre", "; touch PWNED")
    assert made.postprocess == ("/bin/post", "3")
    assert made.env == {"A": "1", "B": "$(x)"}
    assert made.image == "docker://sim"


def test_a_variable_that_is_not_let_through_is_refused():
    job = Job(site="s", application="sim", env={"LD_PRELOAD": "/x.so"})
    with pytest.raises(errors.Denied, match="LD_PRELOAD"):
        command.make(app(), job, {})


# -- whatever comes ------------------------------------------------------------------------------

TEMPLATE = ("sub", "--name={x}", "{x}", "pre{x}mid{y}post", ("--group", "{y}"), "{{x}}", "last")


@given(st.text(), st.text())
def test_any_text_stays_within_its_argument(x: str, y: str):
    one = app(TEMPLATE, x=ANY, y=ANY)
    filled, reasons = command.fill_values(one, {"x": x, "y": y})
    if reasons:
        assert any(BAD.search(text) or len(text) > 4096 for text in (x, y))
        return
    assert command.fill_argv(one.argv, filled) == [
        "sub", f"--name={x}", x, f"pre{x}mid{y}post", "--group", y, "{x}", "last",
    ]  # fmt: skip


LITERAL = st.text(st.characters(blacklist_categories=("Cc", "Cs"), blacklist_characters="{}"))


@given(
    st.lists(st.tuples(LITERAL, st.sampled_from(["", "x", "y"]), LITERAL), max_size=8), st.data()
)
def test_the_template_says_how_many_arguments_there_are(parts, data):
    tokens = tuple(f"{head}{{{name}}}{tail}" if name else head + tail for head, name, tail in parts)
    texts = {"x": data.draw(st.text()), "y": data.draw(st.text())}
    one = app(tokens, x=ANY, y=ANY)
    filled, reasons = command.fill_values(one, texts)
    if reasons:
        return
    made = command.fill_argv(one.argv, filled)
    assert len(made) == len(parts)
    for text, (head, name, tail) in zip(made, parts, strict=True):
        assert text == head + texts.get(name, "") + tail


@given(st.text())
def test_the_default_rules_let_nothing_begin_like_an_option(value: str):
    for one in (
        Parameter(kind="text", pattern="(?s).*"), Parameter(kind="path"),
        Parameter(kind="integer"), Parameter(kind="number"),
    ):  # fmt: skip
        text, reason = command.fill_value("x", one, value)
        assert (text is None) != (reason == "")
        if text is not None:
            assert not text.startswith("-")
            assert not BAD.search(text)


@given(st.lists(st.text()))
def test_a_recipe_of_arguments_says_just_them(words: list[str]):
    """Jobs are templates: what a user wrote in braces must come out as it went in."""
    made = command.recipe(words)
    assert template.argv(made.argv, {"job": 1, "x": ["many", "arguments"]}) == words


KINDS = {
    "text": Parameter(kind="text", pattern=r"[A-Za-z0-9_.,:=+/@ -]*"),
    "anything": ANY,
    "integer": Parameter(kind="integer", minimum=-10),
    "number": Parameter(kind="number", minimum=-10),
    "choice": Parameter(kind="choice", choices=("a", "b")),
    "path": Parameter(kind="path"),
    "flag": Parameter(kind="flag", flag="--on"),
}
_SAY = "import json, sys; print(json.dumps(sys.argv[1:]))"


@pytest.mark.parametrize("kind", KINDS)
def test_the_corpus_never_is_more_than_one_argument(kind: str):
    one = app(("first", "{x}", "last"), x=KINDS[kind])
    passed = []
    for value in injection.VALUES:
        text, reason = command.fill_value("x", one.parameter["x"], value)
        if reason:
            assert "`x`" in reason
            continue
        assert text is not None
        made = argv(one, x=value)
        assert made == ("/bin/sim", "first", text, "last")
        if kind not in ("flag", "integer", "number"):
            assert text == (f"./{value}" if kind == "path" else value)
        passed.append(text)
    assert passed or kind in ("choice", "flag")
    # A real program sees the same.
    argument = [sys.executable, "-I", "-S", "-c", _SAY, *passed]
    out = subprocess.run(argument, check=True, capture_output=True)
    assert json.loads(out.stdout) == passed


def test_nothing_of_the_corpus_is_an_option_or_leads_out_unless_allowed():
    for value in injection.VALUES:
        text, _ = command.fill_value(
            "x", Parameter(kind="text", pattern="(?s).*", longest=4096), value
        )
        assert text is None or not re.match(r"-", text)
        path, _ = command.fill_value("x", KINDS["path"], value)
        assert path is None or (path.startswith("./") and ".." not in path.split("/"))


# -- words of a config ---------------------------------------------------------------------------


def test_words_are_checked_each_and_stand_where_the_star_is():
    config = Config(format="words", word=Parameter(kind="text", pattern="[a-z=-]+", dash=True))
    one = Application(executable="/bin/sim", sha256="", argv=("run", "{*}", "end"), config=config)
    assert command.make(one, JOB, {}, ["--a=b", "c"]).argv[1:] == ("run", "--a=b", "c", "end")
    for bad in (["$(x)"], ["a b"], ["ok", ""], ["a"] * 101):
        with pytest.raises(errors.Denied, match="word"):
            command.make(one, JOB, {}, bad)
    with pytest.raises(errors.Denied, match="takes no words"):
        command.make(app(), JOB, {}, ["a"])


# -- on its way to a process ---------------------------------------------------------------------


def test_the_corpus_comes_through_the_definition_of_a_job(tmp_path):
    """What becomes a job is rendered once more where it starts: nothing may change there."""
    passed = tuple(value for value in injection.VALUES if not BAD.search(value))
    spec = model.JobSpec(
        recipe=command.recipe(["/bin/sim", *passed]),
        name="sim",
        env={f"V{at}": command.literal(value) for at, value in enumerate(passed)},
    )
    place = launch.LaunchContext(base=str(tmp_path))
    made = launch.prepare(
        place, spec, model.Binding(path="/in/x"), job=7, attempt=1, folder=str(tmp_path)
    ).launch
    assert made.argv == ("/bin/sim", *passed)
    assert [made.env[f"V{at}"] for at in range(len(passed))] == list(passed)
