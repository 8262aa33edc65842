"""Rows of jobs of this project that another hub runs."""

from __future__ import annotations

import contextlib
import hashlib
import secrets

import msgspec

from pilotage.base import errors, text
from pilotage.event import records as events
from pilotage.job import model, moves, records
from pilotage.job.model import JobEnd, State
from pilotage.job.outcome import Cause
from pilotage.job.retry import Next
from pilotage.run import launch
from pilotage.store import Db

_CURSOR = "forward"
_MARK = "hub:"


class ForwardedJob(msgspec.Struct, eq=False):
    """A job that is at the hub, or on its way there."""

    claim: moves.Claim
    spec: model.JobSpec
    limit: str
    #: Its number there; nothing until the hub has said so.
    remote: int | None = None
    #: Whether the hub was asked to end it.
    stopping: bool = False
    #: The files that it will or may write.
    outputs: list[str] = []

    @property
    def rule(self) -> str:
        """The rule that made it."""
        return self.claim.rule


class ForwardState(msgspec.Struct):
    """The hub that jobs are forwarded to, our identity there, and the last end received."""

    #: What makes our keys and our label unlike those of all other projects.
    project: str
    hub: str
    after: int = 0

    @property
    def tag(self) -> str:
        """The label of our jobs at the hub."""
        return f"watch-{self.project}"

    def key(self, out: ForwardedJob) -> str:
        """Write the key of an attempt: sent twice, it is one job."""
        name = f"{self.project} {out.claim.job}.{out.claim.attempt}"
        return hashlib.sha256(name.encode()).hexdigest()[:32]


def where(db: Db, hub: str) -> tuple[ForwardState, bool]:
    """Read the state of forwarding to a hub; return whether it is another hub than before."""
    body = events.cursor(db, _CURSOR)
    if body is None:
        found = ForwardState(secrets.token_hex(16), hub)
        note(db, found)
        return found, False
    found = msgspec.json.decode(body, type=ForwardState)
    if found.hub == hub:
        return found, False
    found.hub, found.after = hub, 0
    note(db, found)
    return found, True


def forwards(db: Db) -> bool:
    """Return whether another hub runs the jobs of this project."""
    return events.cursor(db, _CURSOR) is not None


def note(db: Db, at: ForwardState) -> None:
    """Record the last end received."""
    events.advance(db, _CURSOR, text.dump(at))


def load(db: Db, *, renumber: bool) -> list[ForwardedJob]:
    """Read forwarded jobs; `renumber` discards the numbers that another hub gave."""
    found = []
    for row in db.rows("forward_away"):
        out = ForwardedJob(moves.Claim(*row[:7]), _spec(db, row[2]), row[7])
        number = row[8].removeprefix(_MARK)
        if number and not renumber:
            out.remote = int(number)
        found.append(out)
    return found


def take(
    db: Db, full: dict[str, int], most: int, folder: str, base: str, now: float
) -> list[ForwardedJob]:
    """Take queued jobs, durably, before they are sent; `full` counts by limit."""
    shut = [key for key, count in full.items() if count >= _most(key)]
    limits: dict[int, str] = {}
    for job, limit in db.rows("forward_queue", now=now, full=text.dump(shut), most=most):
        if limit:
            if full.get(limit, 0) >= _most(limit):
                continue
            full[limit] = full.get(limit, 0) + 1
        limits[job] = limit
    claims = moves.claim(db, dict.fromkeys(limits, _MARK), folder, now, State.SUBMITTED)
    return [
        _declare(db, ForwardedJob(claims[job], _spec(db, claims[job].spec), limit), base)
        for job, limit in limits.items()
        if job in claims
    ]


def _declare(db: Db, out: ForwardedJob, base: str) -> ForwardedJob:
    """Record which files a job will write, so that events on them know their cause."""
    spec = out.spec
    if spec.outputs or spec.optional_outputs:
        binding = records.read_binding(out.claim.binding)
        # One whose templates cannot be filled in fails at the hub, with a reason.
        with contextlib.suppress(errors.PilotageError):
            out.outputs = launch.declared(spec, binding, base, out.claim.job)
            moves.declare(db, {out.claim.job: [text.store_path(path) for path in out.outputs]})
    return out


def confirm(db: Db, out: ForwardedJob, remote: int, hub: str) -> None:
    """Record the number that the hub gave a job."""
    job, attempt = out.claim.job, out.claim.attempt
    db.run("attempt_starter", job=job, number=attempt, starter=f"{_MARK}{remote}")
    db.run("forward_note", id=job, attempt=attempt, reason=f"job {remote} of {hub}")


def finish(db: Db, out: ForwardedJob, end: JobEnd, now: float) -> None:
    """Record how a job ended at the hub; only the attempt that is away is heard."""
    job, attempt = out.claim.job, out.claim.attempt
    row = db.row("job_end_facts", id=job)
    if row is None or row[:2] != (State.SUBMITTED, attempt):
        return
    following = _following(end, asked=row[3])
    db.run(
        "attempt_end", job=job, number=attempt, now=now, state=following.attempt, exit=None,
        signal=None, reason=end.reason, cause=Cause.NONE, cpu=None, wall=None, max_rss=None,
        read_bytes=None, written_bytes=None,
    )  # fmt: skip
    if end.result is not msgspec.UNSET:
        db.run("result_put", job=job, body=text.dump(end.result))
    moves.move(db, job, attempt, State.SUBMITTED, following, now=now)


def _following(end: JobEnd, asked: str) -> Next:
    state = State(end.state)
    if asked == "hold" and state is not State.DONE:
        return Next(State.HELD, "held by a person while it was at the hub", "cancelled")
    recorded = {State.DONE: "done", State.CANCELLED: "cancelled"}.get(state, "failed")
    return Next(state, end.reason, recorded, failed=state is State.FAILED)


def order(out: ForwardedJob, at: ForwardState, base: str) -> dict[str, object]:
    """Return a job as the hub is to run it: with its recipe; inputs were checked here."""
    spec = msgspec.structs.replace(
        launch.carried(out.spec), base=out.spec.base or base, on_change="ignore", limit=None
    )
    binding = records.read_binding(out.claim.binding)
    return {"spec": spec, "binding": binding, "key": at.key(out), "tag": at.tag}


def _spec(db: Db, number: int) -> model.JobSpec:
    return records.read_spec(db.value("spec_body", id=number))


def _most(limit: str) -> int:
    return int(limit.rpartition(":")[2])
