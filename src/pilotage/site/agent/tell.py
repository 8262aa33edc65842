"""What is said of a job: its status with the real reason, in the words of whoever asked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from pilotage.bus import speech, wire
from pilotage.bus.fields import Speech
from pilotage.bus.model import Job, Reason, Status
from pilotage.site import ending
from pilotage.site.agent.model import Return, Tale, Word
from pilotage.site.agent.settings import Settings
from pilotage.site.batch.model import Cause

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
#: What the batch system says of ends, and what that is called.
_TOLD: dict[Cause, tuple[str, str]] = {
    Cause.TIMEOUT: ("application", "timeout"),
    Cause.MEMORY: ("application", "memory"),
    Cause.NODE: ("infrastructure", "node_lost"),
    Cause.PREEMPTED: ("infrastructure", "preempted"),
    Cause.SIGNALLED: ("infrastructure", "killed"),
}
#: What our own program says when it has ended a payload.
_OURS = {"time limit": "timeout", "memory": "memory", "wrote more than it may": "disk"}


def status(word: Word, tale: Tale, site: str) -> Status:
    """Say what a message that is to be sent means."""
    told: dict[str, Any] = {"state": word.state, "step": word.step}
    return Status(
        site=site, job=word.job, key=tale.back.key, job_id=tale.back.job_id,
        argo_job_id=tale.back.argo_job_id, attempt=word.attempt, seq=word.seq,
        reason=reason(word, tale), scheduler_id=tale.scheduler_id[:200], time=word.time,
        left=tale.left if word.state == "done" else (),
        read=tale.read if word.state in _OVER else 0, **told,
    )  # fmt: skip


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
            return _STEPS.get(word.step) or _end(word, tale)
        case "queued" if word.attempt and tale.attempt in ("failed", "lost"):
            return _end(word, tale)
        case "staging_out" if tale.attempt == "failed":
            return _end(word, tale)
        case _:
            return "", ""


def _end(word: Word, tale: Tale) -> tuple[str, str]:
    """Say how an attempt ended."""
    words = f"{word.reason} {tale.reason}"
    for cause, found in _TOLD.items():
        if (ending.OWN | ending.LOST)[cause] in words:
            return found
    for known, code in _OURS.items():
        if tale.exit is None and known in words:
            return "application", code
    if tale.attempt == "lost":
        return "infrastructure", "lost"
    if tale.signal:
        return "application", "signal"
    if tale.exit:
        return "application", "exit"
    # It ended well and yet failed: what it was to leave is not there.
    return ("application", "output") if tale.exit == 0 else ("infrastructure", "lost")
