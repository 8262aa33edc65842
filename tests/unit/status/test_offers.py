"""What the store knows of offers, and of who comes first."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pilotage.base import text
from pilotage.hub.project import Project
from pilotage.job import moves
from pilotage.job.model import Command, JobSpec, NewJob, Resources
from pilotage.match.facts import JobFacts, LimitUse, QuotaUse
from pilotage.status import offers
from pilotage.status.explain import JobExplainer, hopeless

SETTINGS = """
[site]
cpus = 4
[share.user."phys/anna"]
quota = 8
[share.group.chem]
quota = 2
"""


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    (tmp_path / "pilotage.toml").write_text(SETTINGS)
    with Project(tmp_path) as made:
        yield made


def pilot(project: Project, host: str, cpus: int = 8, **row: Any) -> int:
    facts = {"host": host, "work": "/w", "cpus": cpus, "memory": 2**34, **row.pop("facts", {})}
    plain = {"site": "kit", "pool": "", "state": "available", "now": time.time()}
    with project.db.transaction() as db:
        return int(
            db.value("pilot_add", name=host, digest=host, facts=text.dump(facts), **plain | row)
        )


def submit(project: Project, owner: str = "phys/anna", **needs: Any) -> int:
    spec = JobSpec(Command(("true",)), "fit", resources=Resources(**needs))
    return project.submit(NewJob(spec, owner=owner))


def start(project: Project, job: int, holder: str) -> None:
    with project.db.transaction() as db:
        assert moves.claim(db, {job: holder}, "/jobs", time.time())


def facts(project: Project, job: int, *, running: bool = True) -> JobFacts:
    now = time.time()
    return JobExplainer(project.db, project.settings, now=now, running=running).facts(job)


def room(project: Project, job: int, *, running: bool = True) -> tuple[int, int]:
    found = facts(project, job, running=running).prospect
    assert found is not None
    return found.ever, found.now


def test_this_machine_is_an_offer_when_the_project_does_not_run(project):
    job = submit(project)
    assert room(project, job, running=False) == (1, 1)
    assert room(project, job) == (0, 0)


def test_a_machine_that_a_killed_process_left_in_the_store_is_no_offer(project):
    job = submit(project)
    shown = {"cpus": 4, "memory": 2**30, "host": "here", "work": "/w", "gpus": []}
    for seen, ever in ((time.time(), 1), (time.time() - 3600, 0)):
        with project.db.transaction() as db:
            db.run("pilot_local", name="here", site="local", state="available",
                   facts=text.dump(shown), now=seen)  # fmt: skip
        assert room(project, job) == (ever, ever)


def test_what_runs_is_taken_from_where_it_runs(project):
    first, second = pilot(project, "a"), pilot(project, "b", cpus=4)
    job = submit(project, cpus=4)
    assert room(project, job) == (2, 2)
    start(project, submit(project, cpus=5), f"pilot:{first}")
    assert room(project, job) == (2, 1)
    start(project, submit(project, cpus=1), f"pilot:{second}")
    assert room(project, job) == (2, 0)


def test_what_its_node_has_left_is_counted_from_its_enrolment(project):
    pilot(project, "a", now=time.time() - 60, facts={"lifetime": 3600.0})
    assert room(project, submit(project, time=3400.0)) == (1, 1)
    pilot(project, "b", facts={"lifetime": 1800.0})
    assert room(project, submit(project, time=3590.0)) == (0, 0)


def test_a_quota_of_the_owner_or_of_the_group_is_found(project):
    number = pilot(project, "a", cpus=64)
    start(project, submit(project, cpus=6), f"pilot:{number}")
    assert facts(project, submit(project, cpus=2)).quota is None
    assert facts(project, submit(project, cpus=3)).quota == QuotaUse("phys/anna", 8, 6)
    start(project, submit(project, "chem/bert"), f"pilot:{number}")
    assert facts(project, submit(project, "chem/carl")).quota is None
    assert facts(project, submit(project, "chem/carl", cpus=2)).quota == QuotaUse("chem", 2, 1)


def test_who_has_had_less_comes_first_and_the_own_jobs_by_age(project):
    with project.db.transaction() as db:
        rows = [["anna", 1000.0, time.time(), 1000.0], ["bert", 10.0, time.time(), 10.0]]
        db.run("usage_put", rows=text.dump(rows))
    for owner in ("anna", "bert", "bert", "carl", "anna"):
        last = submit(project, owner)
    assert facts(project, last).ahead == LimitUse(own=1, others=3)
    assert facts(project, 2).ahead == LimitUse(own=0, others=1)
    assert facts(project, 4).ahead == LimitUse()


def test_jobs_that_can_never_start_are_counted_by_kind(project):
    pilot(project, "a")
    for cpus in (1, 64, 64, 99):
        submit(project, cpus=cpus)
    scene = offers.read(project.db, project.settings, now=time.time(), running=True, room=False)
    assert hopeless(project.db, scene, project.root, time.time()) == [
        (2, 2, "`cpus >= 64`: the only offer fails; it has 8"),
        (4, 1, "`cpus >= 99`: the only offer fails; it has 8"),
    ]


def test_a_pilot_that_has_not_come_yet_is_no_offer_but_counted(project):
    job = submit(project)
    with project.db.transaction() as db:
        db.value("pilot_add", name="", site="kit", pool="", digest="x", facts="", now=1.0,
                 state="submitted")  # fmt: skip
    found = facts(project, job)
    assert found.prospect is not None
    assert found.prospect.no_offers
    assert found.coming == 1
