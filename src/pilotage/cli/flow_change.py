"""`pilotage flow retry` and `cancel`; both are idempotent."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from pilotage.base import errors
from pilotage.cli import flow, flow_follow, flow_tables
from pilotage.cli.answer import Answer, Table, columns
from pilotage.cli.common import HERE, Common

_HEADS = columns("ID> NAME WAS NOW")
#: Most names in one message.
_FEW = 8


def retry(
    name: flow.One,
    /,
    *,
    from_: Annotated[
        tuple[str, ...],
        Parameter(name="--from", help="Run this step and all after it again; repeatable."),
    ] = (),
    wait: Annotated[bool, Parameter(help="Wait for its end, and show its progress.")] = False,
    at: Common = HERE,
) -> Answer:
    """Retry a workflow from its failed steps, or from given ones; earlier steps are kept."""
    from pilotage.flow import view as look
    from pilotage.flow.rerun import rerun

    with at.open() as project:
        number = flow.number(project, name)
        with project.db.transaction():
            steps = rerun(project.db, number, from_, project.clock.now())
        project.poke()
        after = look.row(project.db, number)
        notes = flow.idle(project)
    if wait:
        return flow_follow.follow(number, at, notes)
    names = ", ".join(f"`{one}`" for one in steps[:_FEW])
    more = f" and {len(steps) - _FEW} more" if len(steps) > _FEW else ""
    told = f"flow {number} runs {flow.counted(len(steps))} again: {names}{more}"
    if not steps:
        told = f"flow {number} sends what came out of it once more"
    data = {"flow": number, "steps": steps, "state": after.state}
    return Answer(data, (told,), (number,), notes)


def cancel(
    names: Annotated[
        tuple[str, ...],
        Parameter(name="FLOW", required=True, help="Flows, by number, `last` or name."),
    ],
    /,
    *,
    reason: Annotated[str, Parameter(help="The reason, shown with the workflow.")] = "",
    wait: Annotated[bool, Parameter(help="Wait until all sites have confirmed the end.")] = False,
    at: Common = HERE,
) -> Answer:
    """Cancel workflows; what runs at sites is ended there."""
    from pilotage.base.owner import me
    from pilotage.flow import moves
    from pilotage.flow import view as look

    with at.open() as project:
        numbers = flow.numbers(project, names)
        before = {one.id: one for one in look.some(project.db, numbers)}
        if len(numbers) == 1 and look.over(before[numbers[0]].state):
            message = f"flow {numbers[0]} is {before[numbers[0]].state} already"
            raise errors.Conflict(message, hint="it has ended already")
        live = [one for one in numbers if not look.over(before[one].state)]
        said = reason or f"cancelled by {me()}"
        with project.db.transaction():
            for number in live:
                moves.cancel(project.db, number, said, project.clock.now())
        project.poke()
        after = {one.id: one for one in look.some(project.db, numbers)}
        notes = flow.idle(project)
    if wait:
        for number in live:
            flow_follow.until_over(number, at)
        with at.open() as project:
            after = {one.id: one for one in look.some(project.db, numbers)}
    elif any(after[one].state == "cancelling" for one in live):
        notes += ("`--wait` waits until all sites have said that it ended",)
    rows = tuple(
        (one, before[one].name, flow_tables.state(before[one].state),
         flow_tables.state(after[one].state))
        for one in live
    )  # fmt: skip
    data = [{"id": one, "was": before[one].state, "state": after[one].state} for one in live]
    left = len(numbers) - len(live)
    if left:
        notes += (f"{left} had ended before",)
    return Answer({"flows": data}, (Table(_HEADS, rows),) if rows else (), tuple(live), notes)
