"""What MEOW's names take and refuse, and the rules that they become."""

from __future__ import annotations

import ast
import json
import warnings
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pilotage.compat import meow
from pilotage.compat.meow import recipe as default
from pilotage.compat.meow import rule
from pilotage.compat.meow.pattern import kinds
from pilotage.event.model import EventKind
from pilotage.job import model
from pilotage.rule.model import COMPLETE, FilePattern, MessagePattern

NOTEBOOK: dict[str, Any] = {
    "cells": [
        {"cell_type": "markdown", "source": "num = 1"},
        {"cell_type": "code", "source": ["%matplotlib inline\n", "num = 1\n", "infile = 'x'"]},
        {"cell_type": "code", "source": "num = 2"},
    ],
    "metadata": {},
    "nbformat": 4,
    "nbformat_minor": 5,
}
PLACE = rule.MeowContext("data", "/base", "/lab", settle=1.0)


def pattern(**changes: Any) -> meow.FileEventPattern:
    facts = {
        "name": "p",
        "triggering_path": "raw/*",
        "recipe": "r",
        "triggering_file": "infile",
        **changes,
    }
    return meow.FileEventPattern(**facts)


def bash(*lines: str, **changes: Any) -> meow.BashRecipe:
    return meow.BashRecipe("r", list(lines or ("true",)), **changes)


def built(one: Any, recipe: Any = None, place: rule.MeowContext = PLACE) -> Any:
    return rule.build(rule.Rule(one, recipe or bash()), place)


# -- patterns ------------------------------------------------------------------------------------


def test_a_pattern_keeps_what_it_was_given():
    one = meow.FileEventPattern(
        "p", "raw/*", "r", "infile", [meow.FILE_CLOSED_EVENT], {"a": 1}, {"o": "x"},
        meow.create_parameter_sweep("n", 1, 2, 1),
    )  # fmt: skip
    assert (one.name, one.triggering_path, one.recipe) == ("p", "raw/*", "r")
    assert (one.triggering_file, one.event_mask) == ("infile", ["file_closed"])
    assert (one.parameters, one.outputs) == ({"a": 1}, {"o": "x"})
    assert one.sweep == {"n": {"start": 1, "stop": 2, "jump": 1}}
    assert pattern().event_mask == list(meow.DEFAULT_MASK)


@pytest.mark.parametrize(
    "changes, error",
    [
        ({"name": ""}, ValueError),
        ({"name": 1}, TypeError),
        ({"name": "a\nb"}, ValueError),
        ({"triggering_path": ""}, ValueError),
        ({"triggering_path": "/raw/*"}, ValueError),
        ({"triggering_path": "raw/[a"}, ValueError),
        ({"triggering_path": "raw/"}, ValueError),
        ({"recipe": ""}, ValueError),
        ({"recipe": bash()}, TypeError),
        ({"triggering_file": ""}, ValueError),
        ({"triggering_file": "in file"}, ValueError),
        ({"triggering_file": "PATH"}, ValueError),
        ({"event_mask": "file_closed"}, TypeError),
        ({"event_mask": ["file_opened"]}, ValueError),
        ({"event_mask": []}, ValueError),
        ({"parameters": []}, TypeError),
        ({"parameters": {"a b": 1}}, ValueError),
        ({"parameters": {"LD_PRELOAD": "x"}}, ValueError),
        ({"parameters": {"a": object()}}, TypeError),
        ({"parameters": {"a": float("nan")}}, TypeError),
        ({"outputs": {"a": 1}}, TypeError),
        ({"sweep": {"n": {"start": 1, "stop": 2}}}, KeyError),
        ({"sweep": {"n": {"start": 1, "stop": 2, "jump": 0}}}, ValueError),
        ({"sweep": {"n": {"start": 1, "stop": 2, "jump": -1}}}, ValueError),
        ({"sweep": {"n": {"start": "1", "stop": 2, "jump": 1}}}, TypeError),
        ({"sweep": {"n": {"start": 1, "stop": float("inf"), "jump": 1}}}, ValueError),
        ({"sweep": {"n": [1, 2]}}, TypeError),
        ({"notifications": "me"}, TypeError),
    ],
)
def test_patterns_that_are_refused(changes: dict[str, Any], error: type[Exception]):
    with pytest.raises(error):
        pattern(**changes)


