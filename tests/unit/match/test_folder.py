"""Jobs that use files of the project which they do not declare run where that folder is."""

from __future__ import annotations

from pathlib import Path

from pilotage.job.model import Command, JobSpec
from pilotage.match import queued, submission
from pilotage.match.place import Place
from pilotage.match.prospect import Offered, Offers
from pilotage.pilot import table
from pilotage.pilot.model import NodeFacts, Project
from pilotage.rule.files import load_text

RULE = """
[rule.one]
{trigger}
run = ["sort", "{what}"]
{more}
"""


def _made(tmp_path: Path, trigger: str, what: str = "x", more: str = "") -> JobSpec:
    text = RULE.format(trigger=trigger, what=what, more=more)
    book = load_text("one.toml", text, str(tmp_path), str(tmp_path))
    return book.rules["one"].spec


def _place(project: Project) -> Place:
    facts = NodeFacts(host="n", work="/w", cpus=1, memory=1 << 30, project=project)
    return table.place(3, "kit", "", facts)


def test_rules_that_declare_nothing_stay_where_the_folder_is(tmp_path):
    file, timer = 'files = "in/*.txt"', 'every = "1h"'
    assert _made(tmp_path, file).needs_folder
    assert not _made(tmp_path, file, more='outputs = { sum = "out/{stem}" }').needs_folder
    assert not _made(tmp_path, file, more='inputs = ["cal"]').needs_folder
    assert not _made(tmp_path, file, more='site = "kit"').needs_folder
    assert not _made(tmp_path, timer).needs_folder
    assert _made(tmp_path, timer, "{base}/x").needs_folder
    assert _made(tmp_path, timer, more='cwd = "work"').needs_folder


def test_a_submission_in_the_project_that_declares_nothing_stays_where_the_folder_is(tmp_path):
    def bound(**facts: object) -> bool:
        one = JobSpec(Command(("ls",)), "ls", **facts)  # type: ignore[arg-type]
        return submission.bound(one, str(tmp_path)).needs_folder

    assert bound(cwd=str(tmp_path / "a {{b}}"))
    assert bound(cwd="sub")
    assert bound(cwd="{base}")
    assert bound(cwd="{dir}/x")
    assert not bound()
    assert not bound(cwd=f"{tmp_path}2")
    assert not bound(cwd="{wrong")
    assert not bound(cwd="sub", base="/other")
    assert not bound(cwd="/tmp")
    assert not bound(cwd=str(tmp_path), inputs=("x",))
    assert not bound(cwd=str(tmp_path), outputs={"x": "x"})
    assert not bound(cwd=str(tmp_path), site="kit")


def test_only_offers_that_see_the_folder_do_for_such_jobs():
    spec = JobSpec(Command(("ls",)), "ls", needs_folder=True, requirements="cpus >= 1")
    assert submission.requirements(spec) == "sees_project and (cpus >= 1)"
    for project, does in ((Project.HIDDEN, 0), (Project.READABLE, 1), (Project.UNKNOWN, 1)):
        found = Offers([Offered(_place(project))], 0.0).prospect(spec, "ann")
        assert found.ever == does, project


def test_what_is_to_be_done_is_said():
    spec = JobSpec(Command(("ls",)), "ls", needs_folder=True)
    found = Offers([Offered(_place(Project.HIDDEN))], 0.0).prospect(spec, "ann")
    assert queued.brief(found) == (
        "it uses files of the project's folder that it does not declare: "
        "jobs do not see that folder there, at 1 of 1 offers"
    )
    assert queued.advice(found.why.changes) == (
        "declare all that it reads and writes, as inputs and outputs (1 offer would do then)"
    )
