"""Follow a workflow until its end, with a line for each running step."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pilotage.base import errors, units
from pilotage.cli import flow, flow_tables, formatting, live, printing
from pilotage.cli.answer import Answer, Cell, Styled
from pilotage.flow import view

if TYPE_CHECKING:
    from pilotage.cli.common import Common
    from pilotage.flow.view import FlowSheet, FlowSummary
    from pilotage.hub.project import Project

#: Seconds between two polls: of the summary, and of each step.
_GLANCE_S, _LOOK_S = 0.1, 1.0
#: Steps that are shown at once, and letters of a bar.
_FEW, _BAR = 12, 20


def follow(number: int, at: Common, notes: Sequence[str], patience: float | None = None) -> Answer:
    """Wait for the end of a flow; the exit status is 1 unless it is done."""
    for note in notes:
        printing.say(note)
    until_over(number, at, patience)
    with at.open() as project:
        found = flow.seen(project, number)
        now = project.clock.now()
    good = found.row.state == "done"
    shown = [] if good else [*flow_tables.whole(found, now)]
    if good:
        took = units.for_people(max(0.0, (found.row.ended or now) - found.row.created))
        shown = [
            f"flow {number} is done: {flow.counted(len(found.steps))} in {took}",
        ]
    data = flow_tables.data(found.row) | {"steps": [flow_tables.data(one) for one in found.steps]}
    hints = () if good else flow.hints(found)
    return Answer({"flow": data}, tuple(shown), (number,), hints, status=0 if good else 1)


def until_over(number: int, at: Common, patience: float | None = None) -> None:
    """Wait for the end of a flow, and show how far it is."""
    began, looked = time.monotonic(), -_LOOK_S
    board = live.Board()
    warned = False
    told: dict[str, str] = {}
    with at.open() as project:
        try:
            while True:
                one = view.row(project.db, number)
                if view.over(one.state):
                    if not board.on:
                        _show(project, number, board, told, quiet=at.mode != "table")
                    return
                if not warned and not project.running():
                    warned = True
                    printing.say("nothing runs this project now: start `pilotage up`")
                if patience is not None and time.monotonic() - began >= patience:
                    raise _too_late(one, patience)
                if time.monotonic() - looked >= _LOOK_S:
                    looked = time.monotonic()
                    _show(project, number, board, told, quiet=at.mode != "table")
                time.sleep(_GLANCE_S)
        finally:
            board.clear()


def _too_late(one: FlowSummary, patience: float) -> errors.TimedOut:
    message = (
        f"flow {one.id} is {one.state} after {units.for_people(patience)}: "
        f"{flow_tables.far(one)} steps are over"
    )
    return errors.TimedOut(
        message, hint=f"it continues: `pilotage flow show {one.id}` shows its progress"
    )


def _show(
    project: Project, number: int, board: live.Board, told: dict[str, str], *, quiet: bool
) -> None:
    """Draw on a terminal; elsewhere write a line whenever a step has become another."""
    if quiet:
        return
    found = flow.seen(project, number)
    if board.on:
        board.draw(lines(found, project.clock.now()))
        return
    for one in found.steps:
        if told.get(one.name, "waiting") != one.state:
            why = f": {one.why}" if one.why and view.over(one.state) else ""
            printing.say(f"{one.name} ", flow_tables.state(one.state), why)
        told[one.name] = one.state


def lines(found: FlowSheet, now: float) -> list[list[Cell]]:
    """Write how far a flow is: a line for it, and one for each step that is under way."""
    one = found.row
    head: list[Cell] = [
        Styled(f"flow {one.id} {one.name}", "bold"), "  ", flow_tables.state(one.state),
        f"  {flow_tables.far(one)} steps  {units.for_people(max(0.0, now - one.created))}",
    ]  # fmt: skip
    rows: list[list[Cell]] = [head]
    busy = [step for step in found.steps if not view.over(step.state) and step.state != "waiting"]
    for step in busy[:_FEW]:
        seconds = step.seconds(now)
        took = "" if seconds is None else units.for_people(seconds)
        bar = ""
        if step.total > 1:
            full = _BAR * step.done // step.total
            bar = f" {'█' * full}{'░' * (_BAR - full)} {step.done}/{step.total}"
        rows.append(
            ["  ", flow_tables.state(step.state), f" {step.name}{bar}  ", Styled(took, "dim"),
             f"  {step.why}"]
        )  # fmt: skip
    more = len(busy) - _FEW
    if more > 0:
        rows.append([f"  … and {formatting.count(more, 'more step')}"])
    return rows
