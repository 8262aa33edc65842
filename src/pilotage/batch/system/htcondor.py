"""HTCondor, from 8.8 on: `condor_submit`, `condor_q`, `condor_history` and `condor_rm`.

HTCondor starts a job again if it loses it. Ours are not to be: a job that had a shadow once matches
no machine any more, and is removed when HTCondor next looks at its policies. `NumShadowStarts`
counts before a job begins, unlike `NumJobStarts`, so that no start goes unseen; a shadow that finds
its job again after a restart of the scheduler needs no match and is none of these.

The text of an order's script must be in its folder before, as `script.sh`: login and worker nodes
share that folder, so that nothing is transferred. Every job of an array learns its number from
`PILOTAGE_INDEX`. Listings are ClassAds as JSON.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any

import msgspec

from . import words
from .model import BatchCommand, BatchError, BatchItem, BatchOrder, EndCause, Phase
from .tools import ListCommand, Tools

_WALL_TIME_REASON = "pilotage: it used up its wall time"
_HELD_REASON = "pilotage: it was held after it had begun"
_LOST_REASON = "pilotage: it was to be started a second time"

_MEBI = 1 << 20
_ONCE = "(NumShadowStarts ?: 0)"
#: What removes a job also says why, by the state that it was in: idle, running or held.
_REASON = (
    f'ifThenElse(JobStatus == 2, "{_WALL_TIME_REASON}",'
    f' ifThenElse(JobStatus == 5, "{_HELD_REASON}", "{_LOST_REASON}"))'
)
#: Seconds between SIGTERM and SIGKILL.
_GRACE = 30
#: Letters that mean something to the language of descriptions, or end a text in it.
_SPECIAL = re.compile(r"[\"'$\\]")
#: What a ClassAd expression may be made of: no comments, no separators, no macros.
_EXPRESSION = re.compile(r"[\w\s.()<>=!&|+*%?:,\"\[\]-]*")
_OPTION = re.compile(r"--(?P<name>(\+|MY\.)?[A-Za-z_]\w*)(=(?P<value>.+))?", re.ASCII)
#: Commands and attributes that only we may set, without underscores.
_RESERVED = frozenset({
    "universe", "executable", "transferexecutable", "cmd", "arguments", "args", "environment",
    "env", "getenv", "initialdir", "iwd", "output", "out", "error", "err", "log", "queue",
    "requirements", "pilotagekey", "batchname", "jobbatchname", "shouldtransferfiles",
    "whentotransferoutput", "maxretries", "jobmaxretries", "retryuntil", "wantgracefulremoval",
    "owner", "user", "leaveinqueue", "leavejobinqueue", "numshadowstarts",
})  # fmt: skip
_RESERVED_KINDS = ("periodic", "onexit")


# -- orders ----------------------------------------------------------------------------------------


def _submit(order: BatchOrder) -> BatchCommand:
    """Have `condor_submit` read a description; what makes the job ours comes last in it."""
    words.refuse(
        order,
        "HTCondor's vanilla universe",
        nodes="jobs over several nodes",
        queue="queues",
        qos="qualities of service",
        reservation="reservations",
        step="steps",
    )
    if _SPECIAL.search(order.folder):
        raise BatchError(f"{order.folder!r} cannot be used in a submit description", final=True)
    lines = (*_resources(order), *_extra(order), *_identity(order), *_policy(order))
    text = "\n".join((*lines, f"queue {order.count}", ""))
    return BatchCommand(("condor_submit", "-terse", "-"), input=text)


def _resources(order: BatchOrder) -> Iterator[str]:
    yield f"request_cpus = {order.tasks * order.cpus}"
    if order.memory is not None:
        yield f"request_memory = {math.ceil(order.memory / _MEBI)}"
    if order.gpus:
        yield f"request_gpus = {order.gpus}"
    if order.account:
        if _SPECIAL.search(order.account):
            raise BatchError(f"account: {order.account!r} is no name", final=True)
        yield f"accounting_group = {order.account}"


def _extra(order: BatchOrder) -> Iterator[str]:
    for option in order.extra:
        found = _OPTION.fullmatch(option)
        if found is None or re.search(r"[$\\]", option):
            raise BatchError(
                f"extra: {option!r} is not a command of a submit description", final=True
            )
        bare = found["name"].lower().lstrip("+").removeprefix("my.").replace("_", "")
        if bare in _RESERVED or bare.startswith(_RESERVED_KINDS):
            raise BatchError(
                f"extra: {option!r} is set by Pilotage and cannot be changed", final=True
            )
        yield f"{found['name']} = {found['value'] or 'True'}"


def _identity(order: BatchOrder) -> Iterator[str]:
    folder = order.folder
    yield "universe = vanilla"
    yield "executable = /bin/sh"
    yield "transfer_executable = False"
    yield f"arguments = \"'{folder}/script.sh'\""
    yield 'environment = "PILOTAGE_INDEX=$(Process)"'
    yield f"initialdir = {folder}"
    yield f"output = {folder}/out.$(Process)"
    yield f"error = {folder}/err.$(Process)"
    yield "should_transfer_files = NO"
    yield f'+PilotageKey = "{order.key}"'
    yield f"batch_name = {order.key}"


def _policy(order: BatchOrder) -> Iterator[str]:
    wanted = f"({_expression(order.constraint)}) && " if order.constraint else ""
    yield f"requirements = {wanted}{_ONCE} == 0"
    over = [f"((JobStatus == 1 || JobStatus == 5) && {_ONCE} > 0)"]
    if order.time is not None:
        spent = "time() - JobCurrentStartExecutingDate"
        over.append(f"((JobStatus == 2 && {spent} > {math.ceil(order.time)}) =?= True)")
    yield f"periodic_remove = {' || '.join(over)}"
    yield f"+PeriodicRemoveReason = {_REASON}"
    yield "on_exit_remove = True"
    yield "want_graceful_removal = True"
    yield f"job_max_vacate_time = {_GRACE}"


def _expression(text: str) -> str:
    """Check that an expression stays one between brackets."""
    bare = re.sub(r'"[^"]*"', "", text)
    depth = 0
    for letter in bare:
        depth += {"(": 1, ")": -1}.get(letter, 0)
        if depth < 0:
            break
    if depth or '"' in bare or not _EXPRESSION.fullmatch(text):
        raise BatchError(f"constraint: {text!r} is not an expression", final=True)
    return text


# -- listings --------------------------------------------------------------------------------------


class JobAd(msgspec.Struct, frozen=True, rename="pascal"):
    """The attributes that we read from the ad of a job; missing ones are left out."""

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


_FIELDS = ",".join(field.encode_name for field in msgspec.structs.fields(JobAd))
_WANTED = ("-json", "-attributes", _FIELDS)
_OURS = "PilotageKey =!= undefined"

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
_HOLDS = {34: EndCause.MEMORY, 46: EndCause.TIMEOUT, 47: EndCause.TIMEOUT, 1: EndCause.CANCELLED}
#: By this the policy that comes with HTCondor tells memory from other reasons of a machine.
_MEMORY_SUBCODE = 102
#: Codes of vacating where the place was wanted for another, or by those who own it. Up to 23.9
#: there is one for all of them, 1005; a machine that was lost has 1008.
_VACATED = frozenset({1000, 1001, 1004, 1005, 1010, 1011, 1014, 1015, 1018, 1019, 1022})


def _past(since: float) -> ListCommand:
    """Ask `condor_history`, which reads backwards and stops in time."""
    start = max(0, int(since))
    stop = f"EnteredCurrentStatus < {max(0, start - _SLACK)}"
    ours = f"{_OURS} && EnteredCurrentStatus >= {start}"
    argv = ("condor_history", *_WANTED, "-since", stop, "-constraint", ours)
    return ListCommand("condor_history", argv, read_past)


def read_live(text: str) -> list[BatchItem]:
    """Read what is in the queue; `condor_q` prints nothing at all if there is nothing."""
    return [item(ad) for ad in read(text or "[]")]


def read_past(text: str) -> list[BatchItem]:
    """Read what has left the queue."""
    return [item(ad, gone=True) for ad in read(text)]


def read(text: str) -> list[JobAd]:
    """Read ads; leave out those whose key is none of ours."""
    try:
        found = msgspec.json.decode(text, type=list[dict[str, Any]])
        return [_ad(one) for one in found if words.is_key(str(one.get("PilotageKey")))]
    except (msgspec.DecodeError, UnicodeError) as error:
        raise BatchError(f"not ClassAds: {error}") from None


def _ad(raw: dict[str, Any]) -> JobAd:
    """Read an ad; what has no value may be there as null."""
    return msgspec.convert({name: value for name, value in raw.items() if value is not None}, JobAd)


def item(ad: JobAd, *, gone: bool = False) -> BatchItem:
    """Return what an ad says of a job that is in the queue, or gone from it."""
    phase = _PHASES.get(ad.job_status, Phase.UNKNOWN)
    # It has been started, and will never be again: only its removal is still to come.
    stuck = ad.job_status in {_IDLE, _HELD} and ad.num_shadow_starts > 0
    if stuck or (gone and phase is not Phase.UNKNOWN):
        phase = Phase.OVER
    over = phase is Phase.OVER
    cause = _cause(ad) if over else None
    host = ad.remote_host or ad.last_remote_host
    began = ad.job_current_start_executing_date or ad.job_start_date
    return BatchItem(
        key=ad.pilotage_key,
        id=f"{ad.cluster_id}.{ad.proc_id}",
        index=ad.proc_id,
        phase=phase,
        cause=cause,
        exit=ad.exit_code if cause is EndCause.EXITED else None,
        signal=ad.exit_signal if cause is EndCause.SIGNALLED else None,
        words=": ".join(_words(ad)),
        node=host.rpartition("@")[2],
        started=float(began) if began else None,
        ended=float(ad.completion_date or ad.entered_current_status) if over else None,
    )


def _words(ad: JobAd) -> list[str]:
    status = ad.job_status
    state = _STATES[status] if 0 < status < len(_STATES) else f"state {status}"
    held = ad.hold_reason or ad.last_hold_reason
    why = {_IDLE: ad.vacate_reason, _REMOVED: ad.remove_reason, _HELD: held}.get(status, "")
    further = held or ad.vacate_reason if "pilotage:" in why else ""
    return [" ".join(text.split()) for text in (state, why, further) if text]


def _cause(ad: JobAd) -> EndCause:
    """Return why a job is over."""
    if ad.job_status == _COMPLETED:
        if ad.exit_by_signal and ad.exit_signal is not None:
            return EndCause.SIGNALLED
        return EndCause.UNKNOWN if ad.exit_by_signal or ad.exit_code is None else EndCause.EXITED
    before = ad.job_status
    if before == _REMOVED:
        if not _by_policy(ad.remove_reason):
            return EndCause.CANCELLED
        before = ad.last_job_status
    if before == _RUNNING:
        return EndCause.TIMEOUT
    if before == _HELD:
        return _held(ad)
    return EndCause.PREEMPTED if ad.vacate_reason_code in _VACATED else EndCause.NODE


def _by_policy(reason: str) -> bool:
    """Return whether the policy of our description removed it; before 9.0 HTCondor words it so."""
    ours = (_WALL_TIME_REASON, _HELD_REASON, _LOST_REASON)
    return reason in ours or "job attribute PeriodicRemove" in reason


def _held(ad: JobAd) -> EndCause:
    code = ad.hold_reason_code or ad.last_hold_reason_code
    minor = ad.hold_reason_sub_code or ad.last_hold_reason_sub_code
    reason = ad.hold_reason or ad.last_hold_reason
    if minor == _MEMORY_SUBCODE or "memory usage exceeded" in reason:
        return EndCause.MEMORY
    return _HOLDS.get(code, EndCause.NODE)


TOOLS = Tools(
    name="htcondor",
    submitter="condor_submit",
    order=_submit,
    # `12.0 - 12.4`
    answer=re.compile(r"(?P<id>[1-9][0-9]*)\.[0-9]+ - (?P=id)\.[0-9]+", re.ASCII),
    final=re.compile(
        r"""parse\ error|invalid|no\ such\ directory|does\ not\ exist|is\ not\ (a\ )?valid
        |submit_requirement|no\ machine_count|illegal|bad\ |must\ (be|not)|unknown\ universe
        |not\ a\ valid\ attribute|failed\ to\ parse|expects?\ a""",
        re.VERBOSE | re.IGNORECASE,
    ),
    passing=re.compile(
        r"connect|authenticat|timed? ?out|would exceed|max_jobs|secman|can't find address",
        re.IGNORECASE,
    ),
    live=ListCommand("condor_q", ("condor_q", *_WANTED, "-constraint", _OURS), read_live),
    past=_past,
    # A job gets SIGTERM, and time to leave its evidence.
    canceller=("condor_rm",),
    ids=r"[1-9][0-9]*(\.[0-9]+)?",
    gone="not found|marked for removal|already|couldn't find|no result found",
    # It needs no daemon.
    versions=("condor_version",),
)
