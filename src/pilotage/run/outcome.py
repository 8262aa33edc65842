"""Ends of payloads: decode the reports of a starter, and classify what they mean for a job.

Results of functions stay as they were written. Output of payloads on other machines is stored with
their attempts.
"""

from __future__ import annotations

import base64
import json
import logging
import os
from collections.abc import Callable, Collection
from typing import Any

import msgspec

from pilotage.base import crash, durable, text
from pilotage.job import moves, retry
from pilotage.job.outcome import Cause
from pilotage.run.model import Ending, EndReason, Report, Started

#: What a starter reports, and what it means for an attempt.
CAUSES = {
    EndReason.EXITED: Cause.EXIT,
    EndReason.SIGNALLED: Cause.SIGNAL,
    EndReason.TIMEOUT: Cause.TIMEOUT,
    EndReason.MEMORY: Cause.MEMORY,
    EndReason.DISK: Cause.DISK,
    EndReason.STOPPED: Cause.STOPPED,
    EndReason.NOT_STARTED: Cause.NOT_STARTED,
    EndReason.LOST: Cause.LOST,
}


# -- reports ---------------------------------------------------------------------------------------


class _Started(Started, frozen=True, tag_field="op", tag="started"):
    """The line that tells of a start."""


class _Ended(Ending, frozen=True, tag_field="op", tag="ended"):
    """The line that tells of an end."""

    result: msgspec.Raw = msgspec.Raw(b"null")


class _Evidence(Ending, frozen=True):
    """The same in a file."""

    result: msgspec.Raw = msgspec.Raw(b"null")


_lines: msgspec.json.Decoder[Report] = msgspec.json.Decoder(_Started | _Ended)
_files: msgspec.json.Decoder[Ending] = msgspec.json.Decoder(_Evidence)


def read_report(line: bytes) -> Report:
    """Read a line of a starter."""
    try:
        found = _lines.decode(line)
    except msgspec.DecodeError:
        facts = text.load(line)
        if facts["op"] == "ended":
            return _odd(facts)
        return msgspec.convert(facts, Started)
    return _plain(found) if isinstance(found, Ending) else Started(found.key, found.pid, found.time)


def read_evidence(data: bytes) -> Ending:
    """Read the file that a starter left of an end."""
    try:
        return _plain(_files.decode(data))
    except msgspec.DecodeError:
        return _odd(json.loads(data))


def _plain(found: Ending) -> Ending:
    facts = msgspec.structs.asdict(found)
    if bytes(facts["result"]) == b"null":
        del facts["result"]
    return Ending(**facts)


def _odd(facts: Any) -> Ending:  # noqa: ANN401 - any JSON value
    """Read an end of which some text holds odd bytes."""
    ending = msgspec.convert(facts, Ending)
    if ending.result is None:
        return ending
    return msgspec.structs.replace(ending, result=msgspec.Raw(text.dump(ending.result).encode()))


# -- causes ----------------------------------------------------------------------------------------


def classify(
    ending: Ending, ok_codes: Collection[int], look: Callable[[], tuple[str, ...]]
) -> retry.AttemptEnd:
    """Return what an ending means for its job; `look` names declared outputs that are not there."""
    ok = ending.reason is EndReason.EXITED and ending.exit in ok_codes
    missing = look() if ok else ()
    crash.point("result.checked")
    end = retry.AttemptEnd(
        ok=ok,
        message=ending.message,
        cause=_cause(ending.reason, ok=ok, missing=missing),
        lost=ending.reason is EndReason.LOST,
        stopped=ending.reason is EndReason.STOPPED,
        missing=missing,
        exit=ending.exit,
        signal=ending.signal,
        # An exception of a function is kept as a result is.
        result=_result(ending),
    )
    usage = ending.usage
    if usage is None:
        return end
    return msgspec.structs.replace(
        end,
        cpu=usage.cpu_user + usage.cpu_system,
        wall=usage.wall,
        max_rss=usage.max_rss,
        read_bytes=usage.read_bytes,
        written_bytes=usage.written_bytes,
    )


def _cause(reason: EndReason, *, ok: bool, missing: tuple[str, ...]) -> Cause:
    if not ok:
        return CAUSES[reason]
    return Cause.OUTPUT if missing else Cause.NONE


def _result(ending: Ending) -> str:
    """Return the result of a function as JSON, or empty."""
    found = ending.result
    if isinstance(found, msgspec.Raw):
        return bytes(found).decode()
    return "" if found is None else text.dump(found)


_log = logging.getLogger("pilotage.pilot")
#: Bytes of the output of a payload that are kept.
_MOST = 1 << 30


def write_output(root: str, job: int, attempt: int, stream: str, at: int, data: str) -> None:
    """Keep what a payload wrote; a full disk must not keep us from hearing how it ended.

    `at` is where it belongs, or negative for the end; `data` is base64.
    """
    try:
        put_output(root, job, attempt, stream, at, base64.b64decode(data))
    except (OSError, ValueError) as error:
        _log.warning("the output of job %d is lost: %s", job, error)


def put_output(
    root: str, job: int, attempt: int, stream: str, at: int, data: bytes, *, last: bool = False
) -> None:
    """Keep what a payload wrote, or raise `OSError`; what is behind its `last` part goes."""
    folder = moves.attempt_dir(root, job, attempt)
    # A pipe or another special file must not block us.
    flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    os.makedirs(folder, exist_ok=True)
    with open(os.open(f"{folder}/{stream}", flags, 0o600), "wb", buffering=0) as file:
        begin = file.seek(0, os.SEEK_END) if at < 0 else at
        if begin < _MOST:
            durable.write_all(file.fileno(), data, begin)
            if last:
                file.truncate(begin + len(data))
