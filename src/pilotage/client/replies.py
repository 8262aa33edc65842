"""What the hub answers, read."""

from __future__ import annotations

from typing import Any

import msgspec

from pilotage.base import errors
from pilotage.client.model import Returns


class End(msgspec.Struct):
    """The end of a job, as the hub tells it."""

    job: int
    state: str
    seq: int = 0
    reason: str = ""
    #: What its function returned, not read yet.
    result: msgspec.Raw = msgspec.Raw(b"")


class Reply(msgspec.Struct):
    """Any answer of the hub."""

    #: The number of the request; none if the hub did not understand it.
    n: int | None = None
    error: dict[str, Any] | None = None
    ids: list[int] = []
    #: Why some of these jobs will wait for their sites.
    notes: list[str] = []
    ends: list[End] = []
    after: int = 0
    cpus: int = 0
    states: dict[str, str] = {}
    owner: str = ""


_replies = msgspec.json.Decoder(Reply)
_results = msgspec.json.Decoder(Returns)


def read(message: bytes) -> Reply:
    """Read an answer."""
    try:
        return _replies.decode(message)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise errors.Unavailable(f"the hub sent what is no answer: {error}") from None


def returns(end: End) -> Returns:
    """Read what calls returned."""
    data = bytes(end.result)
    if data[:1] != b"{":
        return Returns()
    try:
        return _results.decode(data)
    except msgspec.DecodeError:
        # It is the result of something else than calls.
        return Returns()


def counts(end: End, found: Returns) -> bool:
    """Say whether what a call with files returned or raised is the end of it.

    A call that returned may have failed all the same: a declared output is missing.
    """
    raised = bool(found.returns) and found.returns[0].error is not None
    return end.state == "done" or (end.state == "failed" and raised)


def failure(end: End) -> errors.JobFailed:
    """Say why a job did not end well."""
    why = end.reason or ("its result was not kept" if end.state == "done" else "")
    return errors.JobFailed(f"job {end.job} is {end.state}: {why}", job=end.job, state=end.state)


def refusal(error: dict[str, Any]) -> errors.PilotageError:
    """Make the error that the hub tells of one of ours."""
    kind = errors.by_code(str(error.get("code")))
    return kind(str(error.get("message")), hint=str(error.get("hint", "")))
