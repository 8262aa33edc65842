"""Flows are called off: what was not sent at once, the rest when its site has said so."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pilotage.flow import definition
from pilotage.flow.ends import close, finish
from pilotage.flow.journal import note
from pilotage.flow.model import FINAL
from pilotage.flow.progress import gone, settle

if TYPE_CHECKING:
    from pilotage.store import Db


def cancel(db: Db, flow: int, reason: str, now: float) -> str:
    """Call a flow off and return the state that it is in now; one that is over stays as it is.

    Attempts that are somewhere are marked: the flow is `cancelling` until each of them has ended,
    one way or another. What is done by then stays done.
    """
    head = definition.head(db, flow)
    if head.state in FINAL or head.state == "cancelling":
        return head.state
    words = reason or "called off"
    if head.state == "staging_out":
        close(db, flow, "cancelled", words, now)
        return "cancelled"
    db.run("flow_end", flow=flow, state="cancelling", reason=words, ended=None)
    note(db, now, flow, "cancelling", words)
    steps = db.rows("flow_steps_call_off", flow=flow, reason=words, now=now)
    tasks = db.rows("flow_tasks_call_off", flow=flow, reason=words, now=now)
    over = gone(db, flow, [row[0] for row in tasks], "cancelled", words, now)
    live = db.rows("flow_attempts_call_off", flow=flow)
    if steps or over:
        finish(db, settle(db, flow, over, now, more=len(steps)), now)
    for way, key in live:
        if way == "flow":
            call_off_child(db, key, words, now)
    return str(db.value("flow_state", flow=flow))


def call_off_child(db: Db, key: str, reason: str, now: float) -> None:
    """Call off the flow within an attempt, if it has one."""
    child = db.value("flow_by_key", key=key)
    if child is not None:
        cancel(db, child, reason, now)
