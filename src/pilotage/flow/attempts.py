"""Attempts: tasks are sent somewhere, and sites say how they are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pilotage.base import errors
from pilotage.flow.cancel import call_off_child
from pilotage.flow.ends import OVER, end
from pilotage.flow.journal import note
from pilotage.flow.model import FINAL, End, State, Way

if TYPE_CHECKING:
    from pilotage.store import Db

#: A task that waits at its site is not `queued`, which is what those are that can be sent.
_THERE = {"waiting": "ready", "queued": "ready"}
#: What a site can say of an attempt; anything else would leave its task where nothing follows.
_SAID = (frozenset(State) - FINAL) | OVER


def attempt(
    db: Db, task: int, way: Way, site: str, place: str, now: float, *, job: int | None = None
) -> int:  # fmt: skip
    """Make the next attempt of a task that is queued, and return its number.

    `place` is the folder that it writes to as readers name it, `job` the job of this hub that it
    is.
    """
    row = db.row("flow_task_sent", task=task, reason=f"sent to {site}" if site else "", now=now)
    if row is None:
        message = f"task {task} is not queued"
        raise errors.IllegalTransition(message, hint="only a task that is queued can be sent")
    number, flow, step = row
    db.run(
        "flow_attempt_new", task=task, number=number, flow=flow, way=way, site=site,
        key=f"flow.{flow}.{task}.{number}", job=job, place=place, now=now,
    )  # fmt: skip
    if job is not None and (cause := db.row("flow_cause", flow=flow)) is not None:
        db.run("flow_job_caused", job=job, cause=cause[0], depth=cause[1] + 1)
    note(db, now, flow, "ready", f"sent to {site}" if site else "", step=step, task=task,
         number=number)  # fmt: skip
    return int(number)


def hear(
    db: Db, key: str, seq: int, state: str, reason: str, kind: str, code: str, now: float
) -> bool:  # fmt: skip
    """Take in what became of an attempt; say whether it counts.

    Of two words the one with the higher number is newer. Nothing follows upon the last word. What
    an attempt says that is fenced or no longer the current one is noted with it, and changes
    nothing else. The last word does not end the task: whoever has looked at what the attempt left
    calls `end`.
    """
    row = db.row("flow_attempt_spoken", key=key)
    if row is None:
        return False
    task, number, last, was, fenced, ended, current, stands, flow, step, started = row
    if was in OVER or ended is not None or seq <= last or state not in _SAID:
        db.run("flow_attempt_heard", key=key, now=now)
        return False
    if started is None and state in ("running", "staging_out", "done"):
        started = now
    db.run(
        "flow_attempt_hear", key=key, seq=seq, state=state, reason=reason, kind=kind, code=code,
        now=now, started=started,
    )  # fmt: skip
    if fenced or number != current or stands in FINAL:
        return False
    if state == "done":
        db.run("flow_task_hear", task=task, state="staging_out", reason="what it left is looked at")
    elif state not in OVER:
        db.run("flow_task_hear", task=task, state=_THERE.get(state, state), reason=reason)
    if state != was:
        note(db, now, flow, state, reason, step=step, task=task, number=number)
    return True


def fence(db: Db, task: int, now: float, reason: str = "given up") -> int | None:
    """Give the current attempt of a task up, whatever it still does, and return its number.

    The task is tried again, where its step lets it; the attempt is to be called off as well.
    """
    facts = db.row("flow_task_facts", task=task)
    if facts is None:
        return None
    number = int(facts[4])
    key = f"flow.{facts[0]}.{task}.{number}"
    if not end(db, task, number, End(state="lost", reason=reason, kind="infrastructure"), now):
        return None
    call_off_child(db, key, reason, now)
    return number


def postpone(db: Db, task: int, reason: str, until: float) -> bool:
    """Say why a task that is queued cannot be sent now, and when to look at it again."""
    return db.value("flow_task_say", task=task, reason=reason, after=until) is not None
