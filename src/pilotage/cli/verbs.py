"""`pilotage cancel|hold|release|retry`; all are idempotent."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from pilotage.cli import formatting, job_selector
from pilotage.cli.answer import Answer, Styled, Table, columns
from pilotage.cli.common import HERE, Common
from pilotage.job.machine import FINAL
from pilotage.job.model import Job, State
from pilotage.job.moves import AWAY

if TYPE_CHECKING:
    from pilotage.hub.project import Project

Selectors = Annotated[tuple[str, ...], Parameter(help=job_selector.HELP, required=True)]
_HEADS = columns("ID> NAME WAS NOW")
_FEW = 20


def cancel(selector: Selectors, /, *, at: Common = HERE) -> Answer:
    """Cancel jobs; running ones are stopped."""
    return _change(selector, at, lambda one: one.state not in FINAL, lambda p, ids: p.cancel(ids))


def hold(selector: Selectors, /, *, at: Common = HERE) -> Answer:
    """Hold jobs; running ones are stopped and held."""
    return _change(
        selector, at, lambda one: one.state not in FINAL and one.state is not State.HELD,
        lambda p, ids: p.hold(ids),
    )  # fmt: skip


def release(selector: Selectors, /, *, at: Common = HERE) -> Answer:
    """Release held jobs."""
    return _change(selector, at, lambda one: one.state is State.HELD, lambda p, ids: p.release(ids))


def retry(selector: Selectors, /, *, at: Common = HERE) -> Answer:
    """Retry failed jobs, as a new attempt."""
    return _change(
        selector, at, lambda one: one.state in FINAL and one.state is not State.DONE,
        lambda p, ids: p.retry(ids),
    )  # fmt: skip


def _change(
    selector: Sequence[str],
    at: Common,
    applies: Callable[[Job], bool],
    verb: Callable[[Project, list[int]], dict[int, State]],
) -> Answer:
    with at.open() as project:
        found = [project.job(number) for number in job_selector.numbers(project, selector)]
        # One job named outright that cannot be changed is a mistake; one of many is passed over.
        fit = [one for one in found if applies(one)] if len(found) != 1 else found
        now = verb(project, [one.id for one in fit])
        changed = [one for one in fit if now[one.id] is not one.state or one.state in AWAY]
        idle = bool(changed) and not project.running()
    left = len(found) - len(changed)
    notes = [f"{formatting.count(left, 'job')} left as before"] if left else []
    if idle and any(state in {State.QUEUED, State.RUNNING} for state in now.values()):
        notes.append("nothing runs this project now: start `pilotage up`")
    rows = tuple(
        (one.id, one.name, formatting.state(one.state), _after(one, now[one.id])) for one in changed
    )
    return Answer(
        data={"jobs": [{"id": one.id, "was": one.state, "state": now[one.id]} for one in changed]},
        shown=(Table(_HEADS, rows[:_FEW]),) if rows else (),
        ids=tuple(one.id for one in changed),
        notes=(*([f"… and {len(rows) - _FEW} more"] if len(rows) > _FEW else []), *notes),
    )


def _after(one: Job, now: State) -> Styled:
    ending = one.state in AWAY and now is one.state
    return Styled("ending", "yellow") if ending else formatting.state(now)
