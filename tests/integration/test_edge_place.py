"""Jobs of rules and submissions at a site with a real agent, by a real broker."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pilotage.base.crash import REMOTE
from pilotage.job import records
from pilotage.job.model import App, Command, Job, JobSpec, NewJob, Recipe, Resources, State
from pilotage.job.records import Selection
from testbed.rabbit import Rabbit
from tests.rigs.broker.applications import DOES
from tests.rigs.broker.edge_agent import Edge
from tests.rigs.cluster.web import Web, serving
from tests.rigs.project.flow_hub import Hub, served

_UPPER = {
    "argv": ["{source}", "{target}"],
    "parameter": {"source": {"kind": "path"}, "target": {"kind": "path"}},
}
_RULES = """
[rule.far]
files = "in/*.txt"
app = "stage"
site = "{site}"
params = {{ source = "{{path}}", target = "out/{{stem}}.up" }}
outputs = {{ up = "out/{{stem}}.up" }}
"""


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Web]:
    with serving(tmp_path_factory.mktemp("web")) as one:
        yield one


@pytest.fixture(scope="module")
def edge(tmp_path_factory: pytest.TempPathFactory, rabbit: Rabbit, web: Web) -> Iterator[Edge]:
    staging = {
        "protocols": ["http"], "hosts": [f"127.0.0.1:{web.port}"], "private": ["127.0.0.0/8"],
    }  # fmt: skip

    def equip(one: Edge) -> None:
        does = 'mkdir -p "$(dirname "$2")"; tr a-z A-Z < "$1" > "$2"; echo upper; echo oh >&2'
        one.programs.add("upper", does, staging=staging, **_UPPER)
        one.programs.add("tells", f"{DOES['gate']}\necho told")

    with served(tmp_path_factory.mktemp("place"), rabbit, equip) as one:
        yield one


@pytest.fixture(scope="module")
def hub(edge: Edge, web: Web, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hub]:
    root = tmp_path_factory.mktemp("place") / "hub"
    told = {"flows": {"data": f"{web.url}/data", "hosts": [f"127.0.0.1:{web.port}"]}}
    rules = _RULES.format(site=edge.site).replace('app = "stage"', 'app = "upper"')
    made = Hub(root, edge, rules=rules, settings=told)
    (root / "in").mkdir()
    with made.up():
        yield made


def submit(hub: Hub, recipe: Recipe, site: str, **more: Any) -> int:
    new = NewJob(JobSpec(recipe=recipe, name="job", site=site, **more))
    with hub.change() as project, project.db.transaction() as db:
        job = records.add(db, new, project.clock.now())
    assert job is not None
    return job


def look(hub: Hub, job: int) -> Job:
    with hub._rig.project() as project:
        return project.job(job)


def wait(hub: Hub, job: int, *states: State) -> Job:
    hub.wait(lambda: look(hub, job).state in states)
    return look(hub, job)


def log(hub: Hub, job: int, stream: str) -> str:
    with hub._rig.project() as project:
        (attempt,) = records.attempts(project.db, job)
    return (Path(attempt.dir) / stream).read_text()


def command(hub: Hub, *words: str) -> str:
    argv = [sys.executable, "-m", "pilotage", *words]
    done = subprocess.run(
        argv, cwd=hub.root, capture_output=True, text=True, timeout=60, check=False
    )
    return done.stdout + done.stderr


OVER = (State.DONE, State.FAILED, State.CANCELLED, State.REJECTED)


def test_a_rule_on_a_file_runs_at_the_site_and_its_output_comes_home(hub: Hub, edge: Edge):
    (hub.root / "in" / "a.txt").write_text("quick brown fox")
    home = hub.root / "out" / "a.up"
    hub.wait(home.exists)
    assert home.read_text() == "QUICK BROWN FOX"
    with hub._rig.project() as project:
        (job,) = [one for one in project.jobs(Selection()) if one.rule == "far"]
    ended = wait(hub, job.id, *OVER)
    assert (ended.state, ended.reason) == (State.DONE, "")
    assert log(hub, job.id, "stdout") == "upper\n"
    assert log(hub, job.id, "stderr") == "oh\n"


def test_a_submission_without_data_runs_there(hub: Hub, edge: Edge):
    job = submit(hub, App("count"), edge.site, params={"label": "mine"})
    assert wait(hub, job, *OVER).state is State.DONE
    assert log(hub, job, "stdout") == "counted\n"


def test_a_failure_there_is_one_here_with_its_reason(hub: Hub, edge: Edge):
    job = submit(hub, App("fail"), edge.site, params={"status": 3})
    ended = wait(hub, job, *OVER)
    assert (ended.state, ended.reason) == (State.FAILED, "exited with code 3")


def test_what_the_site_refuses_is_rejected_with_the_reason(hub: Hub, edge: Edge):
    job = submit(hub, App("count"), edge.site, params={"label": "; rm"})
    ended = wait(hub, job, *OVER)
    assert ended.state is State.REJECTED
    assert edge.site in ended.reason
    assert "label" in ended.reason


def test_what_the_limits_of_the_site_refuse_waits_until_they_are_others(hub: Hub, edge: Edge):
    edge.programs.add("short", "true", limits={"time": "5m"})
    hub.wait(lambda: "short" in command(hub, "site", "show", edge.site))
    job = submit(hub, App("short"), edge.site, resources=Resources(time=600.0))
    hub.wait(lambda: "the limit is 300 s" in look(hub, job).reason)
    # Heartbeats come and go; it is not offered again.
    time.sleep(2.5)
    found = look(hub, job)
    assert (found.state, found.attempt) == (State.QUEUED, 1)
    assert "the limit is 300 s" in command(hub, "explain", str(job))
    program = edge.programs.folder / "short"
    edge.programs.offer("short", program, limits={"time": "15m"})
    ended = wait(hub, job, *OVER)
    assert (ended.state, ended.attempt) == (State.DONE, 2)


def test_a_job_that_is_cancelled_ends_there(hub: Hub, edge: Edge):
    job = submit(hub, App("gate"), edge.site)
    wait(hub, job, State.RUNNING)
    with hub.change() as project:
        project.cancel([job])
    assert wait(hub, job, *OVER).state is State.CANCELLED
    edge.wait(lambda: not edge.programs.running())


def test_a_log_that_cannot_be_written_holds_up_nothing_and_is_told(hub: Hub, edge: Edge):
    job = submit(hub, App("tells"), edge.site)
    wait(hub, job, State.RUNNING)
    with hub._rig.project() as project:
        (attempt,) = records.attempts(project.db, job)
    # To open it for writing blocks until it has a reader.
    Path(attempt.dir).mkdir(parents=True)
    os.mkfifo(Path(attempt.dir, "stdout"))
    edge.programs.gate.touch()
    try:
        ended = wait(hub, job, *OVER)
    finally:
        edge.programs.gate.unlink()
    assert (ended.state, ended.reason[:28]) == (State.DONE, "its log cannot be kept here:")
    other = submit(hub, App("count"), edge.site)
    assert wait(hub, other, *OVER).state is State.DONE


def test_a_command_is_not_matched_and_explained(hub: Hub, edge: Edge):
    job = submit(hub, Command(("true",)), edge.site)
    other = submit(hub, App("nosuch"), edge.site)
    for one, word in ((job, "only applications"), (other, "nosuch")):
        assert look(hub, one).state is State.QUEUED
        said = command(hub, "explain", str(one))
        assert word in said
        assert "never" in said


@pytest.mark.crash_points
@pytest.mark.parametrize("point", REMOTE)
def test_killed_at_any_point_a_job_runs_once_and_its_output_comes_home(
    hub: Hub, edge: Edge, point: str
):
    """The hub dies with a job on its way, there, or coming home."""
    name = point.replace(".", "-")
    hub.kill()
    (hub.root / f"in/{name}.txt").write_text(name)
    before = len(edge.programs.starts())
    try:
        hub.dies(point)
    finally:
        hub.start()
    home = hub.root / f"out/{name}.up"
    hub.wait(home.exists)
    with hub._rig.project() as project:
        job = project.jobs(Selection())[-1]
    assert job.binding.path.endswith(f"{name}.txt")
    assert wait(hub, job.id, *OVER).state is State.DONE
    assert home.read_text() == name.upper()
    assert len(edge.programs.starts()) == before + 1
