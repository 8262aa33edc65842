"""Changes of state of workflows: each is one function on rows, inside one transaction.

Effects outside of the store (a message, a transfer, a job) happen before or after, and may happen
twice: an attempt has the same key everywhere, and only the current one counts while it is not
fenced.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

from pilotage.base import errors, text
from pilotage.base.clock import dice
from pilotage.flow import check, policy, records
from pilotage.flow.model import FINAL, AttemptEnd, FlowState, NewFlow, Way, job_of
from pilotage.flow.progress import (
    FlowEnd,
    begin,
    gone,
    note,
    settle,
    task_over,
    tasks_done,
)
from pilotage.flow.template import Values
from pilotage.job import moves as job_moves
from pilotage.job import records as jobs
from pilotage.job import retry
from pilotage.job.moves import AWAY
from pilotage.job.outcome import Cause
from pilotage.store import Db


def submit(db: Db, new: NewFlow, now: float) -> int:
    """Store a flow and start the steps that wait for nothing; return its number.

    The same key with the same definition is the same flow, and nothing happens; with another
    definition it is a conflict.
    """
    _label(new)
    flow = check.complete(new.flow)
    body = text.dump(flow)
    digest = records.digest(body)
    known = db.row("flow_by_key", key=new.key)
    if known is not None:
        if known[1] != digest:
            message = f"flow {known[0]} has the key `{new.key}` and another definition"
            raise errors.Conflict(message, hint="give this one a key of its own")
        return int(known[0])
    if db.value("flow_forgotten", key=new.key):
        message = f"a flow with the key `{new.key}` has ended and was removed"
        raise errors.Conflict(message, hint="give this one a key of its own")
    check.check(flow)
    head, rows = records.split(flow)
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


#: Reserved prefixes of keys.
_RESERVED = (("flow.", "flow", "flows within others"), ("job:", "rule", "flows of rules"))


def _label(new: NewFlow) -> None:
    """Refuse an invalid key or tag, and reserved keys."""
    for what, word in (("key", new.key), ("tag", new.tag)):
        if len(word) > check.LONGEST or not word.isprintable():
            message = f"{text.show(word[:40])!r} cannot be the {what} of a flow"
            raise errors.BadFlow(message, hint=f"at most {check.LONGEST} printable characters")
    for first, source, whose in _RESERVED:
        if not new.key or (new.key.startswith(first) and new.source != source):
            message = f"{new.key!r} cannot be the key of a flow"
            raise errors.BadFlow(message, hint=f"{whose} have keys that begin with `{first}`")


#: A result is for conditions and lists, not for data: the most bytes of JSON.
MOST_RETURNED_BYTES = 65_536
#: Final states of an attempt.
OVER = frozenset({"done", "failed", "cancelled", "rejected", "lost"})


def end(
    db: Db, task: int, number: int, how: AttemptEnd, now: float, *, result: object = None
) -> bool:  # fmt: skip
    """Record how an attempt ended; return whether that counts.

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
        reason = f"what it returned has {len(returned)} bytes; the limit is {MOST_RETURNED_BYTES}"
        how = AttemptEnd(state="failed", reason=reason, kind="application", code="result")
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


class DoneAttempt(NamedTuple):
    """An attempt that ended well, is the current one of its task, and leaves no data to check."""

    task: int
    number: int
    flow: int
    step: str
    #: The number of the report, and what else it says.
    seq: int
    reason: str
    kind: str
    code: str
    #: What the site says that it has left, if it says so.
    left: list[Any] | None
    #: Whether its function returned something.
    returned: bool


def done(db: Db, ended: Sequence[DoneAttempt], now: float) -> None:
    """Record that attempts ended well, as `hear` and `end` do for each: a few statements for all.

    The caller has checked that no attempt has ended, and that none is fenced.
    """
    if not ended:
        return
    rows = [
        (one.task, one.number, one.seq, one.reason, one.kind, one.code, one.left) for one in ended
    ]
    db.run("flow_attempts_done", rows=text.dump(rows), now=now)
    for one in ended:
        if one.returned and (returned := _returned(db, one.task, one.number)):
            db.run("flow_task_result", task=one.task, number=one.number, result=returned)
    db.run("flow_tasks_done", tasks=text.dump([one.task for one in ended]), now=now)
    lines = [(one.flow, one.step, one.task, one.number, one.reason) for one in ended]
    db.run("flow_journal_done", rows=text.dump(lines), now=now)
    for (flow, step), count in Counter((one.flow, one.step) for one in ended).items():
        finish(db, tasks_done(db, flow, step, count, now), now)


