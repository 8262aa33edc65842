"""Flows enter the store."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from pilotage.base import errors, text
from pilotage.flow import check, definition
from pilotage.flow.attempts import attempt
from pilotage.flow.ends import finish, give_up
from pilotage.flow.journal import note
from pilotage.flow.model import NewFlow
from pilotage.flow.order import order
from pilotage.flow.progress import begin

if TYPE_CHECKING:
    from pilotage.store import Db


def submit(db: Db, new: NewFlow, now: float) -> int:
    """Take a flow and start the steps that wait for nothing; return its number.

    The same key with the same definition is the same flow, and nothing happens; with another
    definition it is a conflict.
    """
    _label(new)
    flow = check.complete(new.flow)
    body = text.dump(flow)
    digest = definition.digest(body)
    known = db.row("flow_by_key", key=new.key)
    if known is not None:
        if known[1] != digest:
            message = f"flow {known[0]} has the key `{new.key}` and another definition"
            raise errors.Conflict(message, hint="give this one a key of its own")
        return int(known[0])
    if db.value("flow_forgotten", key=new.key):
        message = f"a flow with the key `{new.key}` was here, is over, and is forgotten"
        raise errors.Conflict(message, hint="give this one a key of its own")
    check.check(flow)
    head, rows = definition.split(flow)
    number = int(
        db.value(
            "flow_add", key=new.key, digest=digest, name=flow.name, owner=new.owner, tag=new.tag,
            source=new.source, parent=new.parent, open=len(flow.steps), budget=flow.retries,
            now=now,
        )
    )  # fmt: skip
    db.run("flow_text_add", flow=number, body=body, head=head)
    for query in ("flow_steps_add", "flow_specs_add"):
        db.run(query, flow=number, rows=text.dump(rows))
    edges = [(before, name) for name, step in flow.steps.items() for before in step.needs]
    db.run("flow_edges_add", flow=number, rows=text.dump(edges))
    note(db, now, number, "running", f"{len(flow.steps)} steps")
    finish(db, begin(db, number, now), now)
    return number


#: What begins keys that are ours alone.
_RESERVED = (("flow.", "flow", "flows within others"), ("job:", "rule", "flows of rules"))


def _label(new: NewFlow) -> None:
    """Complain of a key or tag that cannot be; keys of flows within others are ours alone."""
    for what, word in (("key", new.key), ("tag", new.tag)):
        if len(word) > check.LONGEST or not word.isprintable():
            message = f"{text.show(word[:40])!r} cannot be the {what} of a flow"
            raise errors.BadFlow(message, hint=f"at most {check.LONGEST} printable characters")
    for first, source, whose in _RESERVED:
        if not new.key or (new.key.startswith(first) and new.source != source):
            message = f"{new.key!r} cannot be the key of a flow"
            raise errors.BadFlow(message, hint=f"{whose} have keys that begin with `{first}`")


def within(db: Db, task: int, now: float) -> int | None:
    """Start the flow that a task is, and return its number; nothing if the task cannot be sent."""
    asked = order(db, task, now)
    if asked is None or asked.definition.flow is None:
        return None
    inner = asked.definition.flow
    unknown = asked.definition.parameters.keys() - inner.params.keys()
    if unknown:
        give_up(db, task, f"the flow has no parameter `{min(unknown)}`", now)
        return None
    flow = msgspec.structs.replace(inner, params=inner.params | asked.definition.parameters)
    number = attempt(db, task, "flow", "", "", now)
    new = NewFlow(
        flow=flow, key=asked.key, owner=asked.owner, source="flow", parent=task, tag=asked.tag
    )
    child = submit(db, new, now)
    db.run("flow_attempt_job", task=task, number=number, job=child)
    return child
