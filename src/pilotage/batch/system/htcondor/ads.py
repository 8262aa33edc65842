"""What `condor_q` and `condor_history` say of a job: ClassAds as JSON."""

from __future__ import annotations

from typing import Any

import msgspec

from pilotage.batch.system import words
from pilotage.batch.system.model import BatchError, Cause, Item, Phase

from . import description


class Ad(msgspec.Struct, frozen=True, rename="pascal"):
    """What we ask of the ad of a job; what it does not have is left out."""

    cluster_id: int
    proc_id: int
    pilotage_key: str
    job_status: int
    last_job_status: int = 0
    num_shadow_starts: int = 0
    exit_by_signal: bool = False
    exit_code: int | None = None
    exit_signal: int | None = None
    hold_reason: str = ""
    hold_reason_code: int = 0
    hold_reason_sub_code: int = 0
    last_hold_reason: str = ""
    last_hold_reason_code: int = 0
    last_hold_reason_sub_code: int = 0
    remove_reason: str = ""
    vacate_reason: str = ""
    vacate_reason_code: int = 0
    remote_host: str = ""
    last_remote_host: str = ""
    job_start_date: int = 0
    job_current_start_executing_date: int = 0
    completion_date: int = 0
    entered_current_status: int = 0


_FIELDS = ",".join(field.encode_name for field in msgspec.structs.fields(Ad))
WANTED = ("-json", "-attributes", _FIELDS)
OURS = "PilotageKey =!= undefined"

#: History is in the order of leaving the queue; a job that is removed has this long to do so.
_SLACK = 3600

_PHASES = {
    1: Phase.QUEUED,
    2: Phase.RUNNING,
    # Removed, and still there: it is being cleared away.
    3: Phase.RUNNING,
    4: Phase.OVER,
    5: Phase.HELD,
    6: Phase.RUNNING,
    7: Phase.RUNNING,
}
_STATES = (
    "",
    "idle",
    "running",
    "removed",
    "completed",
    "held",
    "transferring output",
    "suspended",
)
_IDLE, _RUNNING, _REMOVED, _COMPLETED, _HELD = range(1, 6)

#: Codes of holding: by the kernel for memory (34), for a length of time (46, 47), by the user (1).
_HOLDS = {34: Cause.MEMORY, 46: Cause.TIMEOUT, 47: Cause.TIMEOUT, 1: Cause.CANCELLED}
#: By this the policy that comes with HTCondor tells memory from other reasons of a machine.
_MEMORY_SUBCODE = 102
#: Codes of vacating where the place was wanted for another, or by those who own it. Up to 23.9
#: there is one for all of them, 1005; a machine that was lost has 1008.
_VACATED = frozenset({1000, 1001, 1004, 1005, 1010, 1011, 1014, 1015, 1018, 1019, 1022})


def between(since: float) -> tuple[str, ...]:
    """Return the options by which `condor_history` lists what ended since then."""
    start = max(0, int(since))
    ours = f"{OURS} && EnteredCurrentStatus >= {start}"
    return "-since", f"EnteredCurrentStatus < {max(0, start - _SLACK)}", "-constraint", ours


def read(text: str) -> list[Ad]:
    """Read ads; leave out those whose key is none of ours."""
    try:
        found = msgspec.json.decode(text, type=list[dict[str, Any]])
        return [_ad(one) for one in found if words.is_key(str(one.get("PilotageKey")))]
    except (msgspec.DecodeError, UnicodeError) as error:
        raise BatchError(f"these are no ClassAds: {error}") from None


def _ad(raw: dict[str, Any]) -> Ad:
    """Read an ad; what has no value may be there as null."""
    return msgspec.convert({name: value for name, value in raw.items() if value is not None}, Ad)


def item(ad: Ad, *, gone: bool = False) -> Item:
    """Say what an ad means, of a job in the queue or of one that is gone from it."""
    phase = _PHASES.get(ad.job_status, Phase.UNKNOWN)
    # It has been started, and will never be again: only its removal is still to come.
    stuck = ad.job_status in {_IDLE, _HELD} and ad.num_shadow_starts > 0
    if stuck or (gone and phase is not Phase.UNKNOWN):
        phase = Phase.OVER
    over = phase is Phase.OVER
    cause = _cause(ad) if over else None
    host = ad.remote_host or ad.last_remote_host
    began = ad.job_current_start_executing_date or ad.job_start_date
    return Item(
        key=ad.pilotage_key,
        id=f"{ad.cluster_id}.{ad.proc_id}",
        index=ad.proc_id,
        phase=phase,
        cause=cause,
        exit=ad.exit_code if cause is Cause.EXITED else None,
        signal=ad.exit_signal if cause is Cause.SIGNALLED else None,
        words=": ".join(_words(ad)),
        node=host.rpartition("@")[2],
        started=float(began) if began else None,
        ended=float(ad.completion_date or ad.entered_current_status) if over else None,
    )


def _words(ad: Ad) -> list[str]:
    status = ad.job_status
    state = _STATES[status] if 0 < status < len(_STATES) else f"state {status}"
    held = ad.hold_reason or ad.last_hold_reason
    why = {_IDLE: ad.vacate_reason, _REMOVED: ad.remove_reason, _HELD: held}.get(status, "")
    further = held or ad.vacate_reason if "pilotage:" in why else ""
    return [" ".join(text.split()) for text in (state, why, further) if text]


def _cause(ad: Ad) -> Cause:
    """Say why a job is over."""
    if ad.job_status == _COMPLETED:
        if ad.exit_by_signal and ad.exit_signal is not None:
            return Cause.SIGNALLED
        return Cause.UNKNOWN if ad.exit_by_signal or ad.exit_code is None else Cause.EXITED
    before = ad.job_status
    if before == _REMOVED:
        if not _by_policy(ad.remove_reason):
            return Cause.CANCELLED
        before = ad.last_job_status
    if before == _RUNNING:
        return Cause.TIMEOUT
    if before == _HELD:
        return _held(ad)
    return Cause.PREEMPTED if ad.vacate_reason_code in _VACATED else Cause.NODE


def _by_policy(reason: str) -> bool:
    """Say whether the policy of our description removed it; before 9.0 HTCondor words it so."""
    ours = (description.WALL_TIME, description.HELD, description.LOST)
    return reason in ours or "job attribute PeriodicRemove" in reason


def _held(ad: Ad) -> Cause:
    code = ad.hold_reason_code or ad.last_hold_reason_code
    minor = ad.hold_reason_sub_code or ad.last_hold_reason_sub_code
    reason = ad.hold_reason or ad.last_hold_reason
    if minor == _MEMORY_SUBCODE or "memory usage exceeded" in reason:
        return Cause.MEMORY
    return _HOLDS.get(code, Cause.NODE)
