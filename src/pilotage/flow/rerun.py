"""Rerun of steps: at the request of a person, or because their outputs are lost."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection

from pilotage.base import errors, text
from pilotage.base.names import closest
from pilotage.flow import graph, policy, records
from pilotage.flow.model import FINAL, job_of
from pilotage.flow.moves import cancel_child, deliver, finish
from pilotage.flow.progress import begin, note, settle
from pilotage.job import machine
from pilotage.job import moves as job_moves
from pilotage.job import records as jobs
from pilotage.job.model import Job, State
from pilotage.store import Db


def rerun(db: Db, flow: int, steps: Collection[str], now: float) -> list[str]:
    """Rerun steps of a flow with all that come after them; return their names.

    Without names it is what failed or was cancelled: tasks that are done stay so. Of the steps
    that are named all tasks run again. What comes before keeps its results. A flow that is over
    resumes; running attempts of these steps are fenced and cancelled. If nothing is wrong with
    the steps but what came out of them did not get to where it was to go, it is sent once more.
    """
    head = records.head(db, flow)
    if head.parent is not None:
        above = records.task(db, head.parent)
        message = f"flow {flow} is nested in step `{above.step}` of flow {above.flow}"
        hint = f"`pilotage flow retry {above.flow} --from {above.step}`"
        raise errors.IllegalTransition(message, hint=hint)
    if head.state in ("cancelling", "staging_out"):
        message = f"flow {flow} is {head.state}: it is not over yet"
        raise errors.IllegalTransition(message, hint=f"`pilotage flow show {flow}` shows its state")
    known = {row.name: row for row in records.steps(db, flow)}
    for name in steps:
        if name not in known:
            message = f"flow {flow} has no step `{name}`"
            raise errors.NotFound(message, hint=closest(name, known))
    whole = bool(steps)
    seeds = list(steps) or [one.name for one in known.values() if one.state in _BAD]
    if not seeds and head.flow.to and head.state in ("failed", "cancelled"):
        deliver(db, flow, now)
        _resume_job(db, flow, now)
        return []
    if not seeds:
        message = f"nothing of flow {flow} failed or was cancelled"
        raise errors.IllegalTransition(message, hint="name a step to run it again")
    after: dict[str, list[str]] = {}
    for before, name in records.edges(db, flow):
        after.setdefault(before, []).append(name)
    again = graph.downstream(after, seeds)
    # A step that had begun and whose finished tasks are kept resumes where it is.
    partly = set() if whole else {name for name in seeds if known[name].total}
    partly -= graph.downstream(after, [one for name in seeds for one in after.get(name, ())])
    _reset(db, flow, known, again, partly, now)
    ended = settle(db, flow, [], now, more=_vain(db, flow, known, after, again, now))
    if ended is None:
        ended = begin(db, flow, now)
    finish(db, ended, now)
    return [name for name in known if name in again]


def retry(db: Db, job: Job, *, now: float) -> State:
    """Retry a job that failed; for a job of a step, its workflow is resumed."""
    attempt = records.by_job(db, job.id)
    if attempt is None or job.state not in machine.FINAL or job.state is State.DONE:
        return job_moves.again(db, job, now=now)
    rerun(db, attempt.flow, (), now)
    return State.QUEUED


def _reset(
    db: Db, flow: int, known: dict[str, records.StepRow], again: set[str], partly: set[str],
    now: float,
) -> None:  # fmt: skip
    """Reset steps to waiting, or to the state before their tasks failed."""
    names = text.dump(sorted(again))
    fenced = db.rows("flow_attempts_fence", flow=flow, steps=names, now=now)
    for way, key in fenced:
        if way == "flow":
            cancel_child(db, key, "run again", now)
    restarted = text.dump(sorted(again - partly))
    db.run("flow_steps_reset", flow=flow, steps=restarted)
    db.run("flow_tasks_reset", flow=flow, steps=restarted)
    for name in sorted(partly):
        tries = policy.tries(records.step(db, flow, name))
        before = db.value("flow_step_must_wait", flow=flow, step=name)
        rows = db.rows(
            "flow_tasks_retry", flow=flow, step=name, retries=tries, now=now,
            total=known[name].total, state="waiting" if before else "queued",
        )  # fmt: skip
        db.run("flow_step_go_on", flow=flow, step=name, open=len(rows))
    over = [known[name] for name in again if known[name].state in FINAL]
    db.run(
        "flow_reopen", flow=flow, more=len(over), failed=sum(_harms(db, flow, one) for one in over),
        budget=records.head(db, flow).flow.retries,
    )  # fmt: skip
    db.run("flow_steps_recount", flow=flow, steps=names)
    note(db, now, flow, "running", "run again")
    _resume_job(db, flow, now)
    for name in (one for one in known if one in again):
        note(db, now, flow, "running" if name in partly else "waiting", "run again", step=name)


def _resume_job(db: Db, flow: int, now: float) -> None:
    """Resume the job of a flow, if it failed."""
    _, key = db.row("flow_whose", flow=flow) or (None, "")
    state, _ = db.row("end_facts", id=job_of(key)) or ("", 0)
    if state in machine.FINAL and state != "done":
        job_moves.again(db, jobs.get(db, job_of(key)), now=now)


def _harms(db: Db, flow: int, row: records.StepRow) -> bool:
    """Return whether the failure of a step failed its flow."""
    return row.state == "failed" and records.step(db, flow, row.name).on_failure != "continue"


def _vain(
    db: Db, flow: int, known: dict[str, records.StepRow], after: dict[str, list[str]],
    again: set[str], now: float,
) -> int:  # fmt: skip
    """Skip steps that wait for a failed step outside of the rerun; return their number."""
    first: dict[str, str] = {}
    for name, row in known.items():
        if name not in again and (row.state == "cancelled" or _harms(db, flow, row)):
            first[name] = f"`{name}` {'was cancelled' if row.state == 'cancelled' else 'failed'}"
    left = deque(first)
    while left:
        name = left.popleft()
        for one in after.get(name, ()):
            if one not in first:
                first[one] = first[name]
                left.append(one)
    rows = [(name, words) for name, words in first.items() if name in again]
    skipped = db.rows("flow_steps_skip", flow=flow, rows=text.dump(rows), now=now)
    for name, words in skipped:
        note(db, now, flow, "skipped", words, step=name)
    return len(skipped)


_BAD = ("failed", "cancelled")


def stale(db: Db, task: int, now: float, reason: str = "", *, consumer: int = 0) -> bool:
    """Rerun a task whose outputs are lost or damaged; return whether that is possible.

    Tasks of steps after it that were not sent yet wait for it; so does the `consumer`, whose
    attempt is over. A task within a flow that is over is run again with the whole of that flow. It
    costs a retry of the flow, and nothing of the task's own.
    """
    facts = db.row("flow_task_facts", task=task)
    if facts is None or facts[3] != "done":
        return False
    flow, name, _, _, number, _ = facts
    head = records.head(db, flow)
    if head.state in FINAL and head.parent is not None:
        return stale(db, head.parent, now, reason, consumer=consumer)
    if head.state not in ("running", "staging_out") or not _wanted(db, flow, name):
        return False
    if db.value("flow_spend", flow=flow) is None:
        return False
    words = reason or "its data is gone"
    db.run("flow_end", flow=flow, state="running", reason="", ended=None)
    db.run("flow_attempt_stale", task=task, number=number, reason=words)
    db.run("flow_task_forget", task=task)
    before = db.value("flow_step_must_wait", flow=flow, step=name)
    place = "waiting" if before else "queued"
    db.run("flow_task_queue", task=task, state=place, reason=words, after=now, cost=0)
    note(db, now, flow, place, f"run again: {words}", step=name, task=task, number=number)
    if db.value("flow_step_reopen", flow=flow, step=name):
        db.run("flow_count", flow=flow, over=-1, failed=0)
        db.run("flow_step_unmet", flow=flow, step=name)
    else:
        db.run("flow_step_more", flow=flow, step=name)
    waits = f"waits for `{name}`, which is run again"
    db.run("flow_tasks_wait", flow=flow, step=name, reason=waits)
    if consumer:
        _wait(db, consumer, waits, now)
    return True


def _wanted(db: Db, flow: int, step: str) -> bool:
    """Return whether the outputs of a step may still be read.

    Those of a step that failed or was cancelled are not, though some of its tasks may be done.
    """
    facts = db.row("flow_step_facts", flow=flow, step=step)
    if facts is None or facts[2] != "failed":
        return facts is not None and facts[2] in ("done", "running")
    return records.read_step(facts[0]).on_failure == "continue"


def _wait(db: Db, task: int, reason: str, now: float) -> None:
    """Let a task wait whose attempt could not read its inputs."""
    facts = db.row("flow_task_facts", task=task)
    if facts is None or facts[3] in FINAL | {"queued", "waiting"}:
        return
    db.run(
        "flow_attempt_end", task=task, number=facts[4], state="failed", reason=reason,
        kind="staging", code="stale", now=now, fenced=1, cancel=0,
    )  # fmt: skip
    db.run("flow_task_queue", task=task, state="waiting", reason=reason, after=now, cost=0)
    note(db, now, facts[0], "waiting", reason, step=facts[1], task=task, number=facts[4])
