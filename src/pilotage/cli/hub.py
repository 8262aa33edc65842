"""`pilotage hub`: run the project with pilots only."""

from __future__ import annotations

import resource
import signal
import time

from pilotage.base import units
from pilotage.cli.answer import Answer
from pilotage.cli.common import HERE, Common

_INTERRUPTED = 130


def hub(*, at: Common = HERE) -> Answer:
    """Run the project with pilots only, no jobs on this machine, until Ctrl-C."""
    from pilotage.cli import engine

    _make_room()
    with at.open() as project:
        began = time.monotonic()
        counts, heard = engine.drive(project, engine.Choices(local=False))
        took = time.monotonic() - began
    words = ", ".join(f"{count} {state}" for state, count in sorted(counts.items()))
    data = {"project": str(project.root), "ended": counts, "seconds": round(took, 3)}
    notes = (f"{words or 'no jobs ended'} in {units.for_people(took)}",)
    return Answer(data, notes=notes, status=_INTERRUPTED if heard == signal.SIGINT else 0)


def _make_room() -> None:
    """Allow as many connections as the machine lets us have: each pilot is one."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
