"""A workflow that runs again: each run keeps its results, and `latest` leads to the newest."""

from __future__ import annotations

from pathlib import Path

import pytest

from pilotage.flow import flow_outputs, moves, read, records
from pilotage.flow.model import NewFlow
from pilotage.flow.rerun import rerun
from tests.rigs.project.project import Rig

FLOW = """
name = "runs"
to = "{to}"
params = { word = "a" }

[step.first]
run = ["sh", "-c", "echo $0 > word.txt; echo first >> ROOT/ran", "{word}"]
outputs = ["word.txt"]

[step.second]
inputs = ["first"]
run = ["sh", "-c", "cat word.txt > out.txt; cat ROOT/more >> out.txt; echo second >> ROOT/ran"]
outputs = ["out.txt"]
"""


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    (tmp_path / "more").write_text("1\n")
    return Rig(tmp_path)


def submit(rig: Rig, word: str, to: str = "results") -> int:
    source = FLOW.replace("{to}", to).replace("ROOT", str(rig.root))
    flow = read.read(source, base=rig.root, params={"word": word})
    with rig.project() as project, project.db.transaction() as db:
        return moves.submit(db, NewFlow(flow=flow, key=word, owner="me"), project.clock.now())


def states(rig: Rig) -> list[str]:
    with rig.project() as project:
        return [one.state for one in records.flows(project.db)]


async def test_the_same_flow_twice_works_and_each_run_keeps_its_results(rig: Rig):
    first, second = submit(rig, "a"), submit(rig, "b")
    await rig.finish()
    assert states(rig) == ["done", "done"]
    home = rig.root / "results"
    assert (home / str(first) / "out.txt").read_text() == "a\n1\n"
    assert (home / str(second) / "out.txt").read_text() == "b\n1\n"
    assert str((home / "latest").readlink()) == str(second)
    assert (home / "latest" / "out.txt").read_text() == "b\n1\n"


@pytest.mark.parametrize("to, folder", [("results", "1.2"), ("results/{flow}", "1")])
async def test_what_runs_again_from_a_step_has_results_of_its_own(rig: Rig, to: str, folder: str):
    submit(rig, "a", to)
    await rig.finish()
    (rig.root / "more").write_text("2\n")
    with rig.project() as project, project.db.transaction() as db:
        assert rerun(db, 1, ["second"], project.clock.now()) == ["second"]
    await rig.finish()
    assert states(rig) == ["done"]
    home = rig.root / "results"
    assert (home / folder / "out.txt").read_text() == "a\n2\n"
    assert (rig.root / "ran").read_text().split() == ["first", "second", "second"]
    if to == "results":
        assert (home / "1" / "out.txt").read_text() == "a\n1\n"
        assert str((home / "latest").readlink()) == "1.2"


def test_latest_never_leads_back_and_leaves_what_is_a_persons(tmp_path: Path):
    for name in ("9", "10", "10.2"):
        (tmp_path / name).mkdir()
    for name, leads in (("10", "10"), ("9", "10"), ("10.2", "10.2"), ("10", "10.2")):
        flow_outputs._point(str(tmp_path / name))
        assert str((tmp_path / "latest").readlink()) == leads
    (tmp_path / "latest").unlink()
    (tmp_path / "latest").mkdir()
    flow_outputs._point(str(tmp_path / "9"))
    assert sorted(one.name for one in tmp_path.iterdir()) == ["10", "10.2", "9", "latest"]