def test_names_may_hold_any_printable_characters():
    assert pattern(name="Über (1) 'x' {y}").name == "Über (1) 'x' {y}"


@pytest.mark.parametrize(
    "port, error", [(1023, ValueError), (49152, ValueError), ("80", TypeError), (True, TypeError)]
)
def test_ports_that_are_refused(port: Any, error: type[Exception]):
    with pytest.raises(error):
        meow.SocketPattern("p", port, "r", "msg")


def test_what_has_no_effect_warns_where_it_was_written():
    with pytest.warns(UserWarning, match="no mail is sent") as of_pattern:
        pattern(notifications={"email": "me@example.org"})
    with pytest.warns(UserWarning, match="no mail is sent") as of_conductor:
        meow.LocalBashConductor(notification_email="me@example.org")
    with pytest.warns(UserWarning, match="not traced"):
        pattern(tracing="strace")
    assert {Path(one.filename).name for one in (*of_pattern, *of_conductor)} == {"test_meow.py"}
    with warnings.catch_warnings(action="error"):
        pattern()


def test_sweeps_give_every_combination():
    sweep = meow.create_parameter_sweep("a", 1, 3, 1)
    assert [point["a"] for point in built(pattern(sweep=sweep)).points] == [1, 2, 3]
    sweep |= meow.create_parameter_sweep("b", 0.0, 0.4, 0.1)
    assert len(built(pattern(sweep=sweep)).points) == 15
    down = meow.create_parameter_sweep("a", 3, 1, -1)
    assert [point["a"] for point in built(pattern(sweep=down)).points] == [3, 2, 1]
    with pytest.raises(ValueError, match="never end"):
        meow.create_parameter_sweep("a", 1, 3, 0)


# -- recipes -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "make, error",
    [
        (lambda: meow.BashRecipe("", ["true"]), ValueError),
        (lambda: meow.BashRecipe("r", "true"), TypeError),  # type: ignore[arg-type]
        (lambda: meow.BashRecipe("r", []), ValueError),
        (lambda: meow.BashRecipe("r", [1]), TypeError),  # type: ignore[list-item]
        (lambda: bash(source="r.txt"), ValueError),
        (lambda: bash(requirements=[]), TypeError),
        (lambda: meow.PythonRecipe("r", {}), TypeError),  # type: ignore[arg-type]
        (lambda: meow.JupyterNotebookRecipe("r", {}), ValueError),
        (lambda: meow.JupyterNotebookRecipe("r", []), TypeError),  # type: ignore[arg-type]
        (lambda: meow.JupyterNotebookRecipe("r", NOTEBOOK, source="r.py"), ValueError),
        (lambda: meow.get_recipe_from_notebook("r", "r.py"), ValueError),
    ],
)
def test_recipes_that_are_refused(make: Any, error: type[Exception]):
    with pytest.raises(error):
        make()


def test_a_recipe_from_a_notebook_file(tmp_path: Path):
    file = tmp_path / "r.ipynb"
    file.write_text(json.dumps(NOTEBOOK))
    one = meow.get_recipe_from_notebook("r", str(file), requirements={"python": {}})
    assert one.recipe == NOTEBOOK
    assert (one.source, one.requirements) == (str(file), {"python": {}})


def test_requirements():
    assert meow.create_python_requirements("numpy") == {"python": {"modules": ["numpy"]}}
    found = meow.create_python_requirements(["a>=1", "b"], version="3.11", environment="lab")
    assert found == {"python": {"modules": ["a>=1", "b"], "version": "3.11", "environment": "lab"}}
    spec = built(pattern(), bash(requirements=found)).spec
    assert rule.facts(spec).requirements == found


