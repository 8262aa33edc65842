"""Structures of an agent: decisions on messages, and facts for status messages."""

from __future__ import annotations

from typing import Literal

import msgspec

from pilotage.bus import key
from pilotage.bus.fields import Speech
from pilotage.bus.model import Job, Left
from pilotage.job.model import JobSpec
from pilotage.job.outcome import Cause

#: Class of a reason, as in `bus.model.Reason`.
Blame = Literal[
    "", "application", "infrastructure", "policy", "message", "staging", "credential", "person"
]


class ReplyTo(msgspec.Struct, frozen=True, omit_defaults=True):
    """Of a job's message, what every status message needs."""

    reply: str = ""
    speech: Speech = "pilotage"
    key: str = ""
    job_id: int = 0
    argo_job_id: int = 0


class Accepted(msgspec.Struct, frozen=True, kw_only=True):
    """A message that may become a job."""

    #: What was asked for, with all that was left open filled in.
    job: Job
    key: key.MessageKey
    spec: JobSpec
    #: The queue that it counts for.
    queue: str
    #: Jobs of this application that the sender may have which are not over; 0 means any number.
    most: int = 0
    #: What was not taken as the sender may have meant it, in sentences.
    notes: tuple[str, ...] = ()


class Rejected(msgspec.Struct, frozen=True, kw_only=True):
    """A message that is refused."""

    kind: Blame
    #: A word for programs.
    code: str
    #: A sentence for people.
    reason: str
    #: What of it could be read; without it the sender cannot be answered.
    job: Job | None = None


class JudgedMessage(msgspec.Struct, frozen=True):
    """A message with who sent it, and what was decided on it."""

    user: str
    topic: str
    body: bytes
    verdict: Accepted | Rejected
    #: Whether it may have come before.
    again: bool = False


class RefusedMessage(msgspec.Struct, frozen=True):
    """A message that was refused, as it is kept."""

    digest: str
    #: When it came first.
    time: float
    user: str
    topic: str
    code: str
    reason: str
    size: int
    #: Its beginning.
    body: bytes
    #: How often it came.
    count: int


class MessageFacts(msgspec.Struct, frozen=True):
    """What is known of a job that came as a message, beside the job itself."""

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
    """What a status message needs of a job and of one of its attempts."""

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
    #: What it has sent, and the bytes that were brought to it.
    left: tuple[Left, ...] = ()
    read: int = 0
    #: The folder that has its two streams.
    folder: str = ""
    #: What its function returned, as JSON.
    result: str = ""
    #: Whether a hub has followed what it wrote.
    followed: bool = False


class LiveOutput(msgspec.Struct, frozen=True):
    """Where a job that is not over writes, and what a message on that needs."""

    #: The number of its attempt, and the folder that has the two streams; empty if there is none.
    attempt: int
    folder: str
    back: ReplyTo
    #: The sender's own key.
    token: str


def reply_to(job: Job) -> ReplyTo:
    """Return what status messages need of a job's message."""
    return ReplyTo(job.reply, job.speech, job.key, job.job_id, job.argo_job_id)
