"""The demonstration, as `make demo` plays it, with fewer scans."""

from __future__ import annotations

import collections
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from pilotage.hub.project import Project
from pilotage.job.model import State
from pilotage.job.records import Selection

ROOT = Path(__file__).parents[2]
SCANS = 4


def play(folder: Path, *more: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "examples.foam", "--keep", str(folder), *more]
    return subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False, timeout=180)


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory):
    folder = tmp_path_factory.mktemp("demo") / "run"
    done = play(folder, "--scans", str(SCANS), "--every", "0.2")
    assert done.returncode == 0, done.stdout + done.stderr
    return folder, done.stdout


@pytest.fixture
def verdicts(demo) -> dict[str, bool]:
    folder, _ = demo
    said = {file.stem: json.loads(file.read_text()) for file in folder.glob("judged/*.json")}
    return {name: one["accepted"] for name, one in said.items()}


def test_some_scans_are_accepted_and_some_are_not(verdicts):
    assert len(verdicts) == SCANS
    assert set(verdicts.values()) == {True, False}


def test_each_scan_is_judged_and_each_accepted_one_analysed_exactly_once(demo, verdicts):
    folder, _ = demo
    with Project(folder) as project:
        jobs = project.jobs(Selection())
    assert {job.state for job in jobs} == {State.DONE}
    runs = collections.Counter(
        (job.name, job.binding.match["scan"]) for job in jobs if job.name != "report"
    )
    accepted = [name for name, good in verdicts.items() if good]
    wanted = [("judge", name) for name in verdicts]
    wanted += [(step, name) for step in ("segment", "analyse") for name in accepted]
    assert runs == collections.Counter(wanted)
    assert {file.stem for file in folder.glob("analysed/*.csv")} == set(accepted)


def test_every_step_knows_the_job_that_caused_it(demo):
    folder, _ = demo
    with Project(folder) as project:
        jobs = {job.id: job for job in project.jobs(Selection())}
    causes = {(jobs[job.parent].name if job.parent else "", job.name) for job in jobs.values()}
    assert causes == {("", "judge"), ("judge", "segment"), ("segment", "analyse"), ("", "report")}


def test_the_report_has_seen_everything(demo, verdicts):
    folder, _ = demo
    page = (folder / "report.html").read_text()
    accepted = sum(verdicts.values())
    assert f"{accepted} of {SCANS} scans had the right number" in page
    assert "still at work" not in page
    assert all(f"<td>{name}</td>" in page for name in verdicts)


def test_the_report_is_one_file_with_pictures_a_plot_and_the_graph(demo):
    folder, told = demo
    page = (folder / "report.html").read_text()
    addresses = re.findall(r'(?:src|href)="([^"]*)"', page)
    assert len(addresses) > SCANS
    assert all(address.startswith("data:image/") for address in addresses)
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", page)
    assert "<script" not in page
    assert "log-normal fit" in page
    graph = page.partition("What caused what")[2].partition("</svg>")[0]
    assert all(rule in graph for rule in ("judge", "segment", "analyse", "report"))
    assert str(folder / "report.html") in told


def test_a_folder_with_other_files_is_left_alone(tmp_path):
    (tmp_path / "thesis.tex").write_text("my only copy")
    done = play(tmp_path)
    assert done.returncode == 1
    assert "holds other files" in done.stderr
    assert [file.name for file in tmp_path.iterdir()] == ["thesis.tex"]