# -- defaults ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "before, after",
    [
        ("num=1", "_default_num=1"),
        ("export num=1", "export _default_num=1"),
        ("declare -i num=1", "declare -i _default_num=1"),
        ("num='x?a=b'; other=2", "_default_num='x?a=b'; other=2"),
        ("num=1\nnum=2", "_default_num=1\nnum=2"),
        ("num=$((num + 1))", "_default_num=$((num + 1))"),
        ("num=${num%.csv}", "num=${num%.csv}"),
        ("other=1", "other=1"),
        ("  num=1", "  num=1"),
        ("num+=1", "num+=1"),
        ("if true; then\nnum=1\nfi", "if true; then\n_default_num=1\nfi"),
        ("cat <<EOF\nnum=1\nEOF\nnum=2", "cat <<EOF\nnum=1\nEOF\n_default_num=2"),
        ("echo $((1 << n))\nnum=1", "echo $((1 << n))\n_default_num=1"),
    ],
)
def test_defaults_of_shell_scripts(before: str, after: str):
    assert default.bash(before, {"num"}) == after


@pytest.mark.parametrize(
    "before, after",
    [
        ("num = 1", "pass"),
        ("num: int = 1", "pass"),
        ("num: int", "num: int"),
        ("num = 1; other = 2", "pass; other = 2"),
        ("num = 'x?a=b'  # why", "pass  # why"),
        ("num = (\n  1,\n  2,\n); x = 1", "(\n\n\n); x = 1"),
        ('é = "ü"; num = "é"; x = 1', 'é = "ü"; pass; x = 1'),
        ("num = 1\nnum = 2", "pass\nnum = 2"),
        ("num = num + 1", "num = num + 1"),
        ("def f():\n    num = 1", "def f():\n    num = 1"),
        ("if x:\n    num = 1", "if x:\n    num = 1"),
        ("if __name__ == '__main__':\n    num = 1", "if __name__ == '__main__':\n    pass"),
        ("num = num2 = 1", "pass"),
        ("this is (no Python", "this is (no Python"),
        ("d['num'] = 1", "d['num'] = 1"),
    ],
)
def test_defaults_of_python_scripts(before: str, after: str):
    assert default.python(before, {"num", "num2"}) == after


def test_a_default_that_is_assigned_together_with_something_else_is_told():
    with pytest.raises(ValueError, match="line 2 of a recipe assigns num, other together"):
        default.python("x = 1\nnum, other = 1, 2", {"num"})


@given(st.lists(st.sampled_from(["num = 1", "x = (1,\n 2)", "num = (\n 1)", "", "y = 'num'"])))
def test_python_scripts_keep_their_lines(lines: list[str]):
    source = "\n".join(lines)
    changed = default.python(source, {"num", "x"})
    assert changed.count("\n") == source.count("\n")
    kept = [node.lineno for node in ast.parse(source).body if ast.unparse(node) == "y = 'num'"]
    found = [node.lineno for node in ast.parse(changed).body if ast.unparse(node) == "y = 'num'"]
    assert found == kept


def test_defaults_of_notebooks():
    changed = default.notebook(NOTEBOOK, {"num"})
    sources = ["".join(cell["source"]) for cell in changed["cells"]]
    assert sources == ["num = 1", "%matplotlib inline\npass\ninfile = 'x'", "num = 2"]
    assert NOTEBOOK["cells"][1]["source"][1] == "num = 1\n"
    other = {**NOTEBOOK, "metadata": {"kernelspec": {"language": "R"}}}
    assert default.notebook(other, {"num"}) == other


# -- rules ---------------------------------------------------------------------------------------


def test_a_rule_needs_a_pattern_and_its_recipe():
    with pytest.raises(ValueError, match="does not name"):
        meow.Rule(pattern(recipe="other"), bash())
    assert meow.Rule(pattern(), bash()).name == "rule_p"


def test_the_rule_of_a_file_pattern():
    one = built(pattern(parameters={"n": 3}, outputs={"o": "{BASE}/out/{PREFIX}", "rel": "x"}))
    assert one.pattern == FilePattern(globs=("/base/raw/*",), base="/base", settle=1.0)
    assert one.pattern.events == COMPLETE
    assert one.name.startswith("data/p@")
    assert one.spec.name == "p"
    assert one.spec.params == {"n": 3, "o": "{base}/out/{stem}", "rel": "x", "infile": "{path}"}
    assert one.spec.optional_outputs == {"o": "{base}/out/{stem}", "rel": "/lab/x"}
    assert (one.spec.cwd, one.spec.base) == ("/lab", "/base")


def test_the_rule_of_a_socket_pattern():
    one = built(meow.SocketPattern("p", 2000, "r", "msg"))
    assert one.pattern == MessagePattern(topics=("meow.port-2000",), port=2000)
    assert (one.name, one.spec.params) == ("data/p", {"msg": "{path}"})


