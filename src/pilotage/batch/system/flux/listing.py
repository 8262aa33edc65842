"""What `flux jobs --json` lists; what is empty or not yet known is left out of it."""

from __future__ import annotations

from typing import Any

import msgspec

from pilotage.batch.system import whole, words
from pilotage.batch.system.model import BatchError, Call, Cause, Item, Phase

#: `flux jobs` stops at a thousand unless it is told otherwise.
_MOST = "--count=1000000"
_RECENT = 3600
#: Times are given as so long ago: a number alone might be read as a date.
_SHELL = f'exec flux jobs --json {_MOST} "--since=-$(($(date +%s) - $1))s"'
LIVE = whole.asked("flux", "jobs", "--json", _MOST, f"--since=-{_RECENT}s")

_PHASES = {
    "NEW": Phase.QUEUED,
    "DEPEND": Phase.QUEUED,
    "PRIORITY": Phase.QUEUED,
    "SCHED": Phase.QUEUED,
    "RUN": Phase.RUNNING,
    "CLEANUP": Phase.RUNNING,
    "INACTIVE": Phase.OVER,
}
#: The least urgency: such a job is held.
_HELD = 0
_FATAL = 0
_SIGNALS = range(129, 193)


class _Exception(msgspec.Struct, frozen=True):
    occurred: bool = False
    severity: int | str = ""
    type: str = ""
    note: str = ""


class _Job(msgspec.Struct, frozen=True):
    id: int
    name: str = ""
    state: str = ""
    result: str = ""
    urgency: int = 16
    returncode: int | str = ""
    nodelist: str = ""
    t_run: float = 0.0
    t_cleanup: float = 0.0
    t_inactive: float = 0.0
    exception: _Exception = _Exception()
    annotations: dict[str, Any] = {}


class _Jobs(msgspec.Struct, frozen=True):
    jobs: list[_Job]


def past(since: float) -> Call:
    """Ask for what is there, and what ended since then."""
    return whole.asked("sh", "-c", _SHELL, "sh", str(max(0, int(since))))


def read(text: str) -> list[Item]:
    """Read a listing."""
    try:
        found = msgspec.json.decode(text, type=_Jobs)
    except (msgspec.DecodeError, UnicodeError) as error:
        raise BatchError(f"flux jobs: this is no listing: {error}") from None
    return [_item(job) for job in found.jobs if words.is_key(job.name)]


def _item(job: _Job) -> Item:
    phase = _PHASES.get(job.state, Phase.UNKNOWN)
    if phase is Phase.QUEUED and job.urgency == _HELD:
        phase = Phase.HELD
    over = phase is Phase.OVER
    cause = _cause(job) if over else None
    code = job.returncode if isinstance(job.returncode, int) else None
    return Item(
        key=job.name,
        id=str(job.id),
        phase=phase,
        cause=cause,
        exit=code if cause is Cause.EXITED else None,
        signal=_signal(code) if cause is Cause.SIGNALLED else None,
        words=": ".join(_words(job, phase)),
        node=job.nodelist,
        started=job.t_run or None,
        ended=(job.t_cleanup or job.t_inactive or None) if over else None,
    )


def _words(job: _Job, phase: Phase) -> list[str]:
    texts = [job.result if phase is Phase.OVER and job.result else job.state]
    if phase is Phase.HELD:
        texts.append("its urgency is 0")
    sched = job.annotations.get("sched")
    if phase is Phase.QUEUED and isinstance(sched, dict) and sched.get("reason_pending"):
        texts.append(str(sched["reason_pending"]))
    if job.exception.occurred:
        texts.append(" ".join(f"{job.exception.type} {job.exception.note}".split()))
    return [text for text in texts if text]


def _cause(job: _Job) -> Cause:
    """Say why a job is over."""
    fatal = job.exception.occurred and job.exception.severity == _FATAL
    if job.result == "TIMEOUT" or (fatal and job.exception.type == "timeout"):
        return Cause.TIMEOUT
    if fatal:
        return _raised(job.exception)
    if job.result == "CANCELED":
        return Cause.CANCELLED
    if not isinstance(job.returncode, int):
        return Cause.UNKNOWN
    return Cause.EXITED if _signal(job.returncode) is None else Cause.SIGNALLED


def _raised(exception: _Exception) -> Cause:
    """Say what an exception stands for that ended a job."""
    note = exception.note.lower()
    if "preempt" in note:
        return Cause.PREEMPTED
    if exception.type == "cancel":
        return Cause.CANCELLED
    if "out of memory" in note or "oom" in note.split():
        return Cause.MEMORY
    return Cause.NODE


def _signal(code: int | None) -> int | None:
    """Return the signal that a code stands for: it is negative, or over 128 by the shell."""
    if code is None:
        return None
    if code in _SIGNALS:
        return code - 128
    return -code if -65 < code < 0 else None
