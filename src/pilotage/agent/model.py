"""Structures of an agent: decisions on messages, and facts for status messages."""

from __future__ import annotations

from typing import Literal

import msgspec

from pilotage.bus import wire
from pilotage.bus.fields import Speech
from pilotage.bus.model import Job, Left
from pilotage.job.model import JobSpec
from pilotage.job.outcome import Cause

#: Class of a reason, as in `bus.model.Reason`.
Blame = Literal[
    "", "application", "infrastructure", "policy", "message", "staging", "credential", "person"
]


class ReplyTo(msgspec.Struct, frozen=True, omit_defaults=True):
    """Fields of a job's message that every status message needs."""

    reply: str = ""
    speech: Speech = "pilotage"
    key: str = ""
    job_id: int = 0
    argo_job_id: int = 0


class Accepted(msgspec.Struct, frozen=True, kw_only=True):
    """A message that may become a job."""

    #: The order, with defaults filled in.
    job: Job
    key: wire.MessageKey
    spec: JobSpec
    #: The queue that it counts for.
    queue: str
    #: Jobs of this application that the sender may have which are not over; 0 means any number.
    most: int = 0
    #: Notes on fields that the sender may have meant differently.
    notes: tuple[str, ...] = ()


class Rejected(msgspec.Struct, frozen=True, kw_only=True):
    """A message that is refused."""

    kind: Blame
    #: A word for programs.
    code: str
    #: A sentence for people.
    reason: str
    #: Its readable fields; without them the sender cannot be answered.
    job: Job | None = None


class JudgedMessage(msgspec.Struct, frozen=True):
    """A message with its sender, and the decision on it."""

    user: str
    topic: str
    body: bytes
    verdict: Accepted | Rejected
    #: Whether it may have come before.
    again: bool = False


class RefusedMessage(msgspec.Struct, frozen=True):
    """A message that was refused, as it is kept."""

    digest: str
    #: Time of its first delivery.
    time: float
    user: str
    topic: str
    code: str
    reason: str
    size: int
    #: Its beginning.
    body: bytes
    #: Number of deliveries.
    count: int


class MessageFacts(msgspec.Struct, frozen=True):
    """Facts on a job that came as a message, beside the job itself."""

    user: str
    application: str
    queue: str
    #: The sender's own key.
    token: str
    body_sha256: str
    notes: tuple[str, ...]
    state: str
    step: str
    seq: int


class OutboxEntry(msgspec.Struct, frozen=True):
    """A message that was not sent yet."""

    id: int
    #: 0 if it is written already.
    job: int
    seq: int
    attempt: int
    state: str
    step: str
    kind: str
    code: str
    reason: str
    time: float
    topic: str
    body: str


class StatusFacts(msgspec.Struct, frozen=True):
    """Facts on a job and one of its attempts for a status message."""

    back: ReplyTo
    created: float
    #: Of the attempt: its state, and how it ended.
    attempt: str = ""
    exit: int | None = None
    signal: int | None = None
    cause: Cause = Cause.NONE
    #: The number that the batch system gave it.
    scheduler_id: str = ""
    notes: tuple[str, ...] = ()
    #: Outputs that it has sent, and bytes of its inputs.
    left: tuple[Left, ...] = ()
    read: int = 0
    #: The folder that has its two streams.
    folder: str = ""
    #: The result of its function, as JSON.
    result: str = ""
    #: Whether a hub has followed its output.
    followed: bool = False


class LiveOutput(msgspec.Struct, frozen=True):
    """Where a running job writes, and facts for a message with its output."""

    #: The number of its attempt, and the folder that has the two streams; empty if there is none.
    attempt: int
    folder: str
    back: ReplyTo
    #: The sender's own key.
    token: str


def reply_to(job: Job) -> ReplyTo:
    """Return the fields of a job's message that status messages need."""
    return ReplyTo(job.reply, job.speech, job.key, job.job_id, job.argo_job_id)
