"""Changes of state: each is one compare-and-swap with its journal line, in one transaction.

Claims and ends of many jobs are a few statements for all of them, outside the GIL.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping

import msgspec

from pilotage.base import errors, text
from pilotage.job import machine, records, retry
from pilotage.job.model import Job, JobSpec, State
from pilotage.job.retry import AttemptEnd, Next
from pilotage.store import Db

#: States in which the holder must stop the job first.
AWAY = frozenset({State.STAGING_IN, State.READY, State.SUBMITTED, State.RUNNING, State.STAGING_OUT})


#: The states of a job at a site, in the order in which it passes them.
_ORDER = (State.STAGING_IN, State.READY, State.SUBMITTED, State.RUNNING, State.STAGING_OUT)


class Claim(msgspec.Struct, frozen=True):
    """A job that is about to start here."""

    job: int
    attempt: int
    spec: int
    binding: str
    rule: str
    depth: int
    owner: str


def hand_over(db: Db, attempts: list[tuple[int, int]], starter: str) -> None:
    """Write down that another starter holds attempts that have not begun."""
    for job, number in attempts:
        db.run("attempt_starter", job=job, number=number, starter=starter)


def note_pids(db: Db, pids: dict[str, int]) -> None:
    """Write down the processes of attempts, by `job.attempt`."""
    for key, pid in pids.items():
        job, _, number = key.partition(".")
        db.run("attempt_pid", job=int(job), number=int(number), pid=pid)


def declare(db: Db, outputs: dict[int, list[str]]) -> None:
    """Write down which files jobs are about to write, so that events on them know their cause."""
    for job, paths in outputs.items():
        db.run("output_put", job=job, paths=text.dump(paths))


def attempt_dir(folder: str, job: int, attempt: int) -> str:
    """Name the directory of an attempt; a thousand jobs share a parent."""
    return f"{folder}/{job // 1000:04d}/{job}.{attempt}"


def move(db: Db, job: int, attempt: int, old: State, new: Next, *, now: float) -> bool:
    """Change the state of a job if it is still as it was, and of those that depend on it."""
    if not _change(db, job, attempt, old, new, now):
        return False
    if machine.FACTS[new.state].final:
        _tell_dependants(db, job, new.state, now)
    return True


def _change(db: Db, job: int, attempt: int, old: State, new: Next, now: float) -> bool:
    machine.check(job, old, new.state)
    final = machine.FACTS[new.state].final
    moved = db.value(
        "job_move", id=job, attempt=attempt, old=old, state=new.state, reason=new.reason,
        not_before=new.not_before, failed=int(new.failed), ended=now if final else None,
    )  # fmt: skip
    if moved is None:
        return False
    db.run("journal_add", now=now, job=job, attempt=attempt, state=new.state, reason=new.reason)
    return True


def _tell_dependants(db: Db, job: int, state: State, now: float) -> None:
    """Release or cancel the jobs that wait for one; a chain of them may be very long."""
    ended = [(job, state)]
    for before, how in ended:
        for dependant, attempt, left in db.rows("dependants", id=before):
            if how is State.DONE:
                new = Next(State.QUEUED, "")
            else:
                new = Next(State.CANCELLED, records.cannot_follow(before, how))
                ended.append((dependant, State.CANCELLED))
            if how is not State.DONE or not left:
                _change(db, dependant, attempt, State.WAITING, new, now)


def finish(
    db: Db, job: int, attempt: int, spec: JobSpec, end: retry.AttemptEnd, *, now: float,
    dice: random.Random,
) -> None:  # fmt: skip
    """Record how an attempt ended; only the current attempt of a job under way is heard."""
    row = db.row("job_end_facts", id=job)
    if row is None or row[0] not in AWAY or row[1] != attempt:
        return
    end = msgspec.structs.replace(end, asked=row[3])
    refused = db.value("attempts_refused", job=job) if end.lost else 0
    following = retry.decide(
        spec, end, failures=row[2], attempt=attempt, now=now, dice=dice, refused=refused
    )
    db.run(
        "attempt_end", job=job, number=attempt, now=now, state=following.attempt,
        exit=end.exit, signal=end.signal, reason=end.message, cause=end.cause, cpu=end.cpu,
        wall=end.wall, max_rss=end.max_rss, read_bytes=end.read_bytes,
        written_bytes=end.written_bytes,
    )  # fmt: skip
    if end.result:
        db.run("result_put", job=job, body=end.result)
    move(db, job, attempt, State(row[0]), following, now=now)


def progress(
    db: Db, attempts: list[tuple[int, int]], state: State, reason: str, now: float
) -> None:
    """Record the phase of attempts at a site; a later phase is kept."""
    before = _ORDER[: _ORDER.index(state)]
    rows = text.dump(attempts)
    moved = db.rows(
        "progress_jobs", rows=rows, before=text.dump(before), state=state, reason=reason
    )
    if moved:
        db.run("claim_journal", rows=text.dump(moved), state=state, reason=reason, now=now)


def revive(db: Db, job: int, attempt: int) -> bool:
    """Revert the loss of an attempt; only while no later one has begun."""
    if db.value("attempt_revive", job=job, number=attempt) is None:
        return False
    return db.value("job_revive", id=job, attempt=attempt) is not None


def reject(db: Db, job: int, reason: str, *, now: float) -> None:
    """Reject a queued job that can never run."""
    state, attempt = db.row("end_facts", id=job) or ("", 0)
    if state == State.QUEUED:
        move(db, job, attempt, State.QUEUED, Next(State.REJECTED, reason), now=now)


def cancel(db: Db, job: Job, *, now: float, reason: str = "cancelled by a person") -> State:
    """Cancel a job; one that runs is stopped first and is cancelled when it has ended."""
    return _stop(db, job, "cancel", Next(State.CANCELLED, reason), now)


def hold(db: Db, job: Job, *, now: float, reason: str = "held by a person") -> State:
    """Stop a job from going on; one that runs is ended and held."""
    return _stop(db, job, "hold", Next(State.HELD, reason), now)


def _stop(db: Db, job: Job, asked: str, new: Next, now: float) -> State:
    """Ask a job that is under way to end, and move any other; one that is there already stays."""
    if job.state in AWAY:
        db.run("job_ask", id=job.id, asked=asked)
        return job.state
    if job.state is not new.state:
        move(db, job.id, job.attempt, job.state, new, now=now)
    return new.state


def release(db: Db, job: Job, *, now: float) -> State:
    """Release a held job."""
    if job.state is not State.HELD:
        message = f"job {job.id} is {job.state}, not held"
        raise errors.IllegalTransition(message, hint="only held jobs can be released")
    return _resume(db, job, "released by a person", now)


def again(db: Db, job: Job, *, now: float) -> State:
    """Put a job that ended badly back in the queue, under a new attempt number."""
    if job.state is State.DONE:
        message = f"job {job.id} is done"
        raise errors.IllegalTransition(message, hint="submit it again to run it once more")
    if job.state not in machine.FINAL:
        message = f"job {job.id} is {job.state}: it has not ended"
        raise errors.IllegalTransition(message, hint=f"`pilotage explain {job.id}` says more")
    return _resume(db, job, "tried again by a person", now)


def _left(db: Db, job: int) -> list[tuple[int, str]]:
    """List the jobs that one still waits for, with their states."""
    return [
        (before, state) for before, state in db.rows("dependency_of", job=job) if state != "done"
    ]


def _resume(db: Db, job: Job, why: str, now: float) -> State:
    """Queue a job again, or let it wait for others unless that would be forever."""
    left = []
    for before, found in _left(db, job.id):
        if found in machine.FINAL:
            message = f"job {job.id} follows job {before}, which is {found}"
            raise errors.IllegalTransition(message, hint=f"first: `pilotage retry {before}`")
        left.append(before)
    # One that came as a message may have to wait for room, which its agent gives it.
    waits = bool(left) or db.value("edge_has", job=job.id) is not None
    state = State.WAITING if waits else State.QUEUED
    new = Next(state, records.waits_for(left) if left else why)
    move(db, job.id, job.attempt, job.state, new, now=now)
    return state


_json = msgspec.json.Encoder()


class EndedJob(msgspec.Struct):
    """An attempt that is over."""

    job: int
    attempt: int
    #: The number of its definition.
    spec: int
    end: AttemptEnd
    #: Whether the reporter is known to hold the job.
    held: bool = False


def claim(
    db: Db, holders: Mapping[int, str], folder: str, now: float, state: str = State.RUNNING
) -> dict[int, Claim]:
    """Claim queued jobs for their holders; those claimed or stopped meanwhile are left out."""
    claims = {}
    rows = []
    ids = _json.encode(list(holders)).decode()
    for row in db.run("claim_jobs", ids=ids, state=state, now=now):
        claims[row[0]] = Claim(*row)
        job, attempt = row[:2]
        rows.append((job, attempt, holders[job]))
    if rows:
        written = text.dump(rows)
        db.run("claim_attempts", rows=written, folder=text.store_path(folder), now=now)
        db.run("claim_journal", rows=written, state=state, reason="", now=now)
    return claims


def finish_all(
    db: Db, ends: Iterable[EndedJob], spec_of: Callable[[int], JobSpec], *, now: float,
    dice: random.Random,
) -> None:  # fmt: skip
    """Record how attempts ended: all successes together, the rest one by one."""
    simple: dict[int, EndedJob] = {}
    others: list[EndedJob] = []
    for one in ends:
        end = one.end
        plain = end.ok and not (end.missing or end.call_off or end.note)
        if plain and one.held and one.job not in simple:
            simple[one.job] = one
        elif one.held or _current(db, one):
            others.append(one)
    if simple:
        others += _succeed(db, simple, now)
    for one in others:
        finish(db, one.job, one.attempt, spec_of(one.spec), one.end, now=now, dice=dice)


def _succeed(db: Db, simple: dict[int, EndedJob], now: float) -> list[EndedJob]:
    """End jobs that did well and that no other job waits for; return those that need more care.

    The caller has checked that each attempt is the current one of its job, if it runs.
    """
    rows = []
    for job, attempt in db.run("end_jobs", ids=_json.encode(list(simple)).decode(), now=now):
        one = simple.pop(job)
        if attempt != one.attempt:
            raise AssertionError(f"attempt {one.attempt} of job {job} ended, {attempt} runs")
        end = one.end
        rows.append(
            (job, attempt, end.exit, end.cpu, end.wall, end.max_rss, end.read_bytes,
             end.written_bytes)
        )  # fmt: skip
        if end.result:
            db.run("result_put", job=job, body=end.result)
    if rows:
        written = _json.encode(rows).decode()
        db.run("end_attempts", rows=written, now=now)
        db.run("end_journal", rows=written, now=now)
    return [one for one in simple.values() if _current(db, one)]


def _current(db: Db, one: EndedJob) -> bool:
    """Return whether an attempt still counts: it runs, or was given up without a new one."""
    state, attempt = db.row("end_facts", id=one.job) or ("", 0)
    if attempt != one.attempt:
        return False
    return state in AWAY or (state == State.QUEUED and revive(db, one.job, one.attempt))
