"""PBS: PBS Professional, OpenPBS, and Torque, which has the same commands and other options.

Which of them a site has is found out there, at each call: an order carries the options of both.
Listings are JSON in PBS Professional and XML in Torque. `qstat` cannot narrow a full listing to
one user, so `qselect` says first whose jobs there are. One of them may be gone before `qstat` is
asked, which then fails: this is tried again.
"""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any
from xml.etree import ElementTree as ET

import msgspec

from . import words
from .model import BatchCommand, BatchEnd, BatchError, BatchItem, BatchOrder, EndCause, Phase
from .tools import ListCommand, Tools

#: The arguments are the number of words for PBS Professional, these words, and those for Torque.
_SUBMIT = """\
n=$1; shift
if qstat --version 2>&1 | grep -q pbs_version
then i=0; for word do shift; i=$((i+1)); [ "$i" -gt "$n" ] || set -- "$@" "$word"; done
else shift "$n"
fi
exec qsub "$@"
"""
#: `-l=place=excl`, `-P=project`, `-h`, with one or two dashes: two words of `qsub` as one.
_OPTION = re.compile(r"--?(?P<name>[A-Za-z])(=(?P<value>.+))?", re.ASCII)
#: Options that only we may set: names, arrays, outputs, shells, directives, interaction, waiting.
_RESERVED = frozenset("NJtroejSCIXzfdDwxkR")
#: `host:path`; `^array_index^`.
_SPECIAL = re.compile(r"[:^,]")
_RESOURCES = re.compile(r"[\w.=:@-]+", re.ASCII)
_KIBI = 1 << 10

#: Ids have brackets that no shell is to read, and a user may have asked for less to be shown.
_QSTAT = """\
set -f
unset PBS_QSTAT_NO_COMPLETE PBS_QSTAT_EXECONLY
if qstat --version 2>&1 | grep -q pbs_version; then shown='-f -F json'; else shown='-x'; fi
user=$(id -un)
for try in 1 2 3; do
    SELECT
    [ -n "$ids" ] || exit 0
    list=$(qstat ALSO -t $shown $ids) && printf '%s\\n' "$list" && exit 0
    code=$?
done
exit "$code"
"""
_LIVE = _QSTAT.replace("SELECT", 'ids=$(qselect -u "$user") || exit').replace("ALSO ", "")
#: Without a history there is nothing to tell of, and Torque has none.
_PAST = _QSTAT.replace("ALSO", "-x").replace(
    "SELECT",
    """\
[ "$shown" != -x ] || exit 0
    ids=$(qselect -x -u "$user" -s FM -tm.ge."$1" 2>&1) || case $ids in
        *istory*) exit 0;;
        *) printf '%s\\n' "$ids" >&2; exit 1;;
    esac""",
)

_ID = re.compile(r"(?P<job>[0-9]+)(?P<array>\[(?P<index>[0-9]*)\])?(\..*)?", re.ASCII)
_PHASES = {
    "Q": Phase.QUEUED,
    "T": Phase.QUEUED,
    "W": Phase.QUEUED,
    # Of an array: some of it has begun; what has not is not listed by itself.
    "B": Phase.QUEUED,
    "H": Phase.HELD,
    "R": Phase.RUNNING,
    "S": Phase.RUNNING,
    "U": Phase.RUNNING,
    "E": Phase.RUNNING,
    "F": Phase.OVER,
    "X": Phase.OVER,
    "C": Phase.OVER,
}
#: What users put there comes out unescaped in some versions.
_VARIABLES = re.compile(r'^\s*"Variable_List":\{$.*?^\s*\},?$\n?', re.MULTILINE | re.DOTALL)
_COMMA = re.compile(r",(?=\s*\})")

#: Codes below zero are PBS's own, and Torque has others for the same.
_PROFESSIONAL = {
    -26: EndCause.MEMORY,
    -27: EndCause.MEMORY,
    -31: EndCause.MEMORY,
    -28: EndCause.TIMEOUT,
    -29: EndCause.TIMEOUT,
    # More cores than it asked for.
    -24: EndCause.UNKNOWN,
    -25: EndCause.UNKNOWN,
    -17: EndCause.CANCELLED,
    -19: EndCause.CANCELLED,
}
_TORQUE = {-10: EndCause.MEMORY, -11: EndCause.TIMEOUT, -12: EndCause.TIMEOUT}
#: The substate of a job that was cancelled.
_TERMINATED = 91
_KILL, _TERM = 9, 15
#: Codes by which PBS reports a signal: 256 and its number, where a shell says 128 and its number.
_SIGNALS = range(257, 321)

Job = Mapping[str, Any]


# -- orders ----------------------------------------------------------------------------------------


