"""What is said of a rule that starts a workflow when the rule is read."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pilotage.base import errors
from pilotage.event.model import Event, EventKind
from pilotage.hub.project import Project, read_flow
from pilotage.job.model import Workflow
from pilotage.rule import dryrun, files, graph, records
from pilotage.rule.model import Rule

DOCS = Path(__file__).parents[3] / "docs"
FLOW = """
name = "count"
required = ["raw"]
params = { level = 1 }

[step.count]
run = ["wc", "{raw}", "{level}"]
"""
RULE = """
[rule.start]
files = "raw/{sample}.txt"
flow = "count.toml"
params = { raw = "{path}" }
"""


def load(root: Path, rule: str = RULE, flow: str = FLOW, *, beside: bool = False) -> Rule:
    (root / "rules").mkdir(exist_ok=True)
    (root / ("rules" if beside else "") / "count.toml").write_text(flow)
    (root / "rules" / "book.toml").write_text(rule)
    return records.load(root / "rules" / "book.toml", root, read_flow).rules["start"]


@pytest.mark.parametrize("beside", [True, False])
def test_the_definition_of_the_flow_is_part_of_the_rule(tmp_path: Path, *, beside: bool):
    rule = load(tmp_path, beside=beside)
    recipe = rule.spec.recipe
    assert isinstance(recipe, Workflow)
    assert recipe.flow["name"] == "count"
    assert recipe.flow["params"] == {"raw": None, "level": 1}
    assert recipe.files == (recipe.file,)


def test_a_changed_flow_changes_the_rule(tmp_path: Path):
    assert load(tmp_path) != load(tmp_path, flow=FLOW.replace("level = 1", "level = 2"))


def test_a_flow_within_the_flow_is_read_with_it(tmp_path: Path):
    (tmp_path / "inner.toml").write_text('name = "i"\n[step.a]\nrun = ["true"]\n')
    recipe = load(tmp_path, flow=FLOW + '\n[step.in]\nflow = "inner.toml"\n').spec.recipe
    assert isinstance(recipe, Workflow)
    assert [Path(one).name for one in recipe.files] == ["count.toml", "inner.toml"]


@pytest.mark.parametrize(
    "text",
    [
        '[step.a]\nrun = ["true"]\n',
        '["step"."a"]\nrun = ["true"]\n',
        'step.a.run = ["true"]\n',
        '[ step . a ]\nrun = ["true"]\n',
        '[step.a]\nrun = ["true"\n',
    ],
)
def test_a_workflow_is_known_however_its_toml_is_written(tmp_path: Path, text: str):
    (tmp_path / "flow.toml").write_text(text)
    assert records.is_workflow(tmp_path / "flow.toml")
    (tmp_path / "book.toml").write_text(f"[rule.step]\nscript = '''\n{text}'''\nfiles = '*'\n")
    assert not records.is_workflow(tmp_path / "book.toml")


def test_a_workflow_in_the_folder_of_rules_is_no_book(tmp_path: Path):
    load(tmp_path, beside=True)
    (tmp_path / "pilotage.toml").touch()
    with Project(tmp_path) as project:
        loaded = project.read_books()
    assert (list(loaded.rules), loaded.failed) == (["start"], {})
    assert [Path(one).name for one in loaded.flows] == ["count.toml"]


#: What is wrong, what is said of it, and in which line of which file.
WRONG = {
    "no file": (RULE.replace("count.toml", "no.toml"), FLOW, "there is no file", "book.toml:4"),
    "flow": (RULE, FLOW.replace("run", "runs"), "there is no key 'runs'", "count.toml:7"),
    "template": (RULE, FLOW.replace("{raw}", "{rows}"), "stands for nothing", "count.toml:7"),
    "unknown": (
        RULE.replace("raw = ", "rows = "), FLOW, "no parameter `rows`", "book.toml:5",
    ),
    "missing": (
        RULE.replace('params = { raw = "{path}" }', ""), FLOW, "`raw` of the flow has no value",
        "book.toml:4",
    ),
    "keyword": (RULE.replace("{path}", "{paht}"), FLOW, "no keyword `{paht}`", "book.toml:5"),
    "of a step": (f"{RULE}cpus = 2\n", FLOW, "a workflow has none", "book.toml:6"),
    "two": (f'{RULE}run = ["true"]\n', FLOW, "a job runs one thing", "book.toml:2"),
}  # fmt: skip


@pytest.mark.parametrize("what", WRONG)
def test_mistakes_are_told_with_file_and_line(tmp_path: Path, what: str):
    rule, flow, words, place = WRONG[what]
    with pytest.raises(errors.BadRule) as caught:
        load(tmp_path, rule, flow)
    assert words in caught.value.message
    assert f"{Path(caught.value.file).name}:{caught.value.line}" == place


def test_what_a_pattern_captures_and_a_sweep_gives_are_parameters(tmp_path: Path):
    flow = FLOW.replace('["raw"]', '["sample", "size"]').replace("{raw}", "{sample} {size}")
    rule = RULE.replace('params = { raw = "{path}" }', "sweep = { size = [1, 2] }")
    found = load(tmp_path, rule, flow)
    event = Event(EventKind.FILE_CLOSED, f"{tmp_path}/raw/x.txt", 1.0)
    (trial,) = dryrun.dry_run([found], event, 1.0, str(tmp_path)).trials
    assert (trial.what, trial.count) == ("flow", 2)
    assert trial.jobs[1].params == {"sample": "x", "size": 2}
    file = str(tmp_path / "count.toml")
    assert trial.jobs[1].argv == (
        "pilotage", "flow", "submit", file, "--param", "sample=x", "--param", "size=2",
    )  # fmt: skip


def test_the_example_of_the_page_is_in_order(tmp_path: Path):
    page = (DOCS / "flows.md").read_text()
    part = page[page.index("## Start a workflow by a rule") : page.index("## At other sites")]
    found = dict(re.findall(r"```toml (\w+)\n(.*?)```", part, re.DOTALL))
    assert load(tmp_path, found["rule"], found["flow"]).spec.params == {"raw": "{path}"}


def test_the_end_of_a_flow_leads_to_rules_that_name_it(tmp_path: Path):
    load(tmp_path, RULE + '\n[rule.seen]\njob = "count"\nrun = ["true"]\n')
    rules = records.load(tmp_path / "rules" / "book.toml", tmp_path, read_flow).rules.values()
    edges = graph.graph(rules, str(tmp_path)).edges
    assert [(one.source, one.target) for one in edges] == [("start", "seen")]


def test_a_rule_that_was_kept_is_the_rule_that_was_read(tmp_path: Path):
    """Otherwise it would change whenever it is read, and see all files again."""
    rule = load(tmp_path, flow=f'{FLOW}outputs = ["x.txt"]\n')
    assert files.load_rule(files.dump(rule)) == rule
