"""The column SITE of tables of jobs."""

from __future__ import annotations

import time
from pathlib import Path

from pilotage.base import text
from pilotage.cli import job_table
from pilotage.hub.project import Project
from pilotage.job import moves
from pilotage.job.model import Command, JobSpec, NewJob
from pilotage.match.where import JobPlace


def test_a_job_on_a_pilot_shows_the_site_of_the_pilot(tmp_path: Path) -> None:
    (tmp_path / "pilotage.toml").write_text("")
    with Project(tmp_path) as project:
        new = NewJob(JobSpec(Command(("true",)), "fit"))
        here, there, queued = (project.submit(new) for _ in range(3))
        with project.db.transaction() as db:
            facts = text.dump({"host": "n1", "work": "/w", "cpus": 8, "memory": 2**34})
            plain = {"site": "kit", "pool": "", "state": "available", "now": time.time()}
            pilot = db.value("pilot_add", name="n1", digest="n1", facts=facts, **plain)
            holders = {here: "pilot:0", there: f"pilot:{pilot}"}
            assert moves.claim(db, holders, "/jobs", time.time())
        found = [project.job(one) for one in (here, there, queued)]
        assert job_table.where(project.db, found) == {
            here: JobPlace("local", "local"),
            there: JobPlace("pilot", "kit", pilot),
        }