def _returned(db: Db, task: int, number: int) -> str:
    """Return the value of the function of an attempt, unless its result is known."""
    return db.value("flow_attempt_returned", task=task, number=number) or ""


def _close(
    db: Db, task: int, number: int, attempt: tuple[Any, ...], how: AttemptEnd, now: float
) -> None:  # fmt: skip
    """Record the end of an attempt; a lost one may still run, and is fenced."""
    lost = how.state == "lost"
    db.run(
        "flow_attempt_end", task=task, number=number, state=how.state, reason=how.reason,
        kind=how.kind, code=how.code, now=now, fenced=int(lost),
        cancel=int(lost and attempt[3] not in OVER and attempt[1] != "flow"),
    )  # fmt: skip


def _again(db: Db, task: int, facts: tuple[Any, ...], how: AttemptEnd, now: float) -> None:
    """Retry a task whose attempt failed, or fail it."""
    flow, name, _, _, number, retries = facts
    step = records.step(db, flow, name)
    tried = [policy.PastAttempt(*row) for row in db.rows("flow_attempts_sites", task=task)]
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
    """Fail a queued task that can never be dispatched as it is."""
    facts = db.row("flow_task_facts", task=task)
    if facts is None or facts[3] != "queued":
        return False
    finish(db, task_over(db, task, facts, "failed", reason, now), now)
    return True


def finish(db: Db, ended: FlowEnd | None, now: float) -> None:
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
        # It was cancelled before, and only other steps of it were rerun.
        close(db, flow, "cancelled", f"`{off}` was cancelled", now)
    elif records.head(db, flow).flow.to:
        deliver(db, flow, now)
    else:
        close(db, flow, "done", "", now)


def deliver(db: Db, flow: int, now: float) -> None:
    """Begin the delivery of the outputs of a flow."""
    db.run("flow_end", flow=flow, state="staging_out", reason="", ended=None)
    note(db, now, flow, "staging_out")


def close(db: Db, flow: int, state: str, reason: str, now: float) -> None:
    """Record the final state of a flow, and end the task that it belongs to."""
    db.run("flow_end", flow=flow, state=state, reason=reason, ended=now)
    note(db, now, flow, state, reason)
    task, key = db.row("flow_whose", flow=flow) or (None, "")
    if job := job_of(key):
        end_job(db, job, flow, now)
    if task is None:
        return
    how = AttemptEnd(state=state, reason=reason, kind="application" if state == "failed" else "")  # type: ignore[arg-type]
    result = outcome(db, flow) if state == "done" else None
    end(db, task, int(key.rpartition(".")[2]), how, now, result=result)


def end_job(db: Db, job: int, flow: int, now: float) -> None:
    """End the job of a flow as the flow ended; one that is over stays so."""
    facts = db.row("job_end_facts", id=job)
    if facts is None or facts[0] not in AWAY:
        return
    state, reason = db.row("flow_how", flow=flow) or ("", "")
    started = db.value("job_started", id=job) or now
    how = retry.AttemptEnd(
        ok=state == "done",
        message="" if state == "done" else f"flow {flow} is {state}: {reason}",
        cause=Cause.NONE if state == "done" else Cause.STEP,
        # The request of a person goes before the end of the flow.
        call_off=reason if state == "cancelled" and not facts[3] else "",
        wall=max(0.0, now - started),
        result=text.dump(outcome(db, flow)) if state == "done" else "",
    )
    spec = jobs.get(db, job).spec
    job_moves.finish(db, job, facts[1], spec, how, now=now, dice=dice())


def outcome(db: Db, flow: int) -> dict[str, Any]:
    """Return the result of a flow: the results of its outputs, by their names."""
    head = records.head(db, flow)
    look = Values(db, head).look
    return {
        name: look(f"{what.partition('/')[0]}.result") for name, what in head.flow.outputs.items()
    }


