"""Commands on flows: what they say, draw and write, and what they leave in the store."""

from __future__ import annotations

import itertools
import json
import time
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pilotage.base import errors
from pilotage.batch import files
from pilotage.batch.model import SiteSettings
from pilotage.bus.model import Heartbeat
from pilotage.cli import flow, flow_change, flow_draw, flow_follow, flow_submit
from pilotage.cli.answer import Answer, Styled, Table, TextLine
from pilotage.cli.common import Common
from pilotage.cli.picture import Form
from pilotage.draw.graph import as_text
from pilotage.flow import explain, moves, picture, records
from pilotage.flow.model import Flow, Step
from pilotage.flow.view import StepSummary
from pilotage.hub.project import Project
from pilotage.job.model import Command, JobSpec, NewJob
from tests.rigs.project.flow_store import Story, command

FILE = """
name = "small"
description = "Two steps."

[params]
count = 2

[step.first]
run = ["echo", "{count}"]

[step.second]
needs = ["first"]
run = ["true"]
"""
ARGO = {
    "subjobs": [
        {"site": "condor", "application": "generator", "name": "make"},
        {"site": "slurm", "application": "simulation", "name": "run", "num_nodes": 4},
    ]
}


@pytest.fixture
def at(tmp_path: Path) -> Common:
    (tmp_path / "pilotage.toml").touch()
    return Common(project=tmp_path)


@pytest.fixture
def project(at: Common) -> Iterator[Project]:
    with at.open() as found:
        yield found


def told(answer: Answer) -> str:
    """All that people see."""

    def plain(cell: object) -> str:
        return cell.text if isinstance(cell, Styled) else str(cell)

    lines = []
    for part in answer.shown:
        if isinstance(part, Table):
            lines += ["  ".join(map(plain, row)) for row in part.rows]
        else:
            lines.append("".join(map(plain, part.pieces)) if isinstance(part, TextLine) else part)
    return "\n".join([*lines, *answer.notes])


def row(name: str, needs: tuple[str, ...] = (), state: str = "waiting", **more: Any) -> StepSummary:
    facts: dict[str, Any] = {
        "place": 0, "reason": "", "total": 1, "open": 0 if state == "done" else 1, "failed": 0,
        "tasks": {}, "started": None, "ended": None, "sites": [], "runs": "app", "each": False,
        "attempts": 0, "files": 0, "bytes": 0, "read": 0,
    }  # fmt: skip
    return StepSummary(name=name, needs=list(needs), state=state, **facts | more)


# -- submit --------------------------------------------------------------------------------------


def test_a_file_is_started_once_for_each_key(at: Common, tmp_path: Path):
    (tmp_path / "small.toml").write_text(FILE)
    first = flow_submit.submit(tmp_path / "small.toml", key="nightly", tag="night", at=at)
    again = flow_submit.submit(tmp_path / "small.toml", key="nightly", at=at)
    other = flow_submit.submit(tmp_path / "small.toml", at=at)
    assert first.data["id"] == again.data["id"] != other.data["id"]
    assert "nothing runs this project now" in told(first)
    with pytest.raises(errors.Conflict, match="another definition"):
        flow_submit.submit(tmp_path / "small.toml", key="nightly", param=("count=3",), at=at)
    found = flow.ls(tag="night", at=at).data["flows"]
    assert [(one["id"], one["state"]) for one in found] == [(first.data["id"], "running")]


def test_a_dry_run_starts_nothing_and_draws(at: Common, tmp_path: Path):
    (tmp_path / "small.toml").write_text(FILE)
    answer = flow_submit.submit(tmp_path / "small.toml", param=("count=7",), dry_run=True, at=at)
    assert "would start  small, 2 steps" in told(answer)
    assert "└─ second" in told(answer)
    assert answer.data["flow"]["params"] == {"count": 7}
    assert flow.ls(at=at).data["flows"] == []


def test_a_definition_of_argo_is_a_chain(at: Common, tmp_path: Path):
    (tmp_path / "argo.json").write_text(json.dumps(ARGO))
    with pytest.raises(errors.BadFlow, match="there is no site `condor`"):
        flow_submit.submit(tmp_path / "argo.json", at=at)
    for name in ("condor", "slurm"):
        files.write(tmp_path, name, SiteSettings(batch="local"))
    number = flow_submit.submit(tmp_path / "argo.json", at=at).data["id"]
    steps = flow.show(str(number), at=at).data["flow"]["steps"]
    assert [one["sites"] for one in steps] == [["condor"], ["slurm"]]
    assert steps[1]["needs"] == [steps[0]["name"]]
    assert steps[1]["why"] == f"waits for `{steps[0]['name']}`"


