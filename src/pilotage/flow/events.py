"""Ends of tasks and of workflows as events for rules."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pilotage.base import text
from pilotage.event.model import Event, EventKind
from pilotage.flow.model import job_key
from pilotage.job.model import State
from pilotage.rule.pipeline import EndSource, Line
from pilotage.store import Db

#: The most files in the event of an end.
_MOST_OUTPUTS = 1000


def ended(db: Db, after: int, root: str) -> list[Line]:
    """Read ends of tasks of workflows elsewhere, and of whole workflows."""
    found: list[Line] = []
    known: set[str] = set()
    for row in db.rows("flows_ends", after=after):
        (seq, time, ends, flow, name, step, task, item, number, state, reason, site,
         result, whole) = row  # fmt: skip
        if whole:
            whole_flow = _of_flow(db, flow, state, root)
            found.append((seq, _ended_flow(db, (seq, time), flow, state, whole_flow)))
            continue
        # An end has several lines in the story; the version is that of the end.
        version = f"flow-{flow}-{task}-{number}"
        if not ends or version in known:
            found.append((seq, None))
            continue
        known.add(version)
        facts = {
            "id": task, "name": f"{name}/{step}", "rule": "", "state": state, "reason": reason,
            "attempt": number, "depth": 0, "outputs": _left(db, task, number, state, root),
            "flow": flow, "step": step, "item": item,
            "site": site, "result": text.load(result) if result else None,
        }  # fmt: skip
        cause, depth = db.row("flow_cause", flow=flow) or (None, 0)
        facts["depth"] = depth
        event = Event(EventKind.JOB_ENDED, f"{name}/{step}", time, version, data=facts, cause=cause)
        found.append((seq, event))
    return found


def _left(db: Db, task: int, number: int, state: str, root: str) -> list[str]:
    """Return the addresses of the outputs of a task that is done."""
    from pilotage.edge import handoff  # most projects have no workflows
    from pilotage.flow import records as flows
    from pilotage.project import settings

    made = flows.attempt(db, task, number) if state == State.DONE else None
    if made is None or not made.place:
        return []
    place = settings.at_home(made.place, Path(root) / settings.STATE)
    return [
        handoff.address(place, text.load_path(one.name))
        for one in flows.files(db, task, number)[:_MOST_OUTPUTS]
    ]


def _ended_flow(
    db: Db, line: tuple[int, float], flow: int, state: str, facts: dict[str, Any]
) -> Event:
    """Return the event of the end of a workflow."""
    name, (seq, time) = facts["flow_name"], line
    facts = {
        "id": flow, "name": name, "rule": "", "state": state, "attempt": 1, "depth": 0,
        "reason": db.value("flow_reason", flow=flow), "outputs": [], **facts,
    }  # fmt: skip
    return Event(EventKind.JOB_ENDED, name, time, f"flow-{flow}-{seq}", data=facts)


def _of_flow(db: Db, flow: int, state: str, root: str) -> dict[str, Any]:
    """Return the result and outputs of a workflow that is over."""
    from pilotage.flow import flow_outputs
    from pilotage.flow.moves import outcome  # most projects have no workflows

    name = db.value("flow_name", flow=flow)
    facts: dict[str, Any] = {"flow": flow, "flow_name": name, "result": None}
    if state == State.DONE:
        facts |= {"result": outcome(db, flow), "outputs": flow_outputs.homes(db, flow, root)}
    return facts


def of_job(db: Db, job: int, state: str, root: str) -> dict[str, Any]:
    """Return the result and outputs of a job that is a workflow; nothing for other jobs."""
    flow = db.row("flow_by_key", key=job_key(job))
    return {} if flow is None else _of_flow(db, flow[0], state, root)


#: The source of ends of tasks and workflows.
STORY = EndSource(ended, "flows_story_last")
