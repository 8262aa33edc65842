"""Slurm's words for the state of a job, and what they mean."""

from __future__ import annotations

from typing import NamedTuple

from pilotage.batch.system.model import Cause, Phase

#: The state of a job whose output could not be opened, and the like: it never began.
_NOT_STARTED = 53

_PHASES = {
    "PENDING": Phase.QUEUED,
    "REQUEUED": Phase.QUEUED,
    "REQUEUE_FED": Phase.QUEUED,
    "CONFIGURING": Phase.RUNNING,
    "POWER_UP_NODE": Phase.RUNNING,
    "RUNNING": Phase.RUNNING,
    "RESIZING": Phase.RUNNING,
    "SUSPENDED": Phase.RUNNING,
    "STOPPED": Phase.RUNNING,
    "SIGNALING": Phase.RUNNING,
    "STAGE_OUT": Phase.RUNNING,
    "COMPLETING": Phase.RUNNING,
    "REQUEUE_HOLD": Phase.HELD,
    "RESV_DEL_HOLD": Phase.HELD,
    "SPECIAL_EXIT": Phase.HELD,
    "COMPLETED": Phase.OVER,
    "FAILED": Phase.OVER,
    "CANCELLED": Phase.OVER,
    "TIMEOUT": Phase.OVER,
    "DEADLINE": Phase.OVER,
    "NODE_FAIL": Phase.OVER,
    "BOOT_FAIL": Phase.OVER,
    "LAUNCH_FAILED": Phase.OVER,
    "PREEMPTED": Phase.OVER,
    "OUT_OF_MEMORY": Phase.OVER,
}
_CAUSES = {
    "CANCELLED": Cause.CANCELLED,
    "TIMEOUT": Cause.TIMEOUT,
    "DEADLINE": Cause.TIMEOUT,
    "NODE_FAIL": Cause.NODE,
    "BOOT_FAIL": Cause.NODE,
    "LAUNCH_FAILED": Cause.NODE,
    "PREEMPTED": Cause.PREEMPTED,
    "OUT_OF_MEMORY": Cause.MEMORY,
}
#: Reasons that do not go by themselves, without case, spaces and underscores.
_HOLDING = (
    "held",
    "holdmaxrequeue",
    "dependencyneversatisfied",
    "badconstraints",
    "invalidaccount",
    "invalidqos",
    "accountnotallowed",
    "qosnotallowed",
    "accountingpolicy",
    "partitionconfig",
    "partitionnodelimit",
    "partitiontimelimit",
    "perjob",
    "reservationdeleted",
)


class End(NamedTuple):
    """Why a job is over."""

    cause: Cause | None = None
    exit: int | None = None
    signal: int | None = None


def phase(state: str, reason: str) -> Phase:
    """Return where a job is; unknown for a word that is not in Slurm's manual."""
    found = _PHASES.get(state, Phase.UNKNOWN)
    flat = reason.lower().replace(" ", "").replace("_", "")
    if found is Phase.QUEUED and any(word in flat for word in _HOLDING):
        return Phase.HELD
    return found


def end(state: str, code: int, signal: int, nodes: str) -> End:
    """Return why a job that is over ended."""
    if state in _CAUSES:
        return End(_CAUSES[state])
    # Also what `sbatch` refused may be listed, as failed with status 1 and without a node.
    failed = state == "FAILED" and (not nodes or not (code or signal))
    if failed or signal == _NOT_STARTED:
        return End(Cause.NODE)
    if signal:
        return End(Cause.SIGNALLED, signal=signal)
    return End(Cause.EXITED, exit=code)
