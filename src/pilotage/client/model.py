"""Structs of the client: pending calls, their jobs and results."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Any

import msgspec

from pilotage.base import errors

_HINTS = {
    "FileNotFoundError": "a call runs in an empty folder: pass `pilotage.File`, or name `inputs`"
}


class Error(msgspec.Struct, gc=False):
    """What a call raised."""

    type: str
    message: str
    traceback: str = ""

    def exception(self, job: int | None) -> errors.RemoteError:
        """Make it an exception of ours."""
        return errors.RemoteError(
            self.message, hint=_HINTS.get(self.type, ""), kind=self.type, trace=self.traceback,
            job=job,
        )  # fmt: skip


class Return(msgspec.Struct):
    """What became of one call."""

    ok: Any = None
    error: Error | None = None


class Returns(msgspec.Struct):
    """What became of the calls of a job, in their order; fewer than calls are those not made."""

    returns: list[Return] = []
    #: The seconds that all calls took together.
    wall: float = 0.0
    #: By the place of a call, names of files that it left undeclared, and that are gone.
    left: dict[int, list[str]] = {}


class Ticket:
    """A waiter for calls; its results are passed to the driver of the core."""

    #: Whether its result is still wanted.
    wanted: bool = True
    #: The job that holds its only call.
    parcel: Parcel | None = None
    #: Files that the call left in its folder and did not declare; they are gone.
    left: Sequence[str] = ()

    def deliver(self, found: Delivery) -> None:
        """Take what has come; nothing is done with it here."""


class CallRange(msgspec.Struct):
    """Calls of one ticket that follow one another, each as JSON."""

    ticket: Ticket
    #: The place of the first of them among all calls of the ticket.
    at: int
    calls: list[bytes]
    #: How many of them are on their way already.
    gone: int = 0


class Parcel:
    """A job with calls, or any other, on its way."""

    def __init__(
        self, spec: bytes, binding: bytes, parts: list[CallRange], kind: Any = None,  # noqa: ANN401
        *, calls: bool = False,
    ) -> None:  # fmt: skip
        #: What makes sending it twice the same as once.
        self.key = secrets.token_hex(16)
        self.spec = spec
        self.binding = binding
        self.parts = parts
        #: Where its calls come from; nothing for any other job.
        self.kind = kind
        #: Whether it holds calls.
        self.calls = calls or kind is not None
        self.count = sum(len(part.calls) for part in parts)
        #: Its number, once it is known.
        self.job: int | None = None


class Delivery(msgspec.Struct, gc=False):
    """Something that a ticket has waited for."""

    ticket: Ticket
    #: The place of the first call among those of the ticket.
    at: int
    #: The job that it comes from.
    job: int | None
    #: What became of that call and those after it.
    returns: list[Return]
    #: Why none of `count` calls returned.
    error: Exception | None = None
    count: int = 1
    #: The answer to a request, or how a job ended.
    answer: Any = None
    #: Names of files that its calls left undeclared.
    left: list[str] = []
