"""Crates of flows: what the reference library reads in them, and what is told."""

from __future__ import annotations

import hashlib
import json
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rocrate.rocrate import ROCrate

from pilotage.base import errors
from pilotage.cli import flow_draw
from pilotage.cli.common import Common
from pilotage.edge.handoff import Take
from pilotage.flow import crate_file, records
from pilotage.flow.model import Flow, Step
from pilotage.flow.orders import start_child
from pilotage.hub.project import Project
from tests.rigs.project.flow_store import Story, command

PROFILE = "https://w3id.org/ro/wfrun/provenance/0.5"


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    (tmp_path / "project").mkdir()
    (tmp_path / "project/pilotage.toml").touch()
    with Project(tmp_path / "project") as found:
        yield found


def written(project: Project, story: Story, out: Path, **more: Any) -> ROCrate:
    crate_file.write(project.db, story.number, out, project.clock.now(), "1.2", **more)
    return ROCrate(out)


def ids(found: Any) -> list[str]:
    """The names of one entity or of several."""
    many = found if isinstance(found, list) else [found]
    return [one.id for one in many]


def actions(crate: ROCrate, kind: str) -> list[Any]:
    return [one for one in crate.get_entities() if one.type == kind]


def test_it_is_a_provenance_run_crate_of_the_definition(project: Project, tmp_path: Path):
    story = Story(project)
    story.whole()
    crate = written(project, story, tmp_path / "crate")
    assert PROFILE in ids(crate.root_dataset["conformsTo"])
    main = crate.mainEntity
    assert set(main.type) == {"File", "SoftwareSourceCode", "ComputationalWorkflow", "HowTo"}
    assert ids(main["step"]) == [f"flow.json#{name}" for name in
                                 ("generate", "simulate", "check", "merge", "plot")]  # fmt: skip
    tools = {crate.get(one).get("workExample").id for one in ids(main["step"])}
    assert tools == set(ids(main["hasPart"]))
    body = (tmp_path / "crate/flow.json").read_bytes()
    assert json.loads(body)["name"] == "atlas"
    assert main["sha256"] == hashlib.sha256(body).hexdigest()


def test_each_attempt_is_an_action_at_its_site(project: Project, tmp_path: Path):
    story = Story(project)
    story.whole(chunks=4)
    crate = written(project, story, tmp_path / "crate")
    made = {one["name"]: one for one in actions(crate, "CreateAction")}
    assert len(made) == 1 + 4 + 5
    bad = made["Run of simulate for item 1 at slurm"]
    assert bad["actionStatus"].endswith("FailedActionStatus")
    assert bad["error"] == "exit status 139"
    good = made["Run of simulate for item 1, attempt 2 at slurm"]
    assert good["actionStatus"].endswith("CompletedActionStatus")
    assert good["location"]["name"] == "slurm"
    assert good["instrument"]["name"] == "simulation"
    # It read one of the two files that `generate` left, and its item.
    read = [one for one in good["object"] if one.type == "File"]
    assert [one["name"] for one in read] == ["events.dat"]
    assert next(one for one in good["object"] if one.type == "PropertyValue")["value"] == 1
    assert good["startTime"] < good["endTime"]
    merged = made["Run of merge at condor"]
    assert len([one for one in merged["object"] if one.type == "File"]) == 4
    run = made[f"Run of atlas as flow {story.number}"]
    assert [one["name"] for one in run["result"]] == ["plot.svg"]
    engine = actions(crate, "OrganizeAction")[0]
    assert engine["result"].id == run.id
    assert len(engine["object"]) == 5


def test_files_have_sizes_and_digests_wherever_they_are(project: Project, tmp_path: Path):
    story = Story(project)
    story.whole()
    crate = written(project, story, tmp_path / "crate")
    hits = [one for one in actions(crate, "File") if one.get("name") == "all hits.dat"]
    assert [one["contentSize"] for one in hits] == ["4800"]
    assert hits[0]["sha256"] == hashlib.sha256(b"H" * 4800).hexdigest()
    assert hits[0].id.startswith("file:///")
    assert " " not in hits[0].id


