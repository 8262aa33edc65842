"""The folder of a call that declares files, where the project is seen."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pilotage.job.model import Binding, Command, JobSpec
from pilotage.payload import warm
from pilotage.run import launch


@pytest.fixture(autouse=True)
def _stay(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)


def folder(project: Path, inputs: list[str], outputs: list[str], cwd: str = "") -> warm.Folder:
    root = str(project) if cwd else f"{project}/.pilotage/work"
    facts = {
        "root": root,
        "cwd": root,
        "project": "" if cwd else str(project),
        "inputs": [f"{project}/{one}" for one in inputs],
        "outputs": [f"{project}/{one}" for one in outputs],
        "own": not cwd,
    }
    return warm.Folder(json.dumps(facts))


def test_a_missing_input_is_missed_also_where_calls_run_in_the_projects_folder(tmp_path):
    with pytest.raises(warm.UnableError, match=r"its input a\.csv is not there"):
        folder(tmp_path, ["a.csv"], [], cwd=".").enter()


def test_the_projects_folder_may_have_any_name(tmp_path):
    project = tmp_path / "lab[1]*"
    project.mkdir()
    (project / "a.csv").write_text("a")
    (project / "b[1].csv").write_text("b")
    one = folder(project, ["*.csv", "a.csv", "b[[]1].csv", "b[1].csv"], [])
    one.enter()
    assert warm.files(one.root) == ["a.csv", "b[1].csv"]
    spec = JobSpec(Command(("true",)), "t", inputs=("*.csv", "a.csv"))
    launch.require_inputs(spec, Binding(), str(project), 1)


def test_inputs_within_an_output_folder_are_changed_by_calls_that_end_well_only(tmp_path):
    (tmp_path / "data").mkdir()
    for name in ("a", "b"):
        (tmp_path / "data" / name).write_text("old")
    before = (tmp_path / "data/a").stat()

    for well in (False, True):
        one = folder(tmp_path, ["data/a", "data/b"], ["data"])
        one.enter()
        Path(one.root, "data/b").write_text("new")
        Path(one.root, "data/c").write_text("new")
        assert one.leave(well=well) == []
        assert (tmp_path / "data/b").read_text() == ("new" if well else "old")
        assert (tmp_path / "data/c").exists() == well

    # What no call has changed fires no rule.
    after = (tmp_path / "data/a").stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_links_within_an_output_folder_lead_to_what_is_there(tmp_path):
    for text in ("first", "second"):
        one = folder(tmp_path, [], ["out"])
        one.enter()
        made = Path(one.root, "out")
        made.mkdir()
        (made / "a").write_text(text)
        # `File` gives functions absolute paths, so that such links are usual.
        (made / "latest").symlink_to(made / "a")
        assert one.leave(well=True) == []
        assert (tmp_path / "out/latest").read_text() == text
