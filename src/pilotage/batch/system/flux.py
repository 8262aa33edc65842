"""Flux, from 0.50 on: `flux submit`, `flux batch`, `flux jobs --json` and `flux cancel`.

It has no arrays, and does not know memory: an order's is not kept. The text of an order's script
must be in its folder before, as `script.sh`. A listing leaves out what is empty or not yet known.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any

import msgspec

from . import words
from .model import BatchCommand, BatchEnd, BatchError, BatchItem, BatchOrder, EndCause, Phase
from .tools import ListCommand, Tools

_OPTION = re.compile(r"--(?P<name>[a-z][a-z-]*)(=.+)?", re.ASCII)
#: Options that only we may set, that make more jobs of one, or that wait.
_RESERVED = frozenset({
    "job-name", "cwd", "output", "error", "input", "cc", "bcc", "wait", "watch", "log", "quiet",
    "log-stderr", "dry-run", "wrap", "flags", "progress", "jps", "define", "sep", "shuffle",
})  # fmt: skip
#: `{cc}` and `{{id}}` in paths.
_SPECIAL = re.compile(r"[{}]")

#: `flux jobs` stops at a thousand by default.
_COUNT = "--count=1000000"
#: How long what ended is in a listing, in seconds.
_RECENT = 3600
#: Times are given as an age: a number alone might be read as a date.
_PAST = f'exec flux jobs --json {_COUNT} "--since=-$(($(date +%s) - $1))s"'
_LIVE = ("flux", "jobs", "--json", _COUNT, f"--since=-{_RECENT}s")

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

_BASE58 = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"


# -- orders ----------------------------------------------------------------------------------------


def _submit(order: BatchOrder) -> BatchCommand:
    """Run the script on one node by itself, on several in an instance of Flux.

    What makes the job ours comes last, as the last of two equal options counts.
    """
    words.refuse(
        order,
        "Flux",
        count="arrays",
        qos="qualities of service",
        reservation="reservations",
        step="steps",
    )
    if _SPECIAL.search(order.folder):
        raise BatchError(f"{order.folder!r} cannot be used in an option of flux", final=True)
    script = f"{order.folder}/script.sh"
    common = (*_common(order), *_extra(order), *_identity(order))
    if order.nodes > 1:
        return BatchCommand(("flux", "batch", *_spread(order), *common, script))
    return BatchCommand(("flux", "submit", *_single(order), *common, "/bin/sh", script))


def _single(order: BatchOrder) -> Iterator[str]:
    """Ask for one process that has all the cores."""
    yield "--ntasks=1"
    yield f"--cores-per-task={order.tasks * order.cpus}"
    if order.gpus:
        yield f"--gpus-per-task={order.gpus}"


def _spread(order: BatchOrder) -> Iterator[str]:
    """Ask for an instance with a slot on each node; the script runs once, on the first."""
    yield f"--nodes={order.nodes}"
    yield f"--nslots={order.nodes}"
    yield f"--cores-per-slot={order.tasks * order.cpus}"
    if order.gpus:
        yield f"--gpus-per-slot={order.gpus}"


def _common(order: BatchOrder) -> Iterator[str]:
    if order.time is not None:
        yield f"--time-limit={math.ceil(order.time)}s"
    if order.queue:
        yield f"--queue={order.queue}"
    if order.account:
        yield f"--setattr=system.bank={order.account}"
    if order.constraint:
        yield f"--requires={order.constraint}"


def _extra(order: BatchOrder) -> Iterator[str]:
    for option in order.extra:
        found = _OPTION.fullmatch(option)
        if found is None or found["name"] in _RESERVED:
            raise BatchError(f"extra: {option!r} is not an allowed option", final=True)
        yield option


def _identity(order: BatchOrder) -> Iterator[str]:
    yield f"--job-name={order.key}"
    yield f"--cwd={order.folder}"
    yield f"--output={order.folder}/out.0"
    yield f"--error={order.folder}/err.0"


# -- listings --------------------------------------------------------------------------------------


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


def _past(since: float) -> ListCommand:
    return ListCommand("flux jobs", ("sh", "-c", _PAST, "sh", str(max(0, int(since)))), read)


def read(text: str) -> list[BatchItem]:
    """Read a listing."""
    try:
        found = msgspec.json.decode(text, type=_Jobs)
    except (msgspec.DecodeError, UnicodeError) as error:
        raise BatchError(f"flux jobs: not a listing: {error}") from None
    return [_item(job) for job in found.jobs if words.is_key(job.name)]


def _item(job: _Job) -> BatchItem:
    phase = _PHASES.get(job.state, Phase.UNKNOWN)
    if phase is Phase.QUEUED and job.urgency == _HELD:
        phase = Phase.HELD
    over = phase is Phase.OVER
    why = _end(job) if over else BatchEnd()
    return BatchItem(
        key=job.name,
        id=str(job.id),
        phase=phase,
        **why._asdict(),
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


def _end(job: _Job) -> BatchEnd:
    """Return why a job is over; a negative code stands for a signal, too."""
    fatal = job.exception.occurred and job.exception.severity == _FATAL
    if job.result == "TIMEOUT" or (fatal and job.exception.type == "timeout"):
        return BatchEnd(EndCause.TIMEOUT)
    if fatal:
        return BatchEnd(_raised(job.exception))
    if job.result == "CANCELED":
        return BatchEnd(EndCause.CANCELLED)
    code = job.returncode
    if not isinstance(code, int):
        return BatchEnd(EndCause.UNKNOWN)
    return words.ended(128 - code if -65 < code < 0 else code)


def _raised(exception: _Exception) -> EndCause:
    """Return the cause that an exception stands for."""
    note = exception.note.lower()
    if "preempt" in note:
        return EndCause.PREEMPTED
    if exception.type == "cancel":
        return EndCause.CANCELLED
    if "out of memory" in note or "oom" in note.split():
        return EndCause.MEMORY
    return EndCause.NODE


def _decimal(text: str) -> str:
    """Return an id as the number that listings have; in base 58 it has a letter before it."""
    if text.isdecimal():
        return text
    number = 0
    for letter in text[1:]:
        number = number * len(_BASE58) + _BASE58.index(letter)
    return str(number)


TOOLS = Tools(
    name="flux",
    arrays=False,
    submitter="flux",
    order=_submit,
    # In base 58, with a letter before that a plain locale writes as `f`, or as a number.
    answer=re.compile(rf"(?P<id>[ƒf][{_BASE58}]{{1,11}}|[1-9][0-9]{{0,19}})"),
    identify=_decimal,
    final=re.compile(
        r"""invalid|unsatisfiable|unrecognized|unknown|not\ (allowed|permitted|configured)|exceeds
        |no\ queues?|does\ not\ exist|must\ be|expected|rejected""",
        re.VERBOSE | re.IGNORECASE,
    ),
    passing=re.compile(
        r"unable to connect|connection|timed out|submission is disabled|max(imum)?.*(jobs|limit)"
        r"|temporar|broken pipe|host is down|ENOSYS|not implemented",
        re.IGNORECASE,
    ),
    live=ListCommand("flux jobs", _LIVE, read),
    past=_past,
    # A job gets SIGTERM, and time to leave its evidence.
    canceller=("flux", "cancel"),
    ids=r"[1-9][0-9]*",
    gone="inactive|[Uu]nknown job|not found|No such",
    versions=("flux", "version"),
)
