"""Rows that an agent keeps in the store beside its jobs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import msgspec

from pilotage.agent.model import (
    Accepted,
    Blame,
    LiveOutput,
    MessageFacts,
    OutboxEntry,
    RefusedMessage,
    ReplyTo,
    StatusFacts,
    reply_to,
)
from pilotage.base import errors, text
from pilotage.base.owner import me
from pilotage.bus import fields, wire
from pilotage.bus.model import Job, Left
from pilotage.job import records as jobs
from pilotage.job.model import Binding, State
from pilotage.job.outcome import Cause
from pilotage.store import Db

_job = msgspec.json.Decoder(Job)
_return = msgspec.json.Decoder(ReplyTo)
_notes = msgspec.json.Decoder(tuple[str, ...])
_left = msgspec.json.Decoder(tuple[Left, ...])
_NOTHING = text.dump(Binding())
#: States in which a new step is worth a message; in the others a change of state brings one.
_BETWEEN = frozenset({State.STAGING_IN, State.READY, State.STAGING_OUT})

#: Refused messages that are kept at most.
_MOST_REFUSED = 10_000


def begin(db: Db, now: float) -> int:
    """Take over: return a number that no other agent of this store has had."""
    return int(db.value("edge_begin", now=now))


def epoch(db: Db) -> int:
    """Return the number of agents that have served this store."""
    return int(db.value("edge_epoch") or 0)


# -- jobs ----------------------------------------------------------------------------------------


def accept(
    db: Db, user: str, new: Accepted, state: State, reason: str, now: float, spec: int = 0, *,
    dialled: bool = False,
) -> int:  # fmt: skip
    """Make a job of a message; its first status message is written with it.

    `spec` is the number of its definition, if that is known; `dialled` says that it came from a
    hub that this agent dials.
    """
    job = new.job
    number = int(
        db.value(
            "job_add_one", key=new.key.digits, name=job.name or job.application, rule="",
            spec=spec or jobs.intern(db, new.spec), binding=_NOTHING, state=state, reason=reason,
            priority=new.spec.priority, not_before=0.0, limit_key="", now=now, ended=None,
            event=None, parent=None, depth=0, tag="", owner=user or me(),
        )
    )  # fmt: skip
    db.run(
        "edge_job_add", job=number, user=user, application=job.application, queue=new.queue,
        token=job.key, digest=new.key.body, message=text.dump(job), back=text.dump(reply_to(job)),
        notes=text.dump(new.notes), dialled=dialled,
    )  # fmt: skip
    # Now that it is known where the job came from, the line makes the message.
    db.run("journal_add", now=now, job=number, attempt=0, state=state, reason=reason)
    return number


def known(db: Db, keys: Sequence[str]) -> dict[str, tuple[int, str]]:
    """Find jobs by their keys: number and SHA-256; the number is 0 if one was forgotten."""
    rows = db.rows("edge_known", keys=text.dump(keys))
    return {found: (number, sha256) for found, number, sha256 in rows}


def message(db: Db, job: int) -> Job:
    """Return the order of a job, with defaults filled in."""
    body = db.value("edge_message", job=job)
    if body is None:
        raise errors.NotFound(f"job {job} did not come as a message")
    return _job.decode(body)


def facts(db: Db, job: int) -> MessageFacts:
    """Return the facts on a job beside the job itself."""
    row = db.row("edge_facts", job=job)
    if row is None:
        raise errors.NotFound(f"job {job} did not come as a message")
    user, application, queue, token, sha256, notes, *rest = row
    return MessageFacts(user, application, queue, token, sha256, _notes.decode(notes), *rest)


def owner_of(db: Db, job: int) -> str | None:
    """Return the owner of a job; none if it did not come as a message."""
    found = db.value("edge_owner", job=job)
    return None if found is None else str(found)


def by_token(db: Db, token: str, user: str) -> tuple[int, str] | None:
    """Find the newest job with a sender's own key, and its owner; no user means any."""
    row = db.row("edge_by_token", token=token, user=user)
    return None if row is None else (int(row[0]), str(row[1]))


def step(db: Db, job: int, what: fields.Step, now: float | None = None) -> None:
    """Record the current step of a job; with a time it is reported even if no state changes."""
    state = db.value("edge_step", job=job, step=what)
    if now is not None and state in _BETWEEN:
        tell(db, job, now)


def blame(db: Db, job: int, kind: Blame, code: str) -> None:
    """Record the cause of the next change of a job, where it is known better than by its end."""
    db.run("edge_blame", job=job, kind=kind, code=code)


def tell(db: Db, job: int, now: float) -> None:
    """Report the state of a job again."""
    db.run("edge_seq", job=job)
    db.run("edge_tell", job=job, now=now)


# -- data ----------------------------------------------------------------------------------------


def brought(db: Db, job: int, size: int) -> None:
    """Record the bytes of the inputs of a job."""
    db.run("edge_brought", job=job, read=size)


def left(db: Db, job: int, what: Sequence[Left]) -> None:
    """Record the outputs that a job has sent; the last time counts."""
    db.run("edge_left", job=job, left=text.dump(what))


def ask_again(db: Db, job: int, now: float) -> bool:
    """Request that outputs of a job are sent again; return whether it has any."""
    return db.value("edge_resend", job=job, now=now) is not None


def asked_again(db: Db) -> list[int]:
    """List jobs whose outputs are to be sent once more, the oldest wish first."""
    return [int(row[0]) for row in db.rows("edge_resends")]


