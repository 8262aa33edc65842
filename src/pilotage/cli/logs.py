"""`pilotage logs`: what jobs wrote."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Annotated

from cyclopts import Parameter

from pilotage import errors
from pilotage.cli import select, shape
from pilotage.cli.answer import Answer, Stream
from pilotage.cli.common import HERE, Common
from pilotage.cli.verbs import Selectors
from pilotage.hub.project import Project
from pilotage.job.model import Attempt, Job, State
from pilotage.result import logs as written
from pilotage.result.logs import Name

_GLANCE_S = 0.1
_BEFORE = (State.WAITING, State.QUEUED, State.STAGING_IN, State.READY, State.SUBMITTED)


def logs(
    selector: Selectors,
    /,
    *,
    follow: Annotated[
        bool, Parameter(name=("--follow", "-f"), negative="", help="Go on until the jobs end.")
    ] = False,
    stderr: Annotated[bool, Parameter(negative="", help="Standard error instead.")] = False,
    attempt: Annotated[int | None, Parameter(help="This attempt; else the last one.")] = None,
    lines: Annotated[
        int | None, Parameter(name=("--lines", "-n"), help="Only so many lines at the end.")
    ] = None,
    at: Common = HERE,
) -> Answer | Stream:
    """Print what jobs wrote to standard output."""
    name: Name = "stderr" if stderr else "stdout"
    if lines is not None and lines < 0:
        message = f"cannot print {lines} lines"
        raise errors.UsageError(message, hint="`-n 20` prints the last 20")
    if follow:
        return Stream(_follow(at, selector, name, attempt, lines))
    with at.open() as project:
        found = [
            _one(project, number, name, attempt, lines, head=len(selector) > 1)
            for number in select.numbers(project, selector)
        ]
    if len(found) > 1:
        found = [_headed(one) for one in found]
    return Answer(
        {"jobs": [one.data for one in found]},
        raw=b"".join(one.raw for one in found),
        notes=tuple(note for one in found for note in one.notes),
        ids=tuple(one.data["id"] for one in found),
    )