@pytest.mark.parametrize(
    "name, content, error, match",
    [
        ("a.toml", "[step.a]\nrun = ['true']\nneeds = ['b']\n", errors.BadFlow, "b"),
        ("a.toml", "[step.a]\nrunn = ['true']\n", errors.BadFlow, "runn"),
        ("a.json", "{", errors.BadFlow, "a.json"),
        ("a.py", "", errors.UsageError, "neither TOML"),
    ],
)
def test_a_bad_file_is_refused_with_its_place(
    at: Common, tmp_path: Path, name: str, content: str, error: type[Exception], match: str
):
    (tmp_path / name).write_text(content)
    with pytest.raises(error, match=match):
        flow_submit.submit(tmp_path / name, at=at)


def test_a_file_that_is_not_there_and_a_parameter_without_value_are_refused(at: Common):
    with pytest.raises(errors.NotFound, match="cannot read"):
        flow_submit.submit(Path("nowhere.toml"), at=at)
    with pytest.raises(errors.UsageError, match="no value"):
        flow_submit.params(["count"])


# -- ls, show, explain ---------------------------------------------------------------------------


def test_show_tells_of_each_step_how_far_it_is_and_why_it_waits(at: Common, project: Project):
    story = Story(project)
    story.generated(chunks=40)
    story.run("check", took=1)
    for item in range(23):
        story.run("simulate", "slurm", item=item, files={"hits.dat": b"h" * 2048}, read=5000)
    story.run("simulate", "slurm", how="running", item=23)
    answer = flow.show("last", at=at)
    steps = {one["name"]: one for one in answer.data["flow"]["steps"]}
    assert steps["generate"]["state"] == "done"
    assert steps["generate"]["sites"] == ["condor"]
    assert steps["simulate"]["tasks"] == {"done": 23, "queued": 16, "running": 1}
    assert steps["simulate"]["bytes"] == 23 * 2048
    assert steps["simulate"]["read"] == 23 * 5000
    assert steps["check"]["sites"] == ["here"]
    assert steps["merge"]["why"] == "waits for `simulate`"
    words = told(answer)
    assert "23/40" in words
    assert "16 wait to be sent; 1 runs at slurm" in words
    assert "nothing runs this project now" in words


def test_show_of_a_step_has_its_tasks_and_what_was_tried_again(at: Common, project: Project):
    story = Story(project)
    story.whole()
    answer = flow.show("atlas", "simulate", at=at)
    tasks = answer.data["step"]["tasks"]
    assert [len(one["attempts"]) for one in tasks] == [1, 2, 1, 1]
    assert "exit status 139" in told(answer)
    with pytest.raises(errors.NotFound) as caught:
        flow.show("1", "simulat", at=at)
    assert caught.value.hint == "did you mean `simulate`?"


def test_a_task_at_a_silent_site_says_so(project: Project):
    story = Story(project)
    story.run("generate", "condor", how="running")
    now = project.clock.now()

    def why() -> str:
        found = explain.sheet(project.db, story.number, now, project.settings, project.root)
        return found.steps[0].why

    assert why() == ""
    with project.db.transaction() as db:
        db.run("edges_listen", trouble="", since=now - 9000, now=now)
        db.run(
            "edges_heard", name="condor", speaker="site", heard=now - 720, state="silent",
            since=now - 600, gaps="[]",
            body=msgspec.json.encode(Heartbeat(site="condor", time=now, version="1")).decode(),
        )  # fmt: skip
    assert why() == "is at condor: last seen 12 m ago"


def test_a_job_of_the_hub_that_waits_says_why(project: Project):
    job = project.submit(NewJob(JobSpec(Command(("true",)), "one")))
    recipe = command("true")
    story = Story(project, Flow(name="big", steps={"one": Step(recipe=recipe)}))
    with project.db.transaction() as db:
        task = records.tasks(db, story.number)[0].id
        moves.attempt(db, task, "here", "", "", story.now, job=job)
        moves.hear(db, f"flow.{story.number}.{task}.1", 1, "queued", "", "", "", story.now)
    now = project.clock.now()
    found = explain.sheet(project.db, story.number, now, project.settings, project.root)
    assert f"job {job} " in found.steps[0].why
    assert "nothing that could run it" in found.steps[0].why


