"""Ends of attempts and of flows: a flow within a flow ends the task that it is the inside of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pilotage.base import text
from pilotage.base.clock import dice
from pilotage.flow import definition, policy
from pilotage.flow.journal import note
from pilotage.flow.model import FINAL, End, job_of
from pilotage.flow.progress import Ended, task_over
from pilotage.flow.values import Values
from pilotage.job import moves as job_moves
from pilotage.job import records as jobs
from pilotage.job import retry
from pilotage.job.moves import AWAY
from pilotage.job.outcome import Cause

if TYPE_CHECKING:
    from pilotage.store import Db

#: A result is for conditions and lists, not for data: the most bytes of JSON.
MOST_RETURNED_BYTES = 65_536
#: What an attempt can be at the last.
OVER = frozenset({"done", "failed", "cancelled", "rejected", "lost"})


def end(
    db: Db, task: int, number: int, how: End, now: float, *, result: object = None
) -> bool:  # fmt: skip
    """Take in how an attempt ended; say whether that counts.

    Only the first word on the current attempt does, and none on one that is fenced. A `result`
    that is not nothing is written down first, or else what the function returned that the attempt
    was. A task that is tried again is queued; one that is not
    is over, and with the last one its step, and with the last of those the flow.
    """
    facts = db.row("flow_task_facts", task=task)
    if facts is None or facts[4] != number or facts[3] in FINAL:
        return False
    attempt = db.row("flow_attempt_facts", task=task, number=number)
    if attempt is None or attempt[4] or attempt[5] is not None:
        return False
    returned = "" if result is not None else _returned(db, task, number)
    if how.state == "done" and len(returned) > MOST_RETURNED_BYTES:
        reason = (
            f"what it returned has {len(returned)} bytes, and {MOST_RETURNED_BYTES} are the most"
        )
        how = End(state="failed", reason=reason, kind="application", code="result")
    _close(db, task, number, attempt, how, now)
    flow = facts[0]
    words = how.reason or f"it was {how.state}"
    if how.state == "done":
        if result is not None:
            set_result(db, task, number, result)
        elif returned:
            db.run("flow_task_result", task=task, number=number, result=returned)
        finish(db, task_over(db, task, facts, "done", "", now), now)
    elif db.value("flow_state", flow=flow) != "running":
        off = how.state in ("cancelled", "lost")
        finish(db, task_over(db, task, facts, "cancelled" if off else "failed", words, now), now)
    else:
        _again(db, task, facts, how, now)
    return True


def _returned(db: Db, task: int, number: int) -> str:
    """Return what the function returned that an attempt was, unless its result is known."""
    return db.value("flow_attempt_returned", task=task, number=number) or ""


def _close(
    db: Db, task: int, number: int, attempt: tuple[Any, ...], how: End, now: float
) -> None:  # fmt: skip
    """Write down the end of an attempt; one that is lost may still be at work, which is fenced."""
    lost = how.state == "lost"
    db.run(
        "flow_attempt_end", task=task, number=number, state=how.state, reason=how.reason,
        kind=how.kind, code=how.code, now=now, fenced=int(lost),
        cancel=int(lost and attempt[3] not in OVER and attempt[1] != "flow"),
    )  # fmt: skip


def _again(db: Db, task: int, facts: tuple[Any, ...], how: End, now: float) -> None:
    """Queue a task whose attempt did not end well, or give it up."""
    flow, name, _, _, number, retries = facts
    step = definition.step(db, flow, name)
    tried = [policy.Tried(*row) for row in db.rows("flow_attempts_sites", task=task)]
    verdict = policy.decide(step, how, retries=retries, tried=tried)
    reason = verdict.reason
    if verdict.again and db.value("flow_spend", flow=flow) is None:
        reason += "; the retries of the flow are used up"
    elif verdict.again:
        before = db.value("flow_step_must_wait", flow=flow, step=name)
        db.run(
            "flow_task_queue", task=task, state="waiting" if before else "queued",
            reason=f"tried again: {reason}", after=now + verdict.pause, cost=verdict.cost,
        )  # fmt: skip
        note(db, now, flow, how.state, reason, step=name, task=task, number=number)
        note(db, now, flow, "queued", "tried again", step=name, task=task, number=number)
        return
    finish(db, task_over(db, task, facts, "failed", reason, now), now)


def give_up(db: Db, task: int, reason: str, now: float) -> bool:
    """Let a task fail that can never be sent as it is; only one that is queued can."""
    facts = db.row("flow_task_facts", task=task)
    if facts is None or facts[3] != "queued":
        return False
    finish(db, task_over(db, task, facts, "failed", reason, now), now)
    return True


def finish(db: Db, ended: Ended | None, now: float) -> None:
    """End a flow whose steps are all over, once."""
    if ended is None:
        return
    flow = ended.flow
    off = db.value("flow_any_off", flow=flow)
    if ended.cancelling and off:
        close(db, flow, "cancelled", db.value("flow_reason", flow=flow), now)
    elif ended.failed:
        name, why = db.row("flow_first_failed", flow=flow) or ("", "")
        close(db, flow, "failed", f"`{name}` failed: {why}" if why else f"`{name}` failed", now)
    elif off:
        # It was called off before, and only other steps of it were run again.
        close(db, flow, "cancelled", f"`{off}` was cancelled", now)
    elif definition.head(db, flow).flow.to:
        deliver(db, flow, now)
    else:
        close(db, flow, "done", "", now)


def deliver(db: Db, flow: int, now: float) -> None:
    """Let what comes out of a flow be sent to where it is to go."""
    db.run("flow_end", flow=flow, state="staging_out", reason="", ended=None)
    note(db, now, flow, "staging_out")


def close(db: Db, flow: int, state: str, reason: str, now: float) -> None:
    """Write down the last state of a flow, and tell the task that it is the inside of."""
    db.run("flow_end", flow=flow, state=state, reason=reason, ended=now)
    note(db, now, flow, state, reason)
    task, key = db.row("flow_whose", flow=flow) or (None, "")
    if job := job_of(key):
        end_job(db, job, flow, now)
    if task is None:
        return
    how = End(state=state, reason=reason, kind="application" if state == "failed" else "")  # type: ignore[arg-type]
    result = outcome(db, flow) if state == "done" else None
    end(db, task, int(key.rpartition(".")[2]), how, now, result=result)


def end_job(db: Db, job: int, flow: int, now: float) -> None:
    """End the job that a flow is, as the flow has ended; one that is over already stays so."""
    facts = db.row("job_end_facts", id=job)
    if facts is None or facts[0] not in AWAY:
        return
    state, reason = db.row("flow_how", flow=flow) or ("", "")
    started = db.value("job_started", id=job) or now
    how = retry.AttemptEnd(
        ok=state == "done",
        message="" if state == "done" else f"flow {flow} is {state}: {reason}",
        cause=Cause.NONE if state == "done" else Cause.STEP,
        # What a person wants of the job goes before what became of its flow.
        call_off=reason if state == "cancelled" and not facts[3] else "",
        wall=max(0.0, now - started),
        result=text.dump(outcome(db, flow)) if state == "done" else "",
    )
    spec = jobs.get(db, job).spec
    job_moves.finish(db, job, facts[1], spec, how, now=now, dice=dice())


def outcome(db: Db, flow: int) -> dict[str, Any]:
    """Return what a flow has found out: the results of its outputs, by their names."""
    head = definition.head(db, flow)
    look = Values(db, head).look
    return {
        name: look(f"{what.partition('/')[0]}.result") for name, what in head.flow.outputs.items()
    }


def delivered(db: Db, flow: int, now: float, trouble: str = "") -> bool:
    """Take in that what comes out of a flow is where it was to go, or why it is not."""
    if db.value("flow_state", flow=flow) != "staging_out":
        return False
    close(db, flow, "failed" if trouble else "done", trouble, now)
    return True


def set_result(db: Db, task: int, number: int, value: object) -> bool:
    """Write down what an attempt has found out: any JSON value; say whether that counts.

    It does not if the attempt is fenced or not the current one: whoever has looked at what it left
    may come late.
    """
    found = db.value("flow_task_result", task=task, number=number, result=text.dump(value))
    return found is not None
