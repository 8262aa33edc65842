"""Flows as commands and the page see them, with what is known of sites and of jobs of this hub."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from pilotage.base import units
from pilotage.edge import view
from pilotage.flow import view as look
from pilotage.flow import why
from pilotage.flow.model import State
from pilotage.flow.view import Open, Sheet, StepRow
from pilotage.job.model import State as JobState
from pilotage.project.settings import Settings
from pilotage.store import Db

if TYPE_CHECKING:
    from pilotage.match.facts import Explanation

#: Jobs of this hub that are asked why they do not run, for one picture of a flow.
_ASKED = 4
_IDLE = "nothing runs this project now: `pilotage up` does"
#: A job of the hub in these states waits for something that can be explained.
_WAITS = frozenset({JobState.QUEUED, JobState.WAITING, JobState.READY, JobState.HELD})
#: A job for a site with an agent in these states is not there.
_HERE = frozenset({JobState.QUEUED, JobState.HELD})


def sheet(
    db: Db, number: int, now: float, settings: Settings, root: Path, *, running: bool = True
) -> Sheet:
    """Read a flow and say of each step why it does not go on."""
    found = look.sheet(db, number)
    steps = why.steps(found.steps, found.open, silent(db, now, running=running), now)
    if look.over(found.row.state):
        return found._replace(steps=steps)
    if not running:
        steps = [_idle(one) for one in steps]
    else:
        steps = _explained(db, steps, found.open, now, settings, root)
    return found._replace(steps=steps)


def silent(db: Db, now: float, *, running: bool = True) -> dict[str, str]:
    """Say of sites by the bus what keeps them from going on."""
    seen = view.look(db, now, running=running)
    if seen.broker.trouble:
        told = f"the broker cannot be reached: {seen.broker.trouble}"
        return {one.name: told for one in seen.edges} if running else {}
    found: dict[str, str] = {}
    for one in seen.edges:
        if one.state == "silent":
            found[one.name] = f"nothing was heard of it for {units.for_people(now - one.heard)}"
        elif one.state == "trouble" or one.draining:
            found[one.name] = one.words
    return found


def _idle(one: StepRow) -> StepRow:
    if look.over(one.state) or one.state == State.WAITING:
        return one
    told = f"{one.why}; {_IDLE}" if one.why else _IDLE
    return msgspec.structs.replace(one, why=told)


def _explained(
    db: Db, steps: list[StepRow], tasks: Iterable[Open], now: float, settings: Settings, root: Path
) -> list[StepRow]:
    """Ask jobs of this hub that wait why they do, one of each step."""
    jobs: dict[str, int] = {}
    for task in tasks:
        waits = _WAITS if task.way == "here" else _HERE
        if task.way != "flow" and task.job is not None and task.stage in waits:
            jobs.setdefault(task.step, task.job)
    if not jobs:
        return steps
    from pilotage.match import explain
    from pilotage.status.explain import Witness  # most flows need it not

    witness = Witness(db, settings, now=now, running=True, root=root)
    told = {
        step: _said(explain.explain(witness.facts(job)))
        for step, job in list(jobs.items())[:_ASKED]
    }
    return [
        msgspec.structs.replace(one, why=_joined(one, told[one.name])) if one.name in told else one
        for one in steps
    ]


def _said(found: Explanation) -> str:
    if not found.reasons:
        return found.headline
    first = found.reasons[0]
    return f"{found.headline}: {first.text}" + (f", {first.detail}" if first.detail else "")


def _joined(one: StepRow, told: str) -> str:
    return told if one.total == 1 else f"{one.why}; {told}"