def test_explain_says_what_failed_what_was_skipped_and_what_to_do(at: Common, project: Project):
    story = Story(project)
    story.generated()
    story.run("check", how="failed", reason="exit status 3")
    story.run("simulate", "slurm")
    story.run("merge", "condor")
    words = told(flow.explain("last", at=at))
    assert "flow 1 is failed: `check` failed: exit status 3" in words
    assert "check failed: exit status 3" in words
    assert "plot skipped: `check` failed: exit status 3" in words
    assert "`pilotage flow retry 1`" in words


def test_what_does_not_exist_is_told_with_what_to_do(at: Common):
    with pytest.raises(errors.NotFound) as caught:
        flow.show("last", at=at)
    assert "pilotage flow submit" in caught.value.hint
    with pytest.raises(errors.NotFound):
        flow.show("7", at=at)
    assert "no flows yet" in told(flow.ls(at=at))


# -- retry, cancel, wait -------------------------------------------------------------------------


def test_retry_runs_what_failed_and_keeps_what_is_done(at: Common, project: Project):
    story = Story(project)
    story.generated()
    story.run("check", how="failed", reason="exit status 3")
    story.run("simulate", "slurm")
    story.run("merge", "condor")
    answer = flow_change.retry("last", at=at)
    assert answer.data["steps"] == ["check", "plot"]
    states = {one["name"]: one["state"] for one in flow.show("1", at=at).data["flow"]["steps"]}
    assert states["merge"] == "done"
    assert states["check"] == "running"
    assert states["plot"] == "waiting"
    assert flow_change.retry("1", from_=("merge",), at=at).data["steps"] == ["merge", "plot"]
    with pytest.raises(errors.NotFound):
        flow_change.retry("1", from_=("nothing",), at=at)


def test_cancel_ends_what_waits_and_says_what_is_still_under_way(at: Common, project: Project):
    story = Story(project)
    story.run("generate", "condor", how="running")
    answer = flow_change.cancel(("last",), reason="wrong energy", at=at)
    assert answer.data["flows"] == [{"id": 1, "was": "running", "state": "cancelling"}]
    assert "--wait" in told(answer)
    other = Story(project)
    assert flow_change.cancel((str(other.number),), at=at).data["flows"][0]["state"] == "cancelled"
    with pytest.raises(errors.Conflict, match="already"):
        flow_change.cancel((str(other.number),), at=at)


def test_following_ends_with_the_flow_and_says_how_it_went(at: Common, project: Project):
    good = Story(project)
    good.whole()
    answer = flow_follow.follow(good.number, at, ())
    assert answer.status == 0
    assert "is done: 5 steps in" in told(answer)
    bad = Story(project)
    bad.run("generate", "condor", how="failed", reason="no licence")
    answer = flow_follow.follow(bad.number, at, ())
    assert answer.status == 1
    assert "no licence" in told(answer)
    slow = Story(project)
    with pytest.raises(errors.TimedOut, match="0/5 steps"):
        flow_follow.follow(slow.number, at, (), patience=0.0)
    shown = flow_follow.lines(flow.seen(project, slow.number), project.clock.now())
    assert "generate" in "".join(str(cell) for cell in shown[1])


# -- graph, report -------------------------------------------------------------------------------


def test_the_graph_of_a_flow_and_of_a_file(at: Common, project: Project, tmp_path: Path):
    story = Story(project)
    story.whole(chunks=40)
    drawn = flow_draw.graph("last", at=at).raw.decode()
    assert drawn.splitlines()[0].startswith("✓ generate  condor · 5.0 s · 4.9 KiB")
    assert "✓ simulate 40/40  slurm" in drawn
    assert drawn.count("plot") == 2
    (tmp_path / "small.toml").write_text(FILE)
    planned = flow_draw.graph(str(tmp_path / "small.toml"), at=at).raw.decode()
    assert planned == "first  echo\n└─ second  true\n"
    out = tmp_path / "graph.svg"
    flow_draw.graph("1", form=Form(output=out), at=at)
    root = ET.parse(out).getroot()  # noqa: S314 - our own
    texts = ["".join(one.itertext()) for one in root.iter("{http://www.w3.org/2000/svg}text")]
    assert "✓ simulate 40/40" in texts
    mermaid = flow_draw.graph("1", form=Form(mermaid=True), at=at).raw.decode()
    assert mermaid.startswith("flowchart LR")
    assert "simulate 40/40" in mermaid
    with pytest.raises(errors.UsageError):
        Form(svg=True, mermaid=True)


