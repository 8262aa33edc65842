"""A job becomes a process: every kind of recipe, and values that would be more than values."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pilotage.base import errors
from pilotage.job import model
from pilotage.payload import call
from pilotage.run import launch
from pilotage.run.model import Launch

PLACE = launch.LaunchContext("/p", {"wc": ("wc", "-l")}, {"PATH": "/bin", "LANG": "C"})
FOLDER = "/p/.pilotage/jobs/0000/7.2"
#: What a file may be called, and then some.
HOSTILE = [
    "a b", "-rf", "--help", "'; rm -rf ~; '", "$(reboot)", "`id`", "a\nb", "\udcff", "{path}", "%s",
    "a\tb", "*", "~", "\\", '"', "é", "&& x", "|", "> y", "#", "\x1b[31m",
]  # fmt: skip
NAMES = st.sampled_from(HOSTILE) | st.text(
    st.characters(exclude_characters="/\0", exclude_categories=["Cs"]), min_size=1
).filter(lambda name: name not in (".", ".."))


def prepare(
    recipe: model.Recipe, binding: model.Binding | None = None, place: launch.LaunchContext = PLACE,
    **spec: Any,
) -> launch.Prepared:  # fmt: skip
    made = model.JobSpec(recipe, "x", **spec)
    bound = binding or model.Binding(path="/p/raw/a.csv", match={"scan": "a"}, sweep={"level": 3})
    return launch.prepare(place, made, bound, job=7, attempt=2, folder=FOLDER)


def process(recipe: model.Recipe, binding: model.Binding | None = None, **spec: Any) -> Launch:
    return prepare(recipe, binding, **spec).launch


# -- every kind of recipe ------------------------------------------------------------------------


def test_a_command():
    one = process(model.Command(("fit", "--in={path}", "{level}", "{name}", "{{x}}")))
    assert one.argv == ("fit", "--in=/p/raw/a.csv", "3", "a.csv", "{x}")
    assert (one.key, one.dir, one.cwd) == ("7.2", FOLDER, FOLDER)


def test_a_list_becomes_many_arguments_only_where_it_stands_alone():
    several = model.Binding(path="/p/b", paths=("/p/a b", "/p/b"))
    one = process(model.Command(("cat", "{paths}", "x={paths}")), several)
    assert one.argv == ("cat", "/p/a b", "/p/b", 'x=["/p/a b","/p/b"]')


def test_an_application():
    assert process(model.App("wc", ("{path}",))).argv == ("wc", "-l", "/p/raw/a.csv")


def test_an_application_that_is_not_registered_is_named():
    with pytest.raises(errors.BadRule, match="no application 'gone'") as caught:
        process(model.App("gone"))
    assert "[app.gone]" in caught.value.hint


@pytest.mark.parametrize(
    "source, interpreter, argv",
    [
        ("echo 1\n", (), ("bash",)),
        ("#!/bin/sh\n", (), ("/bin/sh",)),
        ("#!/usr/bin/env -S python3 -u\nprint()\n", (), ("/usr/bin/env", "-S", "python3", "-u")),
        ("#! /bin/sh\r\n", (), ("/bin/sh",)),
        ("#!\n", (), ("bash",)),
        ("\n#!/bin/sh\n", (), ("bash",)),
        ("#!/bin/sh\n", ("zsh", "-e"), ("zsh", "-e")),
    ],
)
def test_a_script_of_text_and_one_of_a_file(tmp_path, source, interpreter, argv):
    one = process(model.Script(source=source, interpreter=interpreter, args=("{scan}",)))
    assert one.argv == (*argv, f"{FOLDER}/script", "a")
    assert one.files["script"] == source
    file = tmp_path / "run me"
    file.write_bytes(source.encode() + b"\xff")
    two = process(model.Script(file=str(file), interpreter=interpreter, args=("{scan}",)))
    assert two.argv == (*argv, str(file), "a")
    assert "script" not in two.files


@pytest.mark.parametrize("first", ["#!/bin/sh 'open", '#!"', "#!/bin/sh \\"])
def test_a_first_line_that_cannot_be_read_is_the_fault_of_the_script(first):
    with pytest.raises(errors.BadRule, match="first line"):
        process(model.Script(source=first + "\necho\n"))


def test_a_script_that_is_gone_is_told_as_such(tmp_path):
    with pytest.raises(FileNotFoundError):
        process(model.Script(file=str(tmp_path / "gone")))


def test_a_function_of_a_file_and_of_text():
    result = ("--result", f"{FOLDER}/result.json")
    one = process(model.Python(file="/p/f.py", function="clean"))
    assert one.argv == (
        sys.executable, call.__file__, "--file", "/p/f.py", *result,
        "--params", f"{FOLDER}/params.json", "--function", "clean",
    )  # fmt: skip
    two = process(model.Python(source="x = 1\n", python="/opt/python"))
    assert two.argv == (
        "/opt/python", call.__file__, "--file", f"{FOLDER}/recipe.py", *result,
        "--params", f"{FOLDER}/parameters.json",
    )  # fmt: skip
    assert two.files["recipe.py"] == "x = 1\n"
    # The globals of a script are its parameters alone: `dir` would hide a built-in.
    assert json.loads(two.files["parameters.json"]) == {"scan": "a", "level": 3}


def test_a_notebook_of_a_file_and_of_text():
    one = process(
        model.Notebook(file="/p/n.ipynb", output="{scan}.ipynb", kernel="julia", python="/opt/py"),
        params={"gain": 2.5},
    )
    assert one.argv[:5] == ("/opt/py", "-m", "papermill", "/p/n.ipynb", "/p/a.ipynb")
    assert one.argv[-2:] == ("--kernel", "julia")
    assert json.loads(one.files["parameters.json"]) == {"scan": "a", "gain": 2.5, "level": 3}
    two = process(model.Notebook(source="{}"))
    assert two.argv[:5] == (
        sys.executable, "-m", "papermill", f"{FOLDER}/recipe.ipynb", f"{FOLDER}/result.ipynb"
    )  # fmt: skip
    assert two.files["recipe.ipynb"] == "{}"
    assert "--kernel" not in two.argv


# -- parameters, environment, outputs ------------------------------------------------------------


def test_parameters_travel_with_their_types():
    one = process(model.Command(("x",)), params={"gain": 2.5, "who": "{name}", "same": "{level}"})
    written = json.loads(one.files["params.json"])
    expected = {"scan": "a", "gain": 2.5, "who": "a.csv", "same": 3, "level": 3}
    assert {key: written[key] for key in expected} == expected
    assert (written["path"], written["job"]) == ("/p/raw/a.csv", 7)


def test_a_sweep_comes_before_a_parameter_and_a_parameter_before_a_group():
    binding = model.Binding(match={"a": "group", "b": "group"}, sweep={"a": "sweep"})
    spec = {"params": {"a": "param", "b": "param", "c": "param"}}
    written = json.loads(process(model.Command(("x",)), binding, **spec).files["params.json"])
    assert [written[name] for name in "abc"] == ["sweep", "param", "param"]


def test_the_environment_holds_what_is_inherited_asked_for_and_known():
    one = process(
        model.Command(("x",)),
        params={"gain": 2.5, "not a name": 1, "on": True, "none": None},
        env={"LANG": "de", "OUT": "{dir}/out"},
    )
    expected = {
        "PATH": "/bin", "LANG": "de", "OUT": "/p/raw/out", "gain": "2.5", "on": "true", "none": "",
        "level": "3", "scan": "a", "PILOTAGE_PATH": "/p/raw/a.csv", "PILOTAGE_NAME": "a.csv",
        "PILOTAGE_JOB": "7", "PILOTAGE_ATTEMPT": "2", "PILOTAGE_JOB_DIR": FOLDER,
        "PILOTAGE_PARAMS": f"{FOLDER}/params.json",
    }  # fmt: skip
    assert {key: one.env.get(key) for key in expected} == expected
    assert "not a name" not in one.env


def test_what_is_asked_for_reaches_the_process():
    needs = model.Resources(memory=2**30, time=60.0)
    one = process(model.Command(("x",)), resources=needs, cwd="{scan}/work", base="/q")
    assert (one.memory, one.timeout, one.cwd) == (2**30, 60.0, "/q/a/work")


def test_outputs_are_named_in_full():
    made = prepare(
        model.Command(("x",)),
        outputs={"fit": "out/{scan}.json", "top": "/abs/{level}", "up": "out/../{scan}"},
        optional_outputs={"log": "log/{scan}"},
    )
    assert made.outputs == {"fit": "/p/out/a.json", "top": "/abs/3", "up": "/p/a"}
    assert made.optional == {"log": "/p/log/a"}


def test_missing_outputs_are_listed(tmp_path):
    (tmp_path / "here").touch()
    names = {"a": str(tmp_path / "here"), "b": str(tmp_path / "gone"), "c": str(tmp_path)}
    assert launch.missing(names) == (str(tmp_path / "gone"),)


def test_a_keyword_that_nothing_gives_is_named():
    with pytest.raises(errors.BadRule, match=r"no keyword `\{scna\}`") as caught:
        process(model.Command(("x", "{scna}")))
    assert "scan" in caught.value.hint


# -- hostile values ------------------------------------------------------------------------------


@given(NAMES, NAMES)
@example("{path}", "{dir}")
def test_a_hostile_name_stays_one_argument_as_it_is(name, group):
    binding = model.Binding(path=f"/p/{name}", match={"g": group}, sweep={"s": name})
    argv = ("x", "{path}", "{name}", "--g={g}", "{s}{g}", "{match.g}")
    one = process(model.Command(argv), binding)
    assert one.argv == ("x", f"/p/{name}", name, f"--g={group}", name + group, group)


@given(NAMES)
def test_a_hostile_name_is_no_source_of_scripts_functions_or_notebooks(name):
    binding = model.Binding(path=f"/p/{name}", match={"g": name})
    script = process(model.Script(source="echo $g {g}\n", args=("{g}",)), binding)
    assert script.files["script"] == "echo $g {g}\n"
    assert script.argv == ("bash", f"{FOLDER}/script", name)
    python = process(model.Python(source="print('{g}')\n"), binding)
    assert python.files["recipe.py"] == "print('{g}')\n"
    plain = process(model.Python(source="print('{g}')\n"), model.Binding(path="/p/x"))
    assert python.argv == plain.argv
    written = json.loads(python.files["params.json"])
    assert (written["g"], written["path"]) == (name, f"/p/{name}")
    notebook = process(model.Notebook(source="{}"), binding)
    assert json.loads(notebook.files["parameters.json"]) == {"g": name}


@given(
    st.dictionaries(
        st.text(max_size=5), st.text(max_size=5) | st.integers() | st.none(), max_size=5
    )
)
@example({"a": "x\0y", "b": "fine"})
def test_no_value_of_the_environment_holds_what_no_environment_can(data):
    spec = {"params": {"whole": "{message}"}}
    one = process(model.Command(("x",)), model.Binding(sweep=data, data=data), **spec)
    assert all("\0" not in value for value in one.env.values())
    assert all("\0" not in name and "=" not in name for name in one.env)
    assert one.env["PILOTAGE_JOB"] == "7"


def test_a_value_that_the_environment_cannot_hold_is_still_in_the_parameters():
    one = process(model.Command(("x",)), model.Binding(sweep={"a": "x\0y"}))
    assert "a" not in one.env
    assert json.loads(one.files["params.json"])["a"] == "x\0y"


@pytest.mark.parametrize("name", ["PILOTAGE_JOB", "PILOTAGE_ATTEMPT", "PILOTAGE_PARAMS"])
def test_nothing_of_a_message_passes_for_what_we_say_ourselves(name):
    one = process(model.Command(("x",)), model.Binding(sweep={name: "forged"}))
    assert one.env[name] != "forged"


# -- calls of functions --------------------------------------------------------------------------


def folder(
    binding: model.Binding, place: launch.LaunchContext = PLACE, **spec: Any
) -> dict[str, Any]:
    made = prepare(model.Call("f", source="x"), binding, place, **spec).launch
    assert made.cwd == ""
    found: dict[str, Any] = json.loads(made.files["folder.json"])
    return found


def test_a_call_without_files_uses_the_folder_of_its_worker():
    one = process(model.Call("f", source="x"), model.Binding())
    assert one.cwd == ""
    assert "folder.json" not in one.files
    other = process(model.Call("f", source="x"), model.Binding(), cwd=".")
    assert (other.cwd, other.warm != one.warm) == ("/p/.", True)


def test_a_call_with_files_says_which_and_where():
    bound = model.Binding(data={"reads": ["a[[]1]"], "writes": ["out/{x}"]})
    spec: dict[str, Any] = {
        "inputs": ("{message.reads.0}", "in/*"), "outputs": {"o": "{message.writes.0}"},
    }  # fmt: skip
    here = folder(bound, **spec)
    assert here["inputs"] == ["/p/a[[]1]", "/p/in/*"]
    assert (here["outputs"], here["project"], here["own"]) == (["/p/out/{x}"], "/p", True)
    assert here["root"] == here["cwd"] == f"{FOLDER}/work"
    there = folder(bound, launch.LaunchContext("/data", staged=True), **spec)
    assert (there["root"], there["cwd"], there["project"]) == ("/data", "/data", "")
    chosen = folder(bound, cwd="sub", **spec)
    assert (chosen["root"], chosen["cwd"], chosen["own"]) == ("/p", "/p/sub", False)


def test_calls_that_name_other_files_share_a_worker():
    spec: dict[str, Any] = {"inputs": ("{message.reads.0}",)}
    first, second = (
        process(model.Call("f", source="x"), model.Binding(data={"reads": [name]}), **spec).warm
        for name in "ab"
    )
    assert first
    assert first == second


def test_a_declared_input_that_is_not_there_is_named(tmp_path):
    (tmp_path / "a").touch()
    base, bound = str(tmp_path), model.Binding()

    def require(*inputs: str, **more: Any) -> None:
        recipe = more.pop("recipe", model.Command(("true",)))
        spec = model.JobSpec(recipe, "x", inputs=inputs, **more)
        launch.require_inputs(spec, bound, base, 1)

    require("a", "*", "{base}/a")
    for pattern in ("b", "b*"):
        with pytest.raises(errors.NotFound, match="does not exist"):
            require("a", pattern)
        # Its worker looks, or only the job's own place can.
        require(pattern, recipe=model.Call("f"))
        require(pattern, base="/elsewhere")
