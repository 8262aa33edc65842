"""Why a job of PBS is over.

Codes below zero are PBS's own, and Torque has others for the same. From 256 on (from 128 on where
the shell had to say it) a code stands for a signal. Walls of time that are enforced by a signal are
told by the clock; that somebody called a job off by a substate.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from pilotage.batch.system.model import BatchError, Cause


class End(NamedTuple):
    """A cause, with its number where it has one."""

    cause: Cause | None
    exit: int | None = None
    signal: int | None = None


_PROFESSIONAL = {
    -26: Cause.MEMORY,
    -27: Cause.MEMORY,
    -31: Cause.MEMORY,
    -28: Cause.TIMEOUT,
    -29: Cause.TIMEOUT,
    # More cores than it asked for.
    -24: Cause.UNKNOWN,
    -25: Cause.UNKNOWN,
    -17: Cause.CANCELLED,
    -19: Cause.CANCELLED,
}
_TORQUE = {-10: Cause.MEMORY, -11: Cause.TIMEOUT, -12: Cause.TIMEOUT}
_TERMINATED = 91
_KILL, _TERM = 9, 15
_SHELL, _PBS, _MOST = 128, 256, 64


def end(job: Mapping[str, Any]) -> End:
    """Say why a job is over."""
    torque = "job_state" in job and job["job_state"] == "C"
    status = _number(job.get("exit_status" if torque else "Exit_status"))
    called_off = _number(job.get("substate")) == _TERMINATED
    if status is None:
        return End(Cause.CANCELLED if called_off else Cause.UNKNOWN)
    if status < 0:
        return End((_TORQUE if torque else _PROFESSIONAL).get(status, Cause.NODE))
    signal = _signal(status)
    if signal in {_KILL, _TERM} and _late(job):
        return End(Cause.TIMEOUT)
    if called_off:
        return End(Cause.CANCELLED)
    if signal is not None:
        return End(Cause.SIGNALLED, signal=signal)
    return End(Cause.EXITED, exit=status)


def _number(value: object) -> int | None:
    if value is None or value == "":
        return None
    try:
        return int(str(value))
    except ValueError:
        raise BatchError(f"qstat: {value!r} is no number") from None


def _signal(status: int) -> int | None:
    for base in (_PBS, _SHELL):
        if base < status <= base + _MOST:
            return status - base
    return None


def _late(job: Mapping[str, Any]) -> bool:
    """Say whether it ran for as long as it was allowed to."""
    used, limit = (_clock(job.get(name)) for name in ("resources_used", "Resource_List"))
    return used is not None and limit is not None and used >= limit


def _clock(resources: object) -> int | None:
    text = resources.get("walltime", "") if isinstance(resources, dict) else ""
    parts = str(text).split(":")
    if not all(part.isdecimal() for part in parts):
        return None
    seconds = 0
    for part in parts:
        seconds = seconds * 60 + int(part)
    return seconds