def test_data_comes_along_if_asked_for(project: Project, tmp_path: Path):
    story = Story(project)
    story.whole()
    crate = written(project, story, tmp_path / "crate", fetch=flow_draw._fetch)
    inside = tmp_path / "crate/data/merge/0/all hits.dat"
    assert inside.read_bytes() == b"H" * 4800
    hits = next(one for one in actions(crate, "File") if one.get("name") == "all hits.dat")
    assert hits.id == "data/merge/0/all%20hits.dat"


def test_a_flow_that_failed_is_told_as_it_is(project: Project, tmp_path: Path):
    story = Story(project)
    story.generated()
    story.run("check", how="failed", reason="exit status 3")
    story.run("simulate", "slurm", how="running", item=0)
    crate = written(project, story, tmp_path / "crate")
    # A tool of which nothing ran has an action all the same: the profile wants one.
    used = {one["instrument"].id for one in actions(crate, "CreateAction")}
    assert set(ids(crate.mainEntity["hasPart"])) <= used
    skipped = crate.get(f"#not-run-{story.number}-plot")
    assert skipped["actionStatus"].endswith("PotentialActionStatus")
    assert skipped["description"] == "`check` failed: exit status 3"
    live = next(one for one in actions(crate, "CreateAction") if "item 0" in one["name"])
    assert live["actionStatus"].endswith("ActiveActionStatus")


def test_a_zip_is_whole_and_nothing_is_overwritten(project: Project, tmp_path: Path):
    story = Story(project)
    story.whole()
    at = Common(project=project.root)
    out = tmp_path / "crate.zip"
    answer = flow_draw.crate(str(story.number), output=out, license_="CC-BY-4.0", at=at)
    assert answer.data["files"] == 3
    with zipfile.ZipFile(out) as packed:
        assert sorted(packed.namelist()) == ["flow.json", "report.html", "ro-crate-metadata.json"]
        assert b'"license": "CC-BY-4.0"' in packed.read("ro-crate-metadata.json")
    with pytest.raises(errors.Conflict):
        flow_draw.crate("last", output=out, at=at)
    assert [one.name for one in tmp_path.iterdir() if one.name.startswith(".")] == []


def test_a_flow_within_is_told_of_with_its_own_steps(project: Project, tmp_path: Path):
    inner = Flow(
        name="inner", steps={"say": Step(recipe=command("say"), outputs=("out.txt",))},
        outputs={"out": "say/out.txt"},
    )  # fmt: skip
    outer = Flow(
        name="outer",
        steps={
            "begin": Step(recipe=command("begin")),
            "within": Step(needs=("begin",), flow=inner),
            "end": Step(
                needs=("within",), recipe=command("end"),
                inputs=(Take(step="within", output="out"),),
            ),
        },
    )  # fmt: skip
    story = Story(project, outer)
    early = written(project, story, tmp_path / "early")
    # The profile wants an action for each tool, also for those of a flow that has not begun.
    used = {one["instrument"].id for one in actions(early, "CreateAction")}
    assert "#tool-say" in used
    story.run("begin")
    task = records.tasks(project.db, story.number, step="within")[0].id
    with project.db.transaction() as db:
        child = start_child(db, task, story.now)
    assert child is not None
    whole, story.number = story.number, child
    story.run("say", files={"out.txt": b"hello"})
    story.number = whole
    story.run("end")
    crate = written(project, story, tmp_path / "crate")
    made = {one["name"]: one for one in actions(crate, "CreateAction")}
    within = made["Run of within at a flow within"]
    assert within["instrument"]["name"] == "inner"
    assert ids(within["instrument"]["hasPart"]) == ["#tool-say"]
    assert [one["name"] for one in within["result"]] == ["out.txt"]
    assert ids(made["Run of end at here"]["object"]) == ids(within["result"])
    engines = {one["result"].id for one in actions(crate, "OrganizeAction")}
    assert engines == {within.id, made[f"Run of outer as flow {whole}"].id}
