"""A site with a real agent in the list of sites: why it takes no job is said at once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pilotage.batch import files
from pilotage.batch.model import SiteSettings
from pilotage.job import records
from pilotage.job.model import App, JobSpec, NewJob, Resources, State
from pilotage.status import offers
from testbed.rabbit import Rabbit
from tests.rigs.broker.edge_agent import SRC, Edge
from tests.rigs.project.flow_hub import Hub, served

OVER = (State.DONE, State.FAILED, State.CANCELLED, State.REJECTED)


@pytest.fixture(scope="module")
def edge(tmp_path_factory: pytest.TempPathFactory, rabbit: Rabbit) -> Iterator[Edge]:
    with served(tmp_path_factory.mktemp("site"), rabbit, lambda _: None) as one:
        yield one


@pytest.fixture(scope="module")
def hub(edge: Edge, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hub]:
    made = Hub(tmp_path_factory.mktemp("site") / "hub", edge)
    with made.up():
        made.wait(lambda: [one["state"] for one in sites(made)] == ["well"])
        yield made


def run(root: Path, *words: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "pilotage", *words]
    env = {**os.environ, "PYTHONPATH": str(SRC)}
    return subprocess.run(
        argv, cwd=root, capture_output=True, text=True, timeout=120, check=False, env=env
    )


def answer(hub: Hub, *words: str) -> Any:
    found = run(hub.root, *words, "--json")
    assert found.returncode == 0, found.stderr + found.stdout
    return json.loads(found.stdout)


def sites(hub: Hub) -> list[dict[str, Any]]:
    return list(answer(hub, "site", "ls")["sites"])


def submit(hub: Hub, **facts: Any) -> int:
    new = NewJob(JobSpec(**{"recipe": App("count"), "name": "job", **facts}))
    with hub.change() as project, project.db.transaction() as db:
        job = records.add(db, new, project.clock.now())
    assert job is not None
    return job


def state(hub: Hub, job: int) -> State:
    with hub._rig.project() as project:
        return project.job(job).state


def explained(hub: Hub, job: int) -> str:
    return " ".join(run(hub.root, "explain", str(job)).stdout.split())


def asking(edge: Edge, app: str = "count") -> str:
    return json.dumps({"recipe": {"kind": "app", "app": app}, "name": "job", "site": edge.site})


def job_file(hub: Hub, body: str) -> str:
    file = hub.root / "job.json"
    file.write_text(body)
    return str(file)


def test_a_job_there_has_its_place(hub: Hub, edge: Edge):
    job = submit(hub, site=edge.site)
    hub.wait(lambda: state(hub, job) in OVER)
    (found,) = answer(hub, "job", "show", str(job))["jobs"]
    assert (found["state"], found["place"]) == (
        "done", {"kind": "agent", "site": edge.site, "pilot": None},
    )  # fmt: skip
    assert f"the site {edge.site}, by its agent" in run(hub.root, "job", "show", str(job)).stdout


def test_requirements_on_applications_find_the_site(hub: Hub, edge: Edge):
    job = submit(hub, requirements='"count" in applications and age < 3600', rank="-jobs")
    hub.wait(lambda: state(hub, job) is State.DONE)
    never = submit(hub, requirements='"count" in applications and free_nodes > 3')
    assert "free_nodes" in explained(hub, never)


def test_what_the_site_will_never_take_is_refused_by_the_command(hub: Hub, edge: Edge):
    found = run(hub.root, "submit", "--site", edge.site, "--", "true")
    assert found.returncode == 5, found.stderr
    assert "only applications that its administrator registered" in found.stderr
    assert "`count`" in found.stderr
    found = run(hub.root, "submit", job_file(hub, asking(edge, "coutn")))
    assert found.returncode == 4, found.stderr
    assert "has no application `coutn`" in found.stderr
    assert "did you mean `count`?" in found.stderr


def test_rules_and_flows_are_refused_alike(hub: Hub, edge: Edge):
    book = hub.root / "other.toml"
    book.write_text(f'[rule.odd]\nfiles = "y/*"\nrun = ["true"]\nsite = "{edge.site}"\n')
    found = run(hub.root, "rule", "check", str(book))
    assert found.returncode == 3, found.stderr
    assert "other.toml" in found.stderr
    assert "rule.odd.site" in found.stderr
    flow = hub.root / "flow.toml"
    flow.write_text(f'name = "f"\n[step.a]\nsite = "{edge.site}"\napplication = "coutn"\n')
    found = run(hub.root, "flow", "submit", str(flow))
    assert found.returncode == 3, found.stderr
    assert "did you mean `count`?" in found.stderr


def kept_back(hub: Hub, edge: Edge, reason: str) -> int:
    """Submit to a drained site until a job is kept back: the matchmaker hears of it a bit later."""
    for _ in range(20):
        found = run(hub.root, "submit", job_file(hub, asking(edge)))
        assert found.returncode == 0, found.stderr
        assert f"site `{edge.site}` is drained by" in found.stderr
        assert reason in found.stderr
        with hub._rig.project() as project:
            job = int(project.db.value("job_last"))
        hub.wait(lambda job=job: reason in explained(hub, job) or left(hub, job))  # type: ignore[misc]
        # Which sites are closed is looked at twice a second.
        time.sleep(1.5)
        if not left(hub, job):
            return job
    raise AssertionError(hub.told())


def left(hub: Hub, job: int) -> bool:
    """Whether a job was matched."""
    return state(hub, job) is not State.QUEUED


def test_a_site_that_this_hub_drains_says_who_and_why(hub: Hub, edge: Edge):
    assert run(hub.root, "site", "drain", edge.site, "--reason", "new disks").returncode == 0
    try:
        job = kept_back(hub, edge, "new disks")
        assert "new disks" in explained(hub, job)
        assert "new disks" in run(hub.root, "job", "ls").stdout
    finally:
        run(hub.root, "site", "resume", edge.site)
    hub.wait(lambda: state(hub, job) is State.DONE)


def test_a_site_that_its_administrator_drains_says_who_and_why(hub: Hub, edge: Edge):
    assert run(edge.root, "agent", "drain", "--reason", "power cut").returncode == 0
    try:
        hub.wait(lambda: sites(hub)[0]["agent"]["draining"])
        job = kept_back(hub, edge, "power cut")
        assert "power cut" in explained(hub, job)
    finally:
        run(edge.root, "agent", "resume")
    hub.wait(lambda: state(hub, job) is State.DONE)


@pytest.mark.slow
def test_what_runs_there_counts_in_fair_share_while_it_runs(hub: Hub, edge: Edge):
    def used() -> float:
        with hub._rig.project() as project:
            return float(sum(row[3] for row in project.db.rows("usage_all")))

    def cores() -> int:
        with hub._rig.project() as project:
            now = project.clock.now()
            return sum(
                offers.read(project.db, project.settings, now=now, running=True).cores.values()
            )

    # The expected seconds are charged as soon as it is sent, so the sum before counts.
    before = used()
    job = submit(hub, site=edge.site, recipe=App("gate"), resources=Resources(time=250.0))
    hub.wait(lambda: state(hub, job) is State.RUNNING)
    assert cores() >= 1
    hub.wait(lambda: used() > before + 1)
    assert state(hub, job) is State.RUNNING
    with hub.change() as project:
        project.cancel([job])
    hub.wait(lambda: state(hub, job) in OVER)


def test_a_file_of_the_same_name_is_reported_and_not_used(hub: Hub, edge: Edge):
    found = run(hub.root, "site", "add", edge.site, "--batch", "local")
    assert found.returncode == 7, found.stderr
    assert "an agent serves a site" in found.stderr
    file = files.write(hub.root, edge.site, SiteSettings(batch="local"))
    try:
        (one,) = sites(hub)
        assert (one["kind"], "the agent is used" in one["conflict"]) == ("agent", True)
        assert "the agent is used" in run(hub.root, "site", "ls").stderr
        job = submit(hub, site=edge.site)
        hub.wait(lambda: state(hub, job) is State.DONE)
        (shown,) = answer(hub, "job", "show", str(job))["jobs"]
        assert shown["place"]["kind"] == "agent"
    finally:
        file.unlink()
