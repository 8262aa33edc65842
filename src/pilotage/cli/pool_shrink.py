"""`pilotage pool shrink`: make a pool smaller now."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from pilotage.base import errors
from pilotage.cli import job, shape
from pilotage.cli.answer import Answer
from pilotage.cli.common import HERE, Common


def shrink(
    name: Annotated[str, Parameter(help="Name of the pool.")],
    cores: Annotated[int, Parameter(help="Cores that it shall have at most.")] = 0,
    /,
    *,
    kill: Annotated[
        bool, Parameter(help="Also end what runs; those jobs are queued again.", negative="")
    ] = False,
    yes: Annotated[bool, Parameter(name=("--yes", "-y"), help="Do not ask.")] = False,
    at: Common = HERE,
) -> Answer:
    """Make a pool smaller now: those without a job go first, the others when theirs are over."""
    from pilotage.pool import view

    if cores < 0:
        raise errors.UsageError(f"a pool cannot have {cores} cores")
    with at.open() as project:
        who = view.leaving(project.db, project.root, name, cores, kill=kill)
        jobs = shape.count(who.jobs, "job")
        if who.jobs and not yes and not job.ask(f"end {jobs} that run, to be queued again?"):
            return Answer({"pool": name, "drain": [], "stop": []}, notes=("nothing was done",))
        with project.db.transaction():
            words = view.shrink(project.db, project.root, name, cores, who)
        idle = not project.running()
    said = f"{shape.count(len(who.drain), 'pilot')} of {name} take no more jobs and leave"
    said += f", {len(who.stop)} are stopped with {jobs}" if who.stop else ""
    notes = ("nothing runs this project now: it is done at the next start",) if idle else ()
    data = {"pool": name, "cores": cores, "drain": list(who.drain), "stop": list(who.stop)}
    return Answer(data, (said,), (*who.drain, *who.stop), (words, *notes))