def _submit(order: BatchOrder) -> BatchCommand:
    """Have `qsub` read the script; what makes the job ours comes last among the options."""
    words.refuse(order, "PBS", qos="qualities of service", step="steps")
    if _SPECIAL.search(order.folder):
        raise BatchError(f"{order.folder!r} cannot be used in an option of qsub", final=True)
    if order.constraint and not _RESOURCES.fullmatch(order.constraint):
        raise BatchError(f"constraint: {order.constraint!r} is not a list of resources", final=True)
    if order.reservation and order.queue:
        raise BatchError("a reservation of PBS is a queue: use one of them", final=True)
    extra = [word for one in words.options(order, _OPTION, _RESERVED) for word in one]
    professional = [*_professional(order), *extra, *_identity(order, "-J", ".^array_index^")]
    torque = [*_torque(order), *extra, *_identity(order, "-t", "")]
    # A job begins in the home directory unless it goes elsewhere.
    script = f"#!/bin/sh\ncd {shlex.quote(order.folder)} || exit 1\n{order.script}"
    count = str(len(professional))
    return BatchCommand(("sh", "-c", _SUBMIT, "sh", count, *professional, *torque), input=script)


def _professional(order: BatchOrder) -> Iterator[str]:
    chunk = [f"ncpus={order.tasks * order.cpus}", f"mpiprocs={order.tasks}"]
    if order.memory is not None:
        chunk.append(f"mem={math.ceil(order.memory / _KIBI)}kb")
    if order.gpus:
        chunk.append(f"ngpus={order.gpus}")
    if order.constraint:
        chunk.append(order.constraint)
    yield from ("-l", f"select={order.nodes}:{':'.join(chunk)}")
    yield from _common(order)
    if order.reservation:
        yield from ("-q", order.reservation)


def _torque(order: BatchOrder) -> Iterator[str]:
    node = [f"ppn={order.tasks * order.cpus}"]
    if order.gpus:
        node.append(f"gpus={order.gpus}")
    if order.constraint:
        node.append(order.constraint)
    yield from ("-l", f"nodes={order.nodes}:{':'.join(node)}")
    if order.memory is not None:
        # Here it is of the whole job.
        yield from ("-l", f"mem={math.ceil(order.memory * order.nodes / _KIBI)}kb")
    yield from _common(order)
    if order.reservation:
        yield from ("-W", f"x=advres:{order.reservation}")


def _common(order: BatchOrder) -> Iterator[str]:
    if order.time is not None:
        seconds = math.ceil(order.time)
        clock = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
        yield from ("-l", f"walltime={clock}")
    if order.queue:
        yield from ("-q", order.queue)
    if order.account:
        yield from ("-A", order.account)


def _identity(order: BatchOrder, array: str, number: str) -> Iterator[str]:
    """Return what makes the job ours; the last of two equal options counts."""
    if order.count > 1:
        yield from (array, f"0-{order.count - 1}")
    suffix = number if order.count > 1 else ".0"
    yield from ("-N", order.key)
    yield from ("-r", "n")
    yield from ("-m", "n")
    yield from ("-S", "/bin/sh")
    yield from ("-o", f"{order.folder}/out{suffix}")
    yield from ("-e", f"{order.folder}/err{suffix}")


# -- listings --------------------------------------------------------------------------------------


def _past(since: float) -> ListCommand:
    stamp = f"{datetime.fromtimestamp(max(0.0, since), UTC):%Y%m%d%H%M}"
    return ListCommand("qstat", ("sh", "-c", _PAST, "sh", stamp), read)


def read(text: str) -> list[BatchItem]:
    """Read a listing of either kind; nothing at all is none."""
    if not text.strip():
        return []
    jobs = dict(_xml(text) if text.lstrip().startswith("<") else _json(text))
    ours = {name: job for name, job in jobs.items() if words.is_key(str(job.get("Job_Name")))}
    return [item for name, job in ours.items() for item in _items(name, job, ours)]


def _json(text: str) -> Iterator[tuple[str, Job]]:
    try:
        found: object = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError):
        found = _mended(text)
    if not isinstance(found, dict) or "pbs_version" not in found:
        raise BatchError("qstat: not a listing")
    jobs = found.get("Jobs", {})
    if not isinstance(jobs, dict) or not all(isinstance(job, dict) for job in jobs.values()):
        raise BatchError("qstat: not a list of jobs")
    yield from jobs.items()


def _mended(text: str) -> object:
    """Read JSON without what users put into it."""
    try:
        return msgspec.json.decode(_COMMA.sub("", _VARIABLES.sub("", text)), type=object)
    except (msgspec.DecodeError, UnicodeError) as error:
        raise BatchError(f"qstat: not JSON: {error}") from None


def _xml(text: str) -> Iterator[tuple[str, Job]]:
    for job in words.xml("qstat", text, "Data").iter("Job"):
        yield job.findtext("Job_Id", ""), {part.tag: _part(part) for part in job}


def _part(part: ET.Element) -> object:
    return {inner.tag: inner.text or "" for inner in part} or (part.text or "")


