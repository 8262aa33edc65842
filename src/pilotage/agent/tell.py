"""What is said of a job: its status with the real reason, in the words of whoever asked."""

from __future__ import annotations

import base64
import os
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec
from msgspec import UNSET, UnsetType

from pilotage.agent.model import Return, Tale, Word
from pilotage.agent.settings import Settings
from pilotage.base import errors, paths
from pilotage.bus import speech, wire
from pilotage.bus.fields import MOST_LOG, MOST_RESULT_TEXT, Speech
from pilotage.bus.model import Job, Reason, Status
from pilotage.job.outcome import Cause

_LONGEST = 10_000
_OVER = frozenset({"done", "failed", "cancelled"})
#: What is to blame for a failure in a step, unless somebody knows better.
_STEPS: dict[str, tuple[str, str]] = {
    "accept": ("policy", "rejected"),
    "stage_in": ("staging", "stage_in"),
    "stage_out": ("staging", "stage_out"),
    "preprocess": ("application", "preprocess"),
    "postprocess": ("application", "postprocess"),
    "submit": ("infrastructure", "submit"),
}
#: What ended an attempt, and whose doing that is.
_CAUSES: dict[Cause, tuple[str, str]] = {
    Cause.EXIT: ("application", "exit"),
    Cause.SIGNAL: ("application", "signal"),
    Cause.TIMEOUT: ("application", "timeout"),
    Cause.MEMORY: ("application", "memory"),
    Cause.DISK: ("application", "disk"),
    Cause.OUTPUT: ("application", "output"),
    Cause.STEP: ("application", "step"),
    Cause.INPUT: ("staging", "input"),
    Cause.NOT_STARTED: ("infrastructure", "not_started"),
    Cause.STOPPED: ("infrastructure", "stopped"),
    Cause.CANCELLED: ("person", "cancelled"),
    Cause.NODE: ("infrastructure", "node_lost"),
    Cause.PREEMPTED: ("infrastructure", "preempted"),
    Cause.KILLED: ("infrastructure", "killed"),
    Cause.LOST: ("infrastructure", "lost"),
}


class Tail(NamedTuple):
    """The end of a stream, in base64."""

    text: str = ""
    #: Where it begins, in bytes; only for hubs that understand the field.
    at: int | UnsetType = UNSET


_NOTHING = (Tail(), Tail())


def status(word: Word, tale: Tale, site: str, streams: tuple[Tail, Tail] = _NOTHING) -> Status:
    """Say what a message that is to be sent means; `streams` are the ends of what a job wrote."""
    told: dict[str, Any] = {"state": word.state, "step": word.step}
    return Status(
        site=site, job=word.job, key=tale.back.key, job_id=tale.back.job_id,
        argo_job_id=tale.back.argo_job_id, attempt=word.attempt, seq=word.seq,
        reason=reason(word, tale), scheduler_id=tale.scheduler_id[:200], time=word.time,
        left=tale.left if word.state == "done" else (),
        read=tale.read if word.state in _OVER else 0,
        stdout=streams[0].text, stdout_at=streams[0].at,
        stderr=streams[1].text, stderr_at=streams[1].at,
        result=tale.result if word.state in _OVER and not _too_long(tale) else "",
        **told,
    )  # fmt: skip


def _too_long(tale: Tale) -> bool:
    """Say whether no message could carry what a function returned."""
    return len(tale.result.encode()) > MOST_RESULT_TEXT


def streams(word: Word, tale: Tale) -> tuple[Tail, Tail]:
    """Read the ends of what a job that is over wrote to its two streams."""
    if word.state not in _OVER or not tale.folder:
        return _NOTHING
    out, err = (_tail(f"{tale.folder}/{name}") for name in ("stdout", "stderr"))
    # A hub that follows no logs does not know the fields that say where ends begin.
    return (out, err) if tale.followed else (Tail(out.text), Tail(err.text))


def _tail(path: str) -> Tail:
    """Read the end of a file; nothing if it cannot be read."""
    try:
        with paths.regular(path) as file:
            at = max(0, os.fstat(file).st_size - MOST_LOG)
            return Tail(base64.b64encode(os.pread(file, MOST_LOG, at)).decode(), at)
    except (OSError, errors.Denied):
        return Tail()


def body(said: Status, words: Speech, job: Callable[[], Job], created: float) -> bytes:
    """Write a status in somebody's words; the whole job is only needed for Balsam's."""
    match words:
        case "balsam":
            return speech.balsam_status(job(), said, created)
        case "argo":
            return speech.argo_status(said)
        case "pilotage":
            return wire.encode(said)


def topic(back: Return, settings: Settings) -> str:
    """Say where status messages of a job go."""
    if back.reply:
        return back.reply
    return settings.bus.balsam_status if back.speech == "balsam" else settings.status_topic


def reason(word: Word, tale: Tale) -> Reason:
    """Say why a job is where it is, and whose doing that is."""
    text = word.reason
    if word.seq == 1 and tale.notes:
        text = "; ".join(part for part in (text, *tale.notes) if part)
    if word.state in _OVER and _too_long(tale):
        said = f"what it returned is too long to be sent: {len(tale.result)} characters"
        text = "; ".join(part for part in (text, said) if part)
    kind, code = (word.kind, word.code) if word.kind else _blame(word, tale)
    return msgspec.convert({"class": kind, "code": code, "text": text[:_LONGEST]}, Reason)


def _blame(word: Word, tale: Tale) -> tuple[str, str]:
    match word.state:
        case "waiting":
            return "policy", "limit"
        case "held":
            return "person", "held"
        case "cancelled":
            return "person", "cancelled"
        case "rejected":
            return "policy", "rejected"
        case "failed":
            return _STEPS.get(word.step) or _end(tale)
        case "queued" if word.attempt and tale.attempt in ("failed", "lost"):
            return _end(tale)
        case "staging_out" if tale.attempt == "failed":
            return _end(tale)
        case _:
            return "", ""


def _end(tale: Tale) -> tuple[str, str]:
    """Say how an attempt ended; one of an older store by its code alone."""
    if tale.cause:
        return _CAUSES[tale.cause]
    if tale.attempt == "lost":
        return "infrastructure", "lost"
    if tale.signal:
        return "application", "signal"
    if tale.exit:
        return "application", "exit"
    # It ended well and yet failed: a declared output is missing.
    return ("application", "output") if tale.exit == 0 else ("infrastructure", "lost")