def delivered(db: Db, flow: int, now: float, trouble: str = "") -> bool:
    """Record that the outputs of a flow were delivered, or why not."""
    if db.value("flow_state", flow=flow) != "staging_out":
        return False
    close(db, flow, "failed" if trouble else "done", trouble, now)
    return True


def set_result(db: Db, task: int, number: int, value: object) -> bool:
    """Record the result of an attempt, any JSON value; return whether that counts.

    It does not if the attempt is fenced or not the current one: the check of its outputs
    may come late.
    """
    found = db.value("flow_task_result", task=task, number=number, result=text.dump(value))
    return found is not None


def cancel(db: Db, flow: int, reason: str, now: float) -> str:
    """Cancel a flow and return its state; one that is over stays as it is.

    Attempts that are somewhere are marked: the flow is `cancelling` until each of them has ended,
    one way or another. What is done by then stays done.
    """
    head = records.head(db, flow)
    if head.state in FINAL or head.state == "cancelling":
        return head.state
    words = reason or "cancelled"
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
            cancel_child(db, key, words, now)
    return str(db.value("flow_state", flow=flow))


def cancel_child(db: Db, key: str, reason: str, now: float) -> None:
    """Cancel the flow within an attempt, if it has one."""
    child = db.value("flow_by_key", key=key)
    if child is not None:
        cancel(db, child, reason, now)


#: A task that waits at its site is not `queued`: only tasks to dispatch are.
_THERE = {"waiting": "ready", "queued": "ready"}
#: States that a site can report; any other would leave its task without an end.
_SAID = (frozenset(FlowState) - FINAL) | OVER


def attempt(
    db: Db, task: int, way: Way, site: str, place: str, now: float, *, job: int | None = None
) -> int:  # fmt: skip
    """Add the next attempt of a queued task, and return its number.

    `place` is the folder that it writes to as readers name it, `job` the job of this hub that it
    is.
    """
    return attempts(db, way, site, [(task, job, place)], now)[task]


def attempts(
    db: Db, way: Way, site: str, rows: Sequence[tuple[int, int | None, str]], now: float
) -> dict[int, int]:
    """Add the next attempts of queued tasks at one site, and return their numbers by task.

    Rows are the task, its job and its folder, as for `attempt`.
    """
    words = f"sent to {site}" if site else ""
    tasks = text.dump([task for task, _, _ in rows])
    numbers: dict[int, int] = dict(db.rows("flow_tasks_sent", tasks=tasks, reason=words, now=now))
    for task, _, _ in rows:
        if task not in numbers:
            message = f"task {task} is not queued"
            raise errors.IllegalTransition(message, hint="only a task that is queued can be sent")
    db.run("flow_attempts_new", rows=text.dump(rows), way=way, site=site, now=now)
    db.run("flow_journal_sent", tasks=tasks, words=words, now=now)
    return numbers


def hear(
    db: Db, key: str, seq: int, state: str, reason: str, kind: str, code: str, now: float
) -> bool:  # fmt: skip
    """Record the state of an attempt; return whether it counts.

    Of two reports the one with the higher number is newer. No report follows the last one. What
    an attempt says that is fenced or no longer the current one is noted with it, and changes
    nothing else. The last report does not end the task: after the check of its outputs, the caller
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
        db.run("flow_task_hear", task=task, state="staging_out", reason="its outputs are checked")
    elif state not in OVER:
        db.run("flow_task_hear", task=task, state=_THERE.get(state, state), reason=reason)
    if state != was:
        note(db, now, flow, state, reason, step=step, task=task, number=number)
    return True


def fence(db: Db, task: int, now: float, reason: str = "given up") -> int | None:
    """Fence the current attempt of a task, whatever it still does, and return its number.

    The task is retried, where its step allows it; the attempt is cancelled as well.
    """
    facts = db.row("flow_task_facts", task=task)
    if facts is None:
        return None
    number = int(facts[4])
    key = f"flow.{facts[0]}.{task}.{number}"
    if not end(
        db, task, number, AttemptEnd(state="lost", reason=reason, kind="infrastructure"), now
    ):
        return None
    cancel_child(db, key, reason, now)
    return number


def postpone(db: Db, task: int, reason: str, until: float) -> bool:
    """Set why a queued task cannot be dispatched now, and when to retry."""
    return db.value("flow_task_say", task=task, reason=reason, after=until) is not None
