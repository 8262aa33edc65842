"""Classify the end of a payload: one function for this machine, pilots and batch jobs."""

from __future__ import annotations

from collections.abc import Callable, Collection

import msgspec

from pilotage.base import crash
from pilotage.job import retry
from pilotage.job.outcome import Cause
from pilotage.run import reports
from pilotage.run.model import Ending, EndReason

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
        # What a function raised is worth as much as what it returned.
        result=reports.result(ending),
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