def test_keywords_and_braces():
    text = "{PATH}|{REL_PATH}|{DIR}|{REL_DIR}|{FILENAME}|{PREFIX}|{EXTENSION}|{BASE}|{JOB}|{x}|{"
    values = {"a": text, "b": 1, "c": None, "d": ["{PATH}", {"k": "}"}]}
    assert built(pattern(parameters=values)).spec.params == {
        "a": "{path}|{rel}|{dir}|{rel_dir}|{name}|{stem}|{suffix}|{base}|job_{job}|{{x}}|{{",
        "b": 1,
        "c": None,
        "d": ["{{PATH}}", {"k": "}}"}],
        "infile": "{path}",
    }


def test_swept_variables_do_not_hide_keywords():
    sweep = meow.create_parameter_sweep("name", 1, 2, 1)
    one = built(pattern(sweep=sweep, parameters={"out": "{FILENAME}"}))
    assert one.points == ({"swept_name": 1}, {"swept_name": 2})
    assert one.spec.params["name"] == "{swept_name}"
    assert one.spec.params["out"] == "{name}"


@pytest.mark.parametrize(
    "path, glob",
    [
        ("raw/**.csv", "/base/raw/*.csv"),
        ("**/x", "/base/**/x"),
        ("raw/{a}", "/base/raw/{{a}}"),
        ("./raw//x", "/base/raw/x"),
    ],
)
def test_paths_of_patterns(path: str, glob: str):
    assert built(pattern(triggering_path=path)).pattern.globs == (glob,)


def test_masks():
    assert kinds(meow.DEFAULT_MASK) == COMPLETE
    early = [meow.FILE_CREATED_EVENT, meow.FILE_MODIFIED_EVENT]
    assert kinds(early) == {EventKind.FILE_CREATED, EventKind.FILE_MODIFIED}
    assert kinds([meow.DIR_RETROACTIVE_EVENT]) == {EventKind.DIR_EXISTING}


def test_a_rule_that_changes_is_another_where_it_applies_to_what_exists():
    assert built(pattern()).name == built(pattern()).name
    assert built(pattern()).name != built(pattern(parameters={"a": 1})).name
    assert built(pattern()).name != built(pattern(), bash("false")).name
    mask = [meow.FILE_CLOSED_EVENT]
    assert built(pattern(event_mask=mask), bash("false")).name == "data/p"


def test_what_runs():
    spec = built(pattern(), bash("#!/bin/bash\n", "infile=x", "cat $infile")).spec
    assert spec.recipe == model.Script(source="#!/bin/bash\n_default_infile=x\ncat $infile\n")
    python = meow.PythonRecipe("r", ["infile = 'x'", "print(infile)"])
    assert built(pattern(), python).spec.recipe == model.Python(source="pass\nprint(infile)\n")
    found = built(pattern(), meow.JupyterNotebookRecipe("r", NOTEBOOK)).spec.recipe
    told = json.loads(found.source)["metadata"]
    assert told["kernelspec"]["name"] == "python3"
    assert told["language_info"]["name"] == "python"
    assert "infile" not in found.source


# -- monitors and runners ------------------------------------------------------------------------


def monitor(**changes: Any) -> meow.WatchdogMonitor:
    return meow.WatchdogMonitor("data", {"p": pattern()}, {"r": bash()}, **changes)


def test_monitors_refuse_what_meow_refuses():
    with pytest.raises(KeyError):
        meow.WatchdogMonitor("data", {"q": pattern()}, {})
    with pytest.raises(KeyError):
        meow.WatchdogMonitor("data", {}, {"q": bash()})
    with pytest.raises(TypeError):
        meow.WatchdogMonitor("data", [pattern()], {})  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        meow.SocketMonitor("data", {"p": pattern()}, {})  # type: ignore[dict-item]
    with pytest.raises(ValueError, match="settletime"):
        monitor(settletime=-1)
    with pytest.raises(TypeError):
        monitor(settletime="1")
    with pytest.raises(ValueError, match="logging"):
        monitor(logging=5)
    assert monitor(settletime=0).settletime == 0


