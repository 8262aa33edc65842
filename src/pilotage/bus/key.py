"""The identity of a job: messages with the same key are the same job.

It is the sender's own key, or the numbers that Argo gave, or the body itself. Keys of different
senders never collide. The same key with another body is a conflict.
"""

from __future__ import annotations

import hashlib
from typing import Any, Literal

import msgspec

from pilotage.bus.model import Chain, Flow, Job


class MessageKey(msgspec.Struct, frozen=True):
    """The identity of a message."""

    #: 32 hexadecimal digits, equal for the same job.
    digits: str
    #: The SHA-256 of the content, equal for the same message.
    body: str
    #: Its source.
    origin: Literal["sender", "argo", "body"]


def of(message: Job | Chain | Flow, user: str) -> MessageKey:
    """Return the identity of a message from a user that the bus has verified."""
    body = digest(msgspec.structs.replace(message, key=""))
    origin: Literal["sender", "argo", "body"] = "sender"
    if message.key:
        mine: list[Any] = [message.key]
    elif isinstance(message, Job) and message.job_id:
        origin, mine = "argo", [message.argo_job_id, message.job_id]
    else:
        origin, mine = "body", [body]
    attempt = message.attempt if isinstance(message, Job) else 1
    return MessageKey(
        digest([user, origin, type(message).__name__, attempt, *mine])[:32], body, origin
    )


def digest(value: object) -> str:
    """Return the SHA-256 of a value, however its fields were ordered when they came."""
    return hashlib.sha256(msgspec.json.encode(value, order="deterministic")).hexdigest()
