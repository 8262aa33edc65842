"""The smaller examples, played as their README says."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from examples import stage
from pilotage.hub.project import Project
from pilotage.job.model import Command, JobSpec, NewJob, State
from pilotage.job.records import Selection

ROOT = Path(__file__).parents[2]


def argv(example: str, folder: Path, *more: str) -> list[str]:
    return [sys.executable, "-m", f"examples.{example}", "--keep", str(folder), *more]


def play(example: str, folder: Path, *more: str) -> str:
    command = argv(example, folder, *more)
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
def test_only_what_a_person_approved_is_published(tmp_path):
    folder = tmp_path / "run"
    told = play("approve", folder, "--auto")
    assert len(list(folder.glob("previews/*.svg"))) == 3
    records = {file.stem: json.loads(file.read_text()) for file in folder.glob("published/*.json")}
    assert set(records) == {"spring", "pendulum"}
    assert {record["approved_by"] for record in records.values()} == {"Ada"}
    assert "loose-contact is not approved" in told
    assert "published/spring.svg" in (folder / "report.html").read_text()


@pytest.mark.slow
def test_the_example_waits_for_a_person(tmp_path):
    folder = tmp_path / "run"
    with subprocess.Popen(argv("approve", folder), cwd=ROOT, stdout=subprocess.DEVNULL) as process:
        try:
            await_files(folder, "previews/*.svg", 3)
            for name in ("spring", "pendulum"):
                (folder / f"approved/{name}.ok").write_text("Grace\n")
            await_files(folder, "published/*.json", 2)
            assert process.poll() is None
            (folder / "approved/loose-contact.ok").touch()
            assert process.wait(60) == 0
        finally:
            process.terminate()
    record = json.loads((folder / "published/loose-contact.json").read_text())
    assert record["approved_by"] == "somebody"


def await_files(folder: Path, pattern: str, count: int) -> None:
    deadline = time.monotonic() + 60
    while len(list(folder.glob(pattern))) < count:
        assert time.monotonic() < deadline, f"{pattern} did not come"
        time.sleep(0.05)


@pytest.fixture(scope="module")
def loops(tmp_path_factory: pytest.TempPathFactory):
    folder = tmp_path_factory.mktemp("refine") / "run"
    told = play("refine", folder)
    with Project(folder) as project:
        return folder, told, project.jobs(Selection())


@pytest.mark.slow
def test_a_loop_ends_by_itself(loops):
    folder, _, _ = loops
    root = json.loads((folder / "roots/from-minus-2.json").read_text())["x"]
    assert abs(root**3 - 2 * root + 2) < 1e-9


@pytest.mark.slow
def test_a_loop_that_does_not_is_held_with_the_reason(loops):
    folder, told, jobs = loops
    assert not (folder / "roots/from-0.json").exists()
    held = [job for job in jobs if job.state is State.HELD]
    assert [job.depth for job in held] == [12]
    assert "rule refine caused itself 12 times in a row" in held[0].reason
    assert held[0].reason in told
    assert held[0].reason in (folder / "report.html").read_text()
    assert all(job.state is State.DONE for job in jobs if job is not held[0])


@pytest.mark.slow
def test_every_job_of_a_loop_knows_the_one_before(loops):
    _, _, found = loops
    jobs = {job.id: job for job in found}
    for job in found:
        assert job.depth == (jobs[job.parent].depth + 1 if job.parent else 0)
    assert sum(job.parent is None for job in found) == 2


@pytest.mark.parametrize("state,status", [(State.QUEUED, 0), (State.HELD, 1)])
def test_an_example_with_a_job_that_went_wrong_says_so(tmp_path, capsys, state, status):
    spec = JobSpec(Command(("true",)), "judge")
    with Project(tmp_path) as project:
        project.submit(NewJob(spec, state=state, reason="out of foam"))
        assert stage.complain(stage.jobs(project)) == status
    assert ("out of foam" in capsys.readouterr().err) is bool(status)


def test_a_measurement_has_its_peak(tmp_path):
    folder = tmp_path / "run"
    told = play("atlas", folder, "--events", "5000")
    assert "the peak is at 91." in told
    assert (folder / "atlas/latest/picture/mass.svg").read_text().startswith("<svg")


@pytest.mark.parametrize("example", ["foam", "approve", "refine", "atlas"])
def test_every_example_begins_with_commands(example):
    readme = (ROOT / f"examples/{example}/README.md").read_text()
    first = readme.partition("```sh\n")[2].partition("```")[0]
    assert f"python -m examples.{example}" in first
