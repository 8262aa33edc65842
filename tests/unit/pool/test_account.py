"""What pools have held, and what was made of it."""

from __future__ import annotations

from pathlib import Path

from pilotage.hub.project import Project
from pilotage.job import records
from pilotage.job.model import Command, JobSpec, NewJob, Resources
from pilotage.pool import view
from pilotage.pool.view import Account

PILOT = """
INSERT INTO pilot (id, name, site, pool, state, reason, digest, facts, enrolled, seen, ended)
VALUES (?, 'x', 'site', ?, 'down', '', '', '{"cpus":4}', ?, 0, ?)
"""
ATTEMPT = """
INSERT INTO attempt (job, number, state, dir, starter, started, ended, wall)
VALUES (?, ?, ?, '', ?, ?, ?, ?)
"""


def test_cores_that_were_held_used_and_lost(tmp_path: Path):
    (tmp_path / "pilotage.toml").touch()
    with Project(tmp_path) as project, project.change() as db:
        spec = JobSpec(Command(("true",)), name="x", resources=Resources(cpus=2))
        job = records.add(db, NewJob(spec), 0.0)
        run = db._connection.execute
        run(PILOT, (1, "a", 100.0, 200.0))
        run(PILOT, (2, "b", 150.0, None))
        run(PILOT, (3, "", 100.0, 900.0))
        # Lost after ten seconds, then done after twenty, and a last one runs, elsewhere.
        run(ATTEMPT, (job, 1, "lost", "pilot:1", 110.0, 120.0, None))
        run(ATTEMPT, (job, 2, "done", "pilot:1", 120.0, 160.0, 20.0))
        run(ATTEMPT, (job, 3, "running", "pilot:2", 190.0, None, None))
        run(ATTEMPT, (job, 4, "done", "pilot:3", 190.0, 200.0, 10.0))
        found = view.accounts(db, 250.0)
        assert found == {"a": Account(400.0, 60.0, 20.0), "b": Account(400.0, 120.0, 0.0)}
        assert view.accounts(db, 250.0, "b") == {"b": found["b"]}


def test_words():
    assert Account().words() == ""
    assert Account().part is None
    assert Account(36e3, 18e3).words() == "5 of 10 core-hours held (50%)"
    assert Account(72e5, 36e5, 18e5).words() == (
        "1000 of 2000 core-hours held (25%), 500 of these in vain"
    )