def test_patterns_of_a_monitor_are_edited():
    one = monitor()
    with pytest.raises(KeyError):
        one.add_pattern(pattern())
    with pytest.raises(KeyError):
        one.update_pattern(pattern(name="q"))
    with pytest.raises(KeyError):
        one.remove_pattern("q")
    with pytest.raises(TypeError):
        one.add_pattern(bash())  # type: ignore[arg-type]
    one.add_pattern(pattern(name="q"))
    one.update_pattern(pattern(triggering_path="other/*"))
    one.remove_pattern("q")
    assert one.get_patterns() == {"p": pattern(triggering_path="other/*")}
    one.remove_pattern(pattern())
    assert one.get_rules() == {}


def test_recipes_of_a_monitor_are_edited():
    one = monitor()
    with pytest.raises(KeyError):
        one.add_recipe(bash())
    with pytest.raises(KeyError):
        one.update_recipe(meow.BashRecipe("q", ["true"]))
    one.remove_recipe("r")
    assert one.get_rules() == {}
    one.add_recipe(bash("one"))
    one.update_recipe(bash("two"))
    assert one.get_recipes() == {"r": bash("two")}
    assert one.get_rules()["rule_p"].recipe == bash("two")


def test_copies_do_not_alias():
    mine = pattern(parameters={"a": [1]})
    one = meow.WatchdogMonitor("data", {"p": mine}, {})
    mine.parameters["a"].append(2)
    one.get_patterns()["p"].parameters["a"].append(3)
    assert one.get_patterns() == {"p": pattern(parameters={"a": [1]})}


def test_an_edit_that_cannot_be_put_in_force_changes_nothing():
    one = monitor()

    def refuse() -> None:
        raise ValueError("no")

    one.publish = refuse
    with pytest.raises(ValueError, match="no"):
        one.remove_pattern("p")
    assert one.get_patterns() == {"p": pattern()}


def test_parts_of_a_runner_are_looked_up():
    watcher, handler = monitor(), meow.BashHandler(name="h")
    conductors = [meow.LocalBashConductor(), meow.LocalPythonConductor(name="c")]
    runner = meow.MeowRunner(watcher, [handler], conductors, "q", "o")
    assert runner.get_monitor_by_name("data") is watcher
    assert runner.get_monitor_by_type(meow.WatchdogMonitor) is watcher
    assert runner.get_monitor_by_type(meow.SocketMonitor) is None
    assert runner.get_handler_by_name("h") is handler
    assert runner.get_handler_by_type(meow.BashHandler) is handler
    assert runner.get_conductor_by_name("c") is conductors[1]
    assert runner.get_conductor_by_type(meow.LocalPythonConductor) is conductors[1]
    assert (handler.job_queue_dir, conductors[0].job_output_dir) == ("q", "o")


def test_runners_refuse_what_meow_refuses():
    with pytest.raises(TypeError):
        meow.MeowRunner("data", meow.BashHandler(), meow.LocalBashConductor())  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="missing"):
        meow.MeowRunner(monitor(), [], meow.LocalBashConductor())
    runner = meow.MeowRunner(monitor(), meow.BashHandler(), meow.LocalBashConductor())
    with pytest.raises(RuntimeError):
        runner.stop()


def test_rules_that_nobody_handles_or_conducts_wait():
    runner = meow.MeowRunner(monitor(), meow.PythonHandler(), meow.LocalBashConductor())
    with pytest.warns(UserWarning, match="rule_p waits for a handler of bash jobs"):
        assert runner._rules() == []
    runner = meow.MeowRunner(monitor(), meow.BashHandler(), meow.LocalPythonConductor())
    with pytest.warns(UserWarning, match="rule_p waits for a conductor of bash jobs"):
        assert runner._rules() == []


def test_conductors_are_places():
    conductors = [meow.LocalBashConductor(), meow.LocalBashConductor()]
    runner = meow.MeowRunner([monitor(), monitor()], meow.BashHandler(), conductors)
    assert [one.spec.limit for one in runner._rules()] == [None, None]
    assert len({one.name for one in runner._rules()}) == 2
    more = meow.MeowRunner(
        monitor(), meow.BashHandler(), [*conductors, meow.LocalPythonConductor()]
    )
    assert [one.spec.limit for one in more._rules()] == [model.Limit("meow bash", 2)]
