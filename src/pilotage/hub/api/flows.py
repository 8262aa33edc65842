"""Flows: list, read, draw, submit and change them."""

from __future__ import annotations

import secrets
from typing import Any

from msgspec import UNSET

from pilotage.base import errors
from pilotage.flow import explain, flow_outputs, moves, picture, read, sites, view
from pilotage.flow.model import NewFlow
from pilotage.flow.moves import outcome
from pilotage.flow.rerun import rerun
from pilotage.hub.api import answers, queries
from pilotage.hub.api.call import ApiCall
from pilotage.store import Db


def index(db: Db, call: ApiCall) -> answers.FlowPage:
    """List flows, the newest first."""
    wanted: queries.FlowsAsk = call.query
    states = [] if wanted.state is UNSET else wanted.state.split(",")
    before = None if wanted.before is UNSET else wanted.before
    found = view.rows(
        db, states=states, name=wanted.name, owner=wanted.owner, tag=wanted.tag,
        within=wanted.within, before=before, most=wanted.limit,
    )  # fmt: skip
    return answers.FlowPage(found, found[-1].id if len(found) == wanted.limit else None)


def submit(db: Db, call: ApiCall) -> answers.FlowMade:
    """Start a flow."""
    wanted: queries.NewFlow = call.body
    asked = read.from_dict(wanted.flow, params=wanted.params)
    # A key belongs to its owner: others neither find a flow by it nor collide with it.
    key = f"api.{call.grant.owner}.{wanted.key or secrets.token_hex(12)}"
    new = NewFlow(flow=asked, key=key, owner=call.grant.owner, source="api", tag=wanted.tag)
    project = call.context.project
    notes = sites.check_flow(db, project.root, project.settings, asked, call.now)
    return answers.FlowMade(moves.submit(db, new, call.now), len(asked.steps), notes)


def show(db: Db, call: ApiCall) -> answers.FlowSheet:
    """Read all about a flow."""
    found = _sheet(db, call)
    facts: dict[str, Any] = {name: getattr(found.row, name) for name in _SAME}
    return answers.FlowSheet(
        **facts, description=found.flow.description, params=found.flow.params,
        outputs=found.flow.outputs, to=found.flow.to, rows=found.steps,
        **_came_out(db, call, found),
        steer=call.grant.acts_for(found.row.owner),
    )  # fmt: skip


def _came_out(db: Db, call: ApiCall, found: view.FlowSheet) -> dict[str, Any]:
    """Return what came out of a flow that is done, as long as that is known."""
    if found.row.state != "done":
        return {"result": None, "files": []}
    files = flow_outputs.homes(db, found.row.id, str(call.context.project.root))
    return {"result": outcome(db, found.row.id), "files": files}


def graph(db: Db, call: ApiCall) -> picture.FlowPicture:
    """Draw the steps of a flow."""
    return picture.draw(_sheet(db, call).steps)


def _sheet(db: Db, call: ApiCall) -> view.FlowSheet:
    project = call.context.project
    return explain.sheet(db, call.path.id, call.now, project.settings, project.root)


def step(db: Db, call: ApiCall) -> answers.FlowStep:
    """Read a step with its tasks and what happened to it."""
    wanted: queries.StepAsk = call.query
    number, name = call.path.id, call.path.name
    found = _sheet(db, call)
    one = next((each for each in found.steps if each.name == name), None)
    if one is None:
        raise errors.NotFound(
            f"flow {number} has no step {name}", hint="GET /api/v1/flows/{id} has all"
        )
    silent = explain.silent(db, call.now)
    whys = {
        each.item: explain.explain_task(each, silent, call.now)
        for each in found.open
        if each.step == name
    }
    tasks = view.tasks(db, number, name, state=wanted.state, after=wanted.after, most=wanted.limit)
    told = view.story(db, number, name, most=wanted.lines)
    shown = [
        answers.FlowTask(**_facts(each), why=whys.get(each.item, each.reason)) for each in tasks
    ]
    return answers.FlowStep(one, shown, list(reversed(told)))


_SAME = view.FlowSummary.__struct_fields__


def _facts(one: view.TaskDetail) -> dict[str, Any]:
    return {name: getattr(one, name) for name in view.TaskDetail.__struct_fields__}


def cancel(db: Db, call: ApiCall) -> answers.Became:
    """Cancel a flow."""
    _own(db, call)
    said = f"cancelled by {call.grant.owner or 'an admin'}"
    return answers.Became(str(moves.cancel(db, call.path.id, said, call.now)))


def retry(db: Db, call: ApiCall) -> answers.FlowAgain:
    """Run a flow again from its failed steps, or from others."""
    _own(db, call)
    wanted: queries.Again = call.body
    return answers.FlowAgain(rerun(db, call.path.id, wanted.steps, call.now))


def _own(db: Db, call: ApiCall) -> None:
    row = view.row(db, call.path.id)
    if not call.grant.acts_for(row.owner):
        raise errors.Denied(
            f"flow {row.id} belongs to {row.owner or 'no owner'}",
            hint="only its owner and an admin may change it",
        )
