"""Pilotage as a user has it: `pilotage up` with two cores, and results that are on disk."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from bench.command import Command
from bench.tasks.drivers.serve import TRUE, check, serve
from pilotage.hub.project import Project
from pilotage.job import records
from pilotage.job.model import Command as Program
from pilotage.job.model import JobSpec, NewJob, State

_GLANCE_S = 0.001
_JOB = NewJob(JobSpec(Program((TRUE,)), name="nothing"))


def main() -> None:
    """Drive it until the input ends."""
    root = Path(tempfile.mkdtemp(prefix="project-"))
    with Project(root) as project, Command(root, ["up", "--cpus", "2"]):

        def processes(count: int) -> None:
            _processes(project, count)

        serve({"processes": processes, "process": processes})


def _processes(project: Project, count: int) -> None:
    db = project.db
    with db.transaction():
        ids = [records.add(db, _JOB, project.clock.now()) or 0 for _ in range(count)]
    project.poke()
    found = records.Selection(first=ids[0], last=ids[-1], states=(State.DONE,)).values()
    while len(db.rows("job_ids", **{key: found[key] for key in _KEYS})) < count:
        time.sleep(_GLANCE_S)
    check(len(ids), count)


_KEYS = ("first", "last", "states", "name", "tag")


if __name__ == "__main__":
    main()
