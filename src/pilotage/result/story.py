"""The story of a job: all that happened to it, from the event to the result."""

from __future__ import annotations

import msgspec

from pilotage.base import text, units
from pilotage.event import records as events
from pilotage.job import records
from pilotage.job.machine import FACTS
from pilotage.job.model import Attempt, Job, State
from pilotage.store import Db


class Moment(msgspec.Struct, frozen=True):
    """An event in the story of a job."""

    #: When, in seconds since 1970.
    time: float
    #: What, in a few words.
    what: str
    #: More about it, a sentence each.
    details: tuple[str, ...] = ()
    #: The state that it brought the job into; empty if none.
    state: str = ""


class Child(msgspec.Struct, frozen=True):
    """A job that this one caused."""

    id: int
    name: str
    state: str


class Story(msgspec.Struct, frozen=True):
    """The story of a job."""

    job: Job
    moments: tuple[Moment, ...]
    #: Files that it said it writes.
    outputs: tuple[str, ...]
    children: tuple[Child, ...]


def tell(db: Db, number: int) -> Story:
    """Read the story of a job."""
    job = records.get(db, number)
    moments = [*_event(db, job)]
    attempts = {one.number: one for one in records.attempts(db, number)}
    for time, attempt, state, reason in db.rows("journal_of", job=number):
        one = attempts.get(attempt)
        where = _where(db, one) if one and state == State.RUNNING else ""
        moments.append(_line(time, state, where or reason, one, job))
    return Story(
        job,
        tuple(moments),
        tuple(text.load_path(row[0]) for row in db.rows("output_of", job=number)),
        tuple(Child(*row) for row in db.rows("job_children", id=number)),
    )


def _event(db: Db, job: Job) -> list[Moment]:
    row = None if job.event is None else db.row("event_get", id=job.event)
    if row is None:
        return []
    event = events.read(row).event
    details = [event.subject] if event.subject else []
    if event.cause is not None:
        details.append(f"caused by job {event.cause}")
    return [Moment(event.time, f"event {job.event}: {event.kind}", tuple(details))]


def _where(db: Db, attempt: Attempt) -> str:
    """Return the pilot or the flow of an attempt; nothing if it ran here."""
    mark, _, number = attempt.starter.partition(":")
    if mark == "flow":
        return f"as flow {number}"
    row = db.row("pilot_get", id=int(number)) if mark == "pilot" else None
    return f"by pilot {row[0]}, {row[1]} at {row[2]}" if row else ""


def _line(time: float, state: str, reason: str, attempt: Attempt | None, job: Job) -> Moment:
    details = [reason] if reason else []
    if state == State.RUNNING and attempt is not None:
        what = f"attempt {attempt.number} began"
        details += [f"process {attempt.pid}"] if attempt.pid else []
        details += [] if attempt.starter.startswith("flow:") else [f"in {attempt.dir}"]
    elif attempt is not None and attempt.ended is not None:
        what = f"attempt {attempt.number} ended: {attempt.state}" if _is_end(time, attempt) else ""
        details += usage(attempt, how=not reason) if what else []
        what = what or _sentence(state)
    elif attempt is None and state in {State.QUEUED, State.WAITING, State.HELD}:
        what = f"made by rule {job.rule}" if job.rule else "submitted"
    else:
        what = _sentence(state)
    return Moment(time, what, tuple(details), state)


def _is_end(time: float, attempt: Attempt) -> bool:
    return attempt.ended is not None and abs(time - attempt.ended) < 0.001


def _sentence(state: str) -> str:
    return FACTS[State(state)].sentence


def usage(attempt: Attempt, *, how: bool = True) -> list[str]:
    """Return what an attempt used and, if nothing else does, how it ended."""
    used = []
    if attempt.wall is not None:
        used.append(f"{units.for_people(attempt.wall)} of wall time")
    if attempt.cpu is not None:
        share = f" ({attempt.cpu / attempt.wall:.0%} of a core)" if attempt.wall else ""
        used.append(f"{units.for_people(attempt.cpu)} of processor time{share}")
    if attempt.max_rss is not None:
        used.append(f"{units.bytes_for_people(attempt.max_rss)} of memory")
    found = [", ".join(used)] if used else []
    if how and attempt.exit is not None:
        found.append(f"exit {attempt.exit}")
    if how and attempt.signal is not None:
        found.append(f"signal {attempt.signal}")
    return found