def test_boxes_do_not_overlap_and_stay_where_they_are_as_states_change():
    def steps(state: str) -> list[StepSummary]:
        return [
            row("a", state="done"),
            row("b", ("a",), state, each=True, total=1 if state == "waiting" else 900),
            row("c", ("a",), state, sites=[] if state == "waiting" else ["somewhere-far-away"]),
            row("d", ("b", "c")),
            row("alone"),
        ]

    before, after = picture.draw(steps("waiting")), picture.draw(steps("running"))
    assert [(one.x, one.y, one.width) for one in before.nodes] == [
        (one.x, one.y, one.width) for one in after.nodes
    ]
    for one, other in itertools.combinations(after.nodes, 2):
        apart = one.x + one.width <= other.x or other.x + other.width <= one.x
        assert apart or abs(one.y - other.y) >= after.high
    assert len(after.arrows) == 4


def test_many_steps_that_are_alike_are_one_box():
    steps = [row("start", state="done")]
    for n in range(200):
        state = "done" if n < 120 else "running"
        steps.append(row(f"sim-{n}", ("start",), state, runs="sim"))
        steps.append(row(f"dig-{n}", (f"sim-{n}",), "failed" if n == 7 else "waiting", runs="dig"))
    steps.append(row("merge", tuple(f"dig-{n}" for n in range(200)), runs="merge"))
    drawn = picture.draw(steps)
    assert [one.title for one in drawn.nodes] == ["start", "sim* 120/200", "dig* 1/200", "merge"]
    assert [one.state for one in drawn.nodes] == ["done", "running", "failed", "waiting"]
    assert as_text(picture.as_graph(drawn, 0.0)).count("\n") == 4


def test_a_long_chain_and_a_tangle_are_still_small_enough_to_look_at():
    chain = [row(f"s{n}", (f"s{n - 1}",) if n else ()) for n in range(400)]
    assert [len(one.steps) for one in picture.draw(chain).nodes] == [1, 398, 1]
    # Each runs something else, so that no two are alike.
    tangle = [
        row(f"s{n}", tuple(f"s{m}" for m in {n // 2, n // 3} if m < n), runs=str(n))
        for n in range(1, 1500)
    ]
    found = picture.draw(tangle)
    assert len(found.nodes) <= picture.MOST
    assert sorted(name for one in found.nodes for name in one.steps) == sorted(
        one.name for one in tangle
    )


def test_ten_thousand_steps_are_drawn_in_a_moment():
    steps = [row("a"), *(row(f"b{n}", ("a",)) for n in range(10_000))]
    steps.append(row("c", tuple(f"b{n}" for n in range(10_000))))
    began = time.process_time()
    assert len(picture.draw(steps).nodes) == 3
    assert time.process_time() - began < 2.0


def test_the_report_has_all_and_needs_nothing(at: Common, project: Project, tmp_path: Path):
    story = Story(project)
    story.whole(chunks=4)
    out = tmp_path / "report.html"
    flow_draw.report("last", output=out, title="<b>Title</b>", at=at)
    page = out.read_text()
    assert "&lt;b&gt;Title&lt;/b&gt;" in page
    assert "<b>Title" not in page
    for words in ("simulate 4/4", "Where and when", "exit status 139", "done after all",
                  "What moved between sites"):  # fmt: skip
        assert words in page
    # 4 tasks at slurm read 5 000 bytes each of what condor had left.
    assert '<td>condor</td><td>slurm</td><td class="n">19.5 KiB</td>' in page
    assert "<script" not in page
    assert "http://" not in page.replace("http://www.w3.org/2000/svg", "")


def test_what_was_refused_is_told_with_its_reason(at: Common, project: Project):
    assert "none was refused" in told(flow.refused(at=at))
    with project.db.transaction() as db:
        db.value("flows_refused", now=100.0, user="eve", key="k-1", reason="she may not")
    answer = flow.refused(at=at)
    assert answer.data["refused"] == [
        {"time": "1970-01-01T00:01:40.000Z", "user": "eve", "key": "k-1", "reason": "she may not"}
    ]
    assert "eve  k-1  she may not" in told(answer)
