"""Decide what follows the end of an attempt."""

from __future__ import annotations

import random
import sys

import msgspec

from pilotage.base import units
from pilotage.job.model import JobSpec, Retry, State
from pilotage.job.outcome import Cause

#: An attempt that vanished is not the job's fault, but one that always vanishes must end.
MOST_LOST = 20
_JITTER = 0.1


class AttemptEnd(msgspec.Struct, frozen=True):
    """The end of an attempt, as far as the decision needs it."""

    #: Whether the payload itself succeeded.
    ok: bool
    #: In words, for people.
    message: str
    #: What ended it, for programs.
    cause: Cause = Cause.NONE
    #: Whether the attempt vanished without evidence.
    lost: bool = False
    #: Whether it was stopped because its runner stopped.
    stopped: bool = False
    #: Whether its place cannot run it: another may.
    refused: bool = False
    #: Seconds after which its place may take more like it, if it only has too many now.
    again: float = 0.0
    #: Declared outputs that are not there.
    missing: tuple[str, ...] = ()
    #: What a person asked for meanwhile: '', 'cancel' or 'hold'.
    asked: str = ""
    #: Why the job must not run although nothing failed, such as an input that changed.
    call_off: str = ""
    #: Why it can never run where it is to run.
    rejected: str = ""
    #: Exit code, or the signal that ended it.
    exit: int | None = None
    signal: int | None = None
    #: What it used: seconds of processor and wall time, bytes of memory and of files.
    cpu: float | None = None
    wall: float | None = None
    max_rss: int | None = None
    read_bytes: int | None = None
    written_bytes: int | None = None
    #: What the function returned, as JSON; empty if nothing is to be kept.
    result: str = ""
    #: A warning for people although it ended well.
    note: str = ""


class Next(msgspec.Struct, frozen=True):
    """The next state of a job and of its attempt."""

    state: State
    reason: str
    #: What the attempt is recorded as.
    attempt: str = ""
    #: When it may start again.
    not_before: float = 0.0
    #: Whether the attempt counts against the job's retries.
    failed: bool = False


def decide(
    spec: JobSpec, end: AttemptEnd, *, failures: int, attempt: int, now: float, dice: random.Random,
    refused: int = 0,
) -> Next:  # fmt: skip
    """Return what follows the end of an attempt; those that places `refused` do not count."""
    if end.call_off:
        return Next(State.CANCELLED, end.call_off, "cancelled")
    if end.rejected:
        return Next(State.REJECTED, end.rejected, "failed")
    if end.ok and not end.missing:
        return Next(State.DONE, end.note, "done")
    if end.asked == "cancel":
        return Next(State.CANCELLED, end.message or "cancelled by a person", "cancelled")
    if end.asked == "hold":
        return Next(State.HELD, "held by a person while it ran", "cancelled")
    if end.stopped or end.refused:
        return Next(State.QUEUED, end.message, "lost", now)
    if end.lost:
        return _after_loss(end, lost=attempt - failures - refused, now=now)
    message = end.message
    if end.ok:
        message = f"declared output is missing: {', '.join(end.missing)}"
    if failures + 1 < spec.retry.attempts:
        wait = delay(spec.retry, failures + 1, dice)
        tries = f"attempt {failures + 1} of {spec.retry.attempts} failed ({message})"
        again = f"{tries}; again in {units.for_people(wait)}"
        return Next(State.QUEUED, again, "failed", now + wait, failed=True)
    return Next(State.FAILED, message, "failed", failed=True)


def _after_loss(end: AttemptEnd, *, lost: int, now: float) -> Next:
    if lost >= MOST_LOST:
        return Next(State.FAILED, f"its attempts were lost {lost} times: {end.message}", "lost")
    return Next(State.QUEUED, f"the last attempt was lost ({end.message})", "lost", now)


def delay(retry: Retry, failures: int, dice: random.Random) -> float:
    """Return how long to wait after this many failures."""
    try:
        grown = retry.factor ** (failures - 1)
    except OverflowError:
        grown = sys.float_info.max
    wait = min(retry.delay * grown, retry.longest)
    return wait * (1 + _JITTER * dice.random())
