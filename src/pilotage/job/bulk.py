"""Claims and ends of many jobs at once: a few statements for all of them, outside the GIL."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping

import msgspec

from pilotage.base import text
from pilotage.job import moves
from pilotage.job.model import JobSpec, State
from pilotage.job.retry import AttemptEnd
from pilotage.store import Db

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
) -> dict[int, moves.Claim]:
    """Claim queued jobs for their holders; those claimed or stopped meanwhile are left out."""
    claims = {}
    rows = []
    ids = _json.encode(list(holders)).decode()
    for row in db.run("claim_jobs", ids=ids, state=state, now=now):
        claims[row[0]] = moves.Claim(*row)
        job, attempt = row[:2]
        rows.append((job, attempt, holders[job]))
    if rows:
        written = text.dump(rows)
        db.run("claim_attempts", rows=written, folder=text.store_path(folder), now=now)
        db.run("claim_journal", rows=written, state=state, reason="", now=now)
    return claims


def finish(
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
        moves.finish(db, one.job, one.attempt, spec_of(one.spec), one.end, now=now, dice=dice)


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
    return state in moves.AWAY or (state == State.QUEUED and moves.revive(db, one.job, one.attempt))