def sent_again(db: Db, job: int, what: Sequence[Left], why: str, now: float) -> None:
    """Record and report the result of sending outputs again; without a reason it succeeded."""
    if what:
        left(db, job, what)
    db.run("edge_resent", job=job)
    db.run("edge_seq", job=job)
    db.run("edge_tell", job=job, now=now)
    if why:
        db.run("edge_tell_why", job=job, kind="staging", code="resend", reason=why)


# -- counts --------------------------------------------------------------------------------------


def counts(db: Db, user: str = "") -> dict[fields.State, int]:
    """Count jobs by state, all or those of a user; this takes as long with many as with few."""
    if user:
        return dict(db.rows("edge_counts_of", user=user))
    return dict(db.rows("edge_counts"))


def live(db: Db, user: str, application: str) -> int:
    """Count the jobs of a user and an application that are not over."""
    return int(db.value("edge_live", user=user, application=application))


# -- messages to be sent -------------------------------------------------------------------------


class Receivers(NamedTuple):
    """Whose messages go by one carrier: those for `users`, or those for all others."""

    users: frozenset[str] = frozenset()
    among: bool = False

    def named(self) -> dict[str, Any]:
        """Return what queries take."""
        return {"users": text.dump(sorted(self.users)), "among": self.among}


def send(db: Db, user: str, topic: str, body: bytes, now: float) -> None:
    """Queue an encoded message, for the carrier of a user."""
    db.run("edge_send", user=user, topic=topic, body=body.decode(), now=now)


def unsent(db: Db, after: int, most: int, to: Receivers = Receivers()) -> list[OutboxEntry]:  # noqa: B008 - frozen
    """List messages that the bus does not have, in their order."""
    rows = db.rows("edge_outbox_next", after=after, most=most, **to.named())
    return [OutboxEntry(*row) for row in rows]


def waiting(db: Db, to: Receivers = Receivers()) -> int:  # noqa: B008 - frozen
    """Count the messages that the bus does not have."""
    return int(db.value("edge_outbox_count", **to.named()))


def newest(db: Db, to: Receivers = Receivers()) -> int:  # noqa: B008 - frozen
    """Return the number of the newest message that the bus does not have."""
    return int(db.value("edge_outbox_newest", **to.named()))


def forget_undeliverable(db: Db, users: Iterable[str], before: float) -> None:
    """Forget old messages for others than some users."""
    db.run("edge_outbox_undeliverable", users=text.dump(sorted(users)), before=before)


def sent(db: Db, ids: Iterable[int]) -> None:
    """Forget messages that the bus has."""
    db.run("edge_outbox_sent", ids=text.dump(list(ids)))


def thin(db: Db) -> None:
    """Forget statuses that a later one of the same job replaces, except ends."""
    db.run("edge_outbox_thin")


def status_facts(db: Db, job: int, attempt: int) -> StatusFacts | None:
    """Return the facts on a job for a status message."""
    row = db.row("edge_tale", job=job, attempt=attempt)
    if row is None:
        return None
    made, created, state, code, signal, cause, number, notes, sent, read, folder, result, seen = row
    return StatusFacts(
        _return.decode(made), created, state or "", code, signal, Cause(cause or ""), number or "",
        _notes.decode(notes), _left.decode(sent) if sent else (), read or 0,
        text.load_path(folder) if folder else "", result or "", bool(seen),
    )  # fmt: skip


def follow(db: Db, job: int) -> None:
    """Record that a hub follows what a job writes."""
    db.run("edge_followed", job=job)


def live_output(db: Db, job: int) -> LiveOutput | None:
    """Return where a job writes; none if it is over."""
    row = db.row("edge_writes", job=job)
    if row is None:
        return None
    attempt, folder, made, token = row
    return LiveOutput(
        attempt, text.load_path(folder) if folder else "", _return.decode(made), token
    )


# -- messages that were refused ------------------------------------------------------------------


def store_refused(db: Db, one: RefusedMessage) -> int:
    """Store a refused message once; return how often it came."""
    return int(
        db.value(
            "edge_bury", digest=one.digest, now=one.time, user=one.user, topic=one.topic,
            code=one.code, reason=one.reason, size=one.size, body=one.body,
        )
    )  # fmt: skip


def refusals(db: Db, digests: Sequence[str]) -> dict[str, tuple[str, str]]:
    """Return code and reason with which messages were refused before, by digest."""
    rows = db.rows("edge_buried_some", digests=text.dump(digests))
    return {digest: (code, reason) for digest, code, reason in rows}


def refused(db: Db, most: int) -> list[RefusedMessage]:
    """List messages that were refused, the newest first."""
    return [RefusedMessage(*row) for row in db.rows("edge_buried", most=most)]


def forget_refused(db: Db, before: float) -> None:
    """Forget messages that were refused before a time or are too many, and old answers."""
    db.run("edge_dead_purge", before=before, most=_MOST_REFUSED)
    db.run("edge_control_purge", before=before)


# -- controls ------------------------------------------------------------------------------------


def answered(db: Db, digest: str) -> bytes:
    """Return the stored answer to a control; empty if it was not executed yet."""
    return str(db.value("edge_control_get", digest=digest) or "").encode()


def answer(db: Db, digest: str, body: bytes, now: float) -> None:
    """Store the answer to a control."""
    db.run("edge_control_put", digest=digest, answer=body.decode(), now=now)


def digest(user: str, body: bytes) -> str:
    """Return the digest of a message of a user."""
    return wire.digest([user, body])
