"""`pilotage up`: run the project here."""

from __future__ import annotations

import signal
import time
from pathlib import Path
from typing import Annotated

import msgspec
from cyclopts import Parameter

from pilotage.base import errors, units
from pilotage.cli import init, printing
from pilotage.cli.answer import Answer
from pilotage.cli.common import HERE, Common
from pilotage.hub.project import Project
from pilotage.job.model import State

_INTERRUPTED = 130


def up(
    *,
    until_idle: Annotated[
        bool, Parameter(help="Exit when nothing is left to do; the status is 1 if a job failed.")
    ] = False,
    cpus: Annotated[
        int | None, Parameter(help="Cores for jobs; else those of the settings.")
    ] = None,
    page: Annotated[
        bool,
        Parameter(help="Open the port for the page, programs and pilots.", negative="--no-page"),
    ] = True,
    at: Common = HERE,
) -> Answer:
    """Run the project here: watch, match and run jobs until Ctrl-C."""
    from pilotage.cli import engine

    with _open(at) as project:
        if cpus is not None:
            _limit(project, cpus)
        began = time.monotonic()
        # Pilots of pools must find us.
        pools = (project.root / "pools").is_dir()
        choices = engine.Choices(until_idle=until_idle, serve=page and (pools or not until_idle))
        counts, heard = engine.drive(project, choices)
        took = time.monotonic() - began
        return _answer(project, counts, took, until_idle=until_idle, heard=heard)


def _open(at: Common) -> Project:
    """Open the project that is meant, or make one here."""
    try:
        return at.open()
    except errors.NoProject:
        if at.project is not None:
            raise
        init.make(Path.cwd())
        printing.say(f"made a project in {Path.cwd()}")
        return Project(Path.cwd())


def _limit(project: Project, cpus: int) -> None:
    if cpus < 1:
        message = f"cannot run jobs on {cpus} cores"
        raise errors.UsageError(message, hint="`--cpus` is 1 or more")
    site = msgspec.structs.replace(project.settings.site, cpus=cpus)
    project.settings = msgspec.structs.replace(project.settings, site=site)


def _answer(
    project: Project, counts: dict[str, int], took: float, *, until_idle: bool, heard: int
) -> Answer:
    words = ", ".join(f"{count} {state}" for state, count in sorted(counts.items()))
    bad = counts.get(State.FAILED, 0) + counts.get(State.REJECTED, 0)
    status = 1 if until_idle and bad else 0
    if heard == signal.SIGINT:
        status = _INTERRUPTED
    notes = [f"{words or 'no jobs ended'} in {units.for_people(took)}"]
    if bad:
        notes.append("hint: `pilotage status` shows what failed")
    data = {"project": str(project.root), "ended": counts, "seconds": round(took, 3)}
    return Answer(data, notes=tuple(notes), status=status)
