"""Jobs in the store: add and read them."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Sequence
from typing import Any

import msgspec

from pilotage.base import errors, text
from pilotage.base.owner import me
from pilotage.job import machine
from pilotage.job.model import Attempt, Binding, Job, JobSpec, NewJob, State
from pilotage.job.outcome import Cause
from pilotage.store import Db


class Selection(msgspec.Struct, frozen=True):
    """Filter of jobs."""

    #: Numbers, inclusive.
    first: int = 0
    last: int = 2**62
    #: In which states; none means any.
    states: tuple[State, ...] = ()
    #: Glob of the name.
    name: str = "*"
    #: Label.
    tag: str = ""
    #: Made at or after.
    since: float = 0.0
    #: At most this many, the newest.
    most: int = 2**62

    def values(self) -> dict[str, Any]:
        """Write it as the values of a query."""
        facts = msgspec.structs.asdict(self)
        return facts | {"states": text.dump([str(state) for state in self.states])}


@functools.lru_cache(maxsize=4096)
def read_spec(body: str) -> JobSpec:
    """Read a definition; the jobs of a rule share one."""
    return msgspec.convert(text.load(body), JobSpec)


def read_binding(body: str) -> Binding:
    """Read what makes a job differ from its siblings."""
    return msgspec.convert(text.load(body), Binding)


def intern(db: Db, spec: JobSpec) -> int:
    """Store a definition once and return its number."""
    body = text.dump(spec)
    digest = hashlib.blake2b(body.encode(), digest_size=16).hexdigest()
    db.run("spec_put", digest=digest, name=spec.name, priority=spec.priority, body=body)
    return int(db.value("spec_id", digest=digest))


def add(db: Db, new: NewJob, now: float, *, rule: str = "", event: int | None = None) -> int | None:
    """Make one job; return its number, or nothing if its key exists already."""
    state, reason = _first_state(db, new)
    job = db.value(
        "job_add_one",
        key=new.key or None,
        name=new.spec.name,
        rule=rule,
        spec=intern(db, new.spec),
        binding=text.dump(new.binding),
        state=state,
        reason=reason,
        priority=new.spec.priority,
        not_before=new.not_before,
        limit_key=new.limit_key,
        now=now,
        ended=now if state in machine.FINAL else None,
        event=event,
        parent=new.parent,
        depth=new.depth,
        tag=new.tag,
        owner=new.owner or me(),
    )
    if job is None:
        return None
    for before in new.after:
        db.run("dependency_add", job=job, on_job=before)
    db.run("journal_add", now=now, job=job, attempt=0, state=state, reason=reason)
    return int(job)


def add_steps(db: Db, new: Sequence[NewJob], now: float) -> dict[str, int]:
    """Make queued jobs of workflows; return their numbers by key, without keys that exist."""
    specs = _intern_all(db, [one.spec for one in new])
    rows = [
        (one.key, spec, text.dump(one.binding), one.limit_key, one.parent, one.depth, one.tag,
         one.owner or me())
        for one, spec in zip(new, specs, strict=True)
    ]  # fmt: skip
    last = db.value("job_last")
    made = dict(db.rows("job_add_steps", rows=text.dump(rows), now=now))
    db.run("journal_new_jobs", after=last)
    return made


def _intern_all(db: Db, specs: Sequence[JobSpec]) -> list[int]:
    """Store definitions once and return their numbers."""
    digests, rows = [], {}
    for spec in specs:
        body = text.dump(spec)
        digest = hashlib.blake2b(body.encode(), digest_size=16).hexdigest()
        digests.append(digest)
        rows[digest] = (digest, spec.name, spec.priority, body)
    db.run("specs_put", rows=text.dump(list(rows.values())))
    known = dict(db.rows("specs_ids", digests=text.dump(list(rows))))
    return [known[digest] for digest in digests]


def _first_state(db: Db, new: NewJob) -> tuple[State, str]:
    if not new.after or new.state is not State.QUEUED:
        return new.state, new.reason
    known = {row[0]: row[1:] for row in db.rows("job_states", ids=text.dump(new.after))}
    for job in new.after:
        if job not in known:
            message = f"there is no job {job} to wait for"
            raise errors.NotFound(message, hint="`pilotage job ls` lists the jobs")
        if known[job][0] in machine.FINAL - {State.DONE}:
            return State.CANCELLED, cannot_follow(job, known[job][0])
    left = [job for job in new.after if known[job][0] != State.DONE]
    if left:
        return State.WAITING, waits_for(left)
    return State.QUEUED, ""


def waits_for(jobs: list[int]) -> str:
    """Return what a job waits for."""
    return "waits for " + ", ".join(f"job {job}" for job in jobs)


def cannot_follow(job: int, state: str) -> str:
    """Return why a job is cancelled that was to follow another."""
    return f"job {job}, which it was to follow, is {state}"


def get(db: Db, job: int) -> Job:
    """Read one job."""
    row = db.row("job_get", id=job)
    if row is None:
        message = f"there is no job {job}"
        raise errors.NotFound(message, hint="`pilotage job ls` lists the jobs")
    return _job(row)


def find(db: Db, selection: Selection) -> list[Job]:
    """Read the jobs that are meant."""
    return [_job(row) for row in db.rows("job_list", **selection.values())]


def attempts(db: Db, job: int) -> list[Attempt]:
    """Read all attempts of a job."""
    names = Attempt.__struct_fields__
    found = [dict(zip(_ATTEMPT, row, strict=True)) for row in db.rows("attempt_list", job=job)]
    for facts in found:
        facts["dir"] = text.load_path(facts["dir"])
        facts["cause"] = Cause(facts["cause"])
    return [Attempt(**{name: facts[name] for name in names}) for facts in found]


_ATTEMPT = (
    "job", "number", "state", "dir", "starter", "started", "ended", "pid", "exit", "signal",
    "reason", "cause", "cpu", "wall", "max_rss", "read_bytes", "written_bytes",
)  # fmt: skip


def _job(row: tuple[Any, ...]) -> Job:
    (number, name, state, reason, body, binding, attempt, priority, not_before, limit_key, created,
     started, ended, rule, event, parent, depth, tag, owner) = row[:19]  # fmt: skip
    return Job(
        id=number,
        name=name,
        state=State(state),
        reason=reason,
        spec=read_spec(body),
        binding=read_binding(binding),
        attempt=attempt,
        priority=priority,
        not_before=not_before,
        limit_key=limit_key,
        created=created,
        started=started,
        ended=ended,
        rule=rule,
        event=event,
        parent=parent,
        depth=depth,
        tag=tag,
        owner=owner,
    )