def _items(name: str, job: Job, jobs: Mapping[str, Job]) -> Iterator[BatchItem]:
    place = _ID.fullmatch(name)
    if place is None:
        raise BatchError(f"qstat: {name[:40]!r} is not the id of a job")
    state = str(job.get("job_state", ""))
    phase = _PHASES.get(state, Phase.UNKNOWN)
    if not place["array"]:
        yield _item(name, 0, phase, job)
    elif place["index"]:
        yield _item(name, int(place["index"]), phase, job)
    elif phase in {Phase.QUEUED, Phase.HELD}:
        # What of an array waits may have no entry of its own.
        for index in _remaining(job):
            one = name.replace("[]", f"[{index}]", 1)
            if one not in jobs:
                yield _item(one, index, phase, job)


def _remaining(job: Job) -> list[int]:
    text = str(job.get("array_indices_remaining", "") or "").strip()
    try:
        return [] if text in {"", "-"} else list(words.indices(text))
    except ValueError:
        raise BatchError(f"qstat: {text[:40]!r} are not indices of jobs") from None


def _item(name: str, index: int, phase: Phase, job: Job) -> BatchItem:
    over = phase is Phase.OVER
    why = end(job) if over else BatchEnd()
    host = str(job.get("exec_host", "")).partition("/")[0]
    return BatchItem(
        key=str(job["Job_Name"]),
        id=name,
        index=index,
        phase=phase,
        **why._asdict(),
        words=": ".join(_words(job)),
        node=host,
        started=_time(job, "stime", "start_time") if phase in {Phase.RUNNING, Phase.OVER} else None,
        ended=_time(job, "obittime", "comp_time", "history_timestamp", "mtime") if over else None,
    )


def _words(job: Job) -> Iterator[str]:
    state = str(job.get("job_state", ""))
    hold = str(job.get("Hold_Types", "n")) if state == "H" else "n"
    yield state if hold == "n" else f"{state} ({hold})"
    if comment := " ".join(str(job.get("comment", "")).split()):
        yield comment


def _time(job: Job, *names: str) -> float | None:
    """Read the first time that is set: as a date or in seconds."""
    for name in names:
        value = job.get(name)
        if value is None or value == "":
            continue
        try:
            if isinstance(value, int) or str(value).isdecimal():
                return float(value)
            return words.moment(str(value), words.DATE)
        except (ValueError, OverflowError):
            raise BatchError(f"qstat: {value!r} is no time") from None
    return None


# -- ends ------------------------------------------------------------------------------------------


def end(job: Job) -> BatchEnd:
    """Return why a job is over."""
    torque = job.get("job_state") == "C"
    status = _number(job.get("exit_status" if torque else "Exit_status"))
    cancelled = _number(job.get("substate")) == _TERMINATED
    if status is None:
        return BatchEnd(EndCause.CANCELLED if cancelled else EndCause.UNKNOWN)
    if status < 0:
        return BatchEnd((_TORQUE if torque else _PROFESSIONAL).get(status, EndCause.NODE))
    why = words.ended(status - 128 if status in _SIGNALS else status)
    # A time limit that is enforced by a signal shows in the times.
    if why.signal in {_KILL, _TERM} and _late(job):
        return BatchEnd(EndCause.TIMEOUT)
    return BatchEnd(EndCause.CANCELLED) if cancelled else why


def _number(value: object) -> int | None:
    if value is None or value == "":
        return None
    try:
        return int(str(value))
    except ValueError:
        raise BatchError(f"qstat: {value!r} is no number") from None


def _late(job: Job) -> bool:
    """Return whether a job ran for as long as it was allowed to."""
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


TOOLS = Tools(
    name="pbs",
    submitter="qsub",
    order=_submit,
    # `12.server`, or `12[].server` of an array.
    answer=re.compile(r"(?P<id>[1-9][0-9]*(\[\])?\.[\w.-]+)", re.ASCII),
    final=re.compile(
        r"""unknown\ queue|illegal|invalid|unknown\ resource|not\ authorized|unauthorized
        |access\ denied|bad\ (uid|gid|attribute)|exceeds\ (queue|resource|server)|violates\ queue
        |unknown\ node|usage:|no\ such\ |cannot\ satisfy|bad\ value|must\ be""",
        re.VERBOSE | re.IGNORECASE,
    ),
    passing=re.compile(
        r"connect|timeout|timed out|no permission to submit at|not enabled|is not started"
        r"|would exceed|maximum number of jobs|job limit|try again|temporar|cred",
        re.IGNORECASE,
    ),
    live=ListCommand("qstat", ("sh", "-c", _LIVE), read),
    # Torque keeps what is over in the listing, for a while.
    past=_past,
    # A job gets SIGTERM, and time to leave its evidence.
    canceller=("qdel",),
    ids=r"[1-9][0-9]*(\[[0-9]*\])?(\.[A-Za-z0-9_.-]+)?",
    gone="[Uu]nknown [Jj]ob [Ii]d|has finished|invalid for state of job|Job is being deleted",
    # Some of them say the version as an error.
    versions=("sh", "-c", "exec qstat --version 2>&1"),
    queue=("qstat", "-Q"),
)
