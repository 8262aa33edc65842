"""LSF, from 10.1 on: `bsub`, `bjobs -json` and `bkill`."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from datetime import UTC, datetime

import msgspec

from . import words
from .model import BatchCommand, BatchEnd, BatchError, BatchItem, BatchOrder, EndCause, Phase
from .tools import ListCommand, Tools

_MEBI = 1 << 20
#: `-app=NAME`, `-H`, with one or two dashes: what LSF takes as two words is one.
_OPTION = re.compile(r"--?(?P<name>[A-Za-z]+)(=(?P<value>.+))?", re.ASCII)
#: Options that only we may set, or that would have `bsub` wait or read something else.
_RESERVED = frozenset({
    "J", "Jd", "o", "oo", "e", "eo", "cwd", "rn", "r", "Q", "I", "Ip", "Is", "IS", "K", "i", "is",
    "L", "Zs", "pack", "f", "h", "V", "a",
})  # fmt: skip
#: `%J` and `%I` in paths.
_SPECIAL = re.compile("%")
#: What would end a section of the resource requirement, or start another.
_BRACKETS = re.compile(r"[\[\]{};]")

_FIELDS = (
    "jobid jobindex stat job_name exit_code exit_reason pend_reason exec_host start_time"
    " finish_time"
)
_NOTHING = "No job found"
#: Times have no year, so the site says first what time it is. That there is no job is said as an
#: error, which ends with 255 where a site wants it so.
_BJOBS = f"""\
date +%s
{{ said=$(bjobs -a -o '{_FIELDS}' -json 2>&1 >&3); code=$?; }} 3>&1
case $said in
    *"No "*"job found"*) echo "{_NOTHING}"; exit 0;;
esac
[ -z "$said" ] || printf '%s\\n' "$said" >&2
exit "$code"
"""

_ID = re.compile(r"(?P<job>[0-9]+)(\[(?P<index>[0-9]+)\])?", re.ASCII)
_NAME = re.compile(r"(?P<key>[A-Za-z0-9]+)(\[[0-9]+\])?", re.ASCII)
#: Letters follow: a time that is only expected (`E`), or set by a limit (`L`).
_TIME = re.compile(r"(?P<text>[A-Z][a-z]{2} +\d+ +\d+:\d+(:\d+)?( +\d{4})?)( +[A-Z])?", re.ASCII)
_FORMS = ("%b %d %H:%M:%S %Y", "%b %d %H:%M %Y")
_DAY = 86400.0

_PHASES = {
    "PEND": Phase.QUEUED,
    "PROV": Phase.QUEUED,
    "WAIT": Phase.QUEUED,
    "FWD_PEND": Phase.QUEUED,
    "PSUSP": Phase.HELD,
    "RUN": Phase.RUNNING,
    "SSUSP": Phase.RUNNING,
    "USUSP": Phase.RUNNING,
    "DONE": Phase.OVER,
    "EXIT": Phase.OVER,
}
#: First words of reasons, as LSF logs them; what is not here and begins so is the node's fault.
_REASONS = {
    "TERM_RUNLIMIT": EndCause.TIMEOUT,
    "TERM_DEADLINE": EndCause.TIMEOUT,
    "TERM_WINDOW": EndCause.TIMEOUT,
    "TERM_CPULIMIT": EndCause.TIMEOUT,
    "TERM_MEMLIMIT": EndCause.MEMORY,
    "TERM_SWAP": EndCause.MEMORY,
    "TERM_OWNER": EndCause.CANCELLED,
    "TERM_FORCE_OWNER": EndCause.CANCELLED,
    "TERM_ADMIN": EndCause.CANCELLED,
    "TERM_FORCE_ADMIN": EndCause.CANCELLED,
    "TERM_BUCKET_KILL": EndCause.CANCELLED,
    "TERM_PREEMPT": EndCause.PREEMPTED,
    "TERM_LOAD": EndCause.PREEMPTED,
    "TERM_RC_RECLAIM": EndCause.PREEMPTED,
}
#: Reasons that say no more than the code does.
_PLAIN = frozenset({"", "TERM_UNKNOWN", "TERM_EXTERNAL_SIGNAL", "TERM_PROCESSLIMIT"})


# -- orders ----------------------------------------------------------------------------------------


def _submit(order: BatchOrder) -> BatchCommand:
    """Have `bsub` read the script; what makes the job ours comes last among the options."""
    words.refuse(order, "LSF", step="steps")
    if _SPECIAL.search(order.folder):
        raise BatchError(f"{order.folder!r} cannot be used in an option of bsub", final=True)
    if _BRACKETS.search(order.constraint):
        raise BatchError(f"constraint: {order.constraint!r} is not a selection", final=True)
    extra = (word for one in words.options(order, _OPTION, _RESERVED) for word in one)
    return BatchCommand(("bsub", *_resources(order), *extra, *_identity(order)), input=order.script)


def _resources(order: BatchOrder) -> Iterator[str]:
    node = order.tasks * order.cpus
    yield from ("-n", str(order.nodes * node))
    yield from ("-R", f"span[ptile={node}]" if order.nodes > 1 else "span[hosts=1]")
    if order.memory is not None:
        amount = f"{math.ceil(order.memory / _MEBI)}MB"
        yield from ("-M", amount)
        yield from ("-R", f"rusage[mem={amount}/host]")
    if order.gpus:
        yield from ("-gpu", f"num={order.gpus}")
    if order.time is not None:
        yield from ("-W", str(math.ceil(order.time / 60)))
    if order.constraint:
        yield from ("-R", f"select[{order.constraint}]")
    named = (("-q", order.queue), ("-P", order.account), ("-sla", order.qos))
    for option, value in (*named, ("-U", order.reservation)):
        if value:
            yield from (option, value)


def _identity(order: BatchOrder) -> Iterator[str]:
    number = "%I" if order.count > 1 else "0"
    span = f"[1-{order.count}]" if order.count > 1 else ""
    yield from ("-J", order.key + span)
    yield "-rn"
    yield from ("-cwd", order.folder)
    yield from ("-o", f"{order.folder}/out.{number}")
    yield from ("-e", f"{order.folder}/err.{number}")


# -- listings --------------------------------------------------------------------------------------


class LsfJob(msgspec.Struct, frozen=True, rename="upper"):
    """The fields that we read of a job; missing ones are empty."""

    jobid: str = ""
    jobindex: str = ""
    stat: str = ""
    job_name: str = ""
    exit_code: str = ""
    exit_reason: str = ""
    pend_reason: str = ""
    exec_host: str = ""
    start_time: str = ""
    finish_time: str = ""
    error: str = ""


class _Listing(msgspec.Struct, frozen=True, rename="upper"):
    command: str
    jobs: int
    records: list[LsfJob]


def read(text: str) -> list[BatchItem]:
    """Read a listing; it says how many jobs it has."""
    now, _, rest = text.partition("\n")
    if not now.isdecimal() or len(now) > 11:
        raise BatchError(f"bjobs: {now[:100]!r} is no time")
    if rest.strip() == _NOTHING:
        return []
    try:
        found = msgspec.json.decode(rest.replace(f"\n{_NOTHING}", ""), type=_Listing, strict=False)
    except (msgspec.DecodeError, UnicodeError) as error:
        raise BatchError(f"bjobs: not a listing: {error}") from None
    if found.command != "bjobs" or found.jobs != len(found.records):
        raise BatchError(f"bjobs: {len(found.records)} of {found.jobs} jobs are there")
    return [
        _item(record, key, float(now))
        for record in found.records
        if not record.error and (key := _key(record.job_name))
    ]


def _key(name: str) -> str:
    found = _NAME.fullmatch(name)
    return found["key"] if found and words.is_key(found["key"]) else ""


def _item(record: LsfJob, key: str, now: float) -> BatchItem:
    place = _ID.fullmatch(record.jobid)
    index = (place["index"] if place else None) or record.jobindex or "0"
    if place is None or not index.isdecimal():
        raise BatchError(f"bjobs: {record.jobid!r} is not the id of a job")
    number = int(index)
    phase = _PHASES.get(record.stat, Phase.UNKNOWN)
    over = phase is Phase.OVER
    why = _end(record) if over else BatchEnd()
    reason = record.exit_reason if over else record.pend_reason
    return BatchItem(
        key=key,
        id=f"{place['job']}[{number}]" if number else place["job"],
        index=max(0, number - 1),
        phase=phase,
        **why._asdict(),
        words=": ".join(text for text in (record.stat, " ".join(reason.split())) if text),
        node=record.exec_host.partition(":")[0].rpartition("*")[2],
        started=_time(record.start_time, now) if phase in {Phase.RUNNING, Phase.OVER} else None,
        ended=_time(record.finish_time, now) if over else None,
    )


def _end(record: LsfJob) -> BatchEnd:
    """Return why a job is over."""
    if record.stat == "DONE":
        return BatchEnd(EndCause.EXITED, exit=0)
    word = record.exit_reason.partition(":")[0].strip().upper()
    if word in _REASONS:
        return BatchEnd(_REASONS[word])
    if word.startswith("TERM_") and word not in _PLAIN:
        return BatchEnd(EndCause.NODE)
    if not record.exit_code.isdecimal():
        return BatchEnd(EndCause.UNKNOWN)
    return words.ended(int(record.exit_code))


def _time(text: str, now: float) -> float | None:
    """Read a time; one without a year is the last such one before tomorrow."""
    found = _TIME.fullmatch(text.strip())
    if found is None:
        if text.strip() in {"", "-"}:
            return None
        raise BatchError(f"bjobs: {text[:40]!r} is no time")
    year = datetime.fromtimestamp(now, UTC).year
    written = " ".join(found["text"].split())
    texts = [written] if found[3] else [f"{written} {year}", f"{written} {year - 1}"]
    for one in texts:
        try:
            moment = words.moment(one, *_FORMS)
        except ValueError:
            continue
        if found[3] or moment < now + _DAY:
            return moment
    return None


TOOLS = Tools(
    name="lsf",
    submitter="bsub",
    order=_submit,
    # Other lines may come before: `Cannot connect to LSF. Please wait ...`
    answer=re.compile(
        r"(.*?\n)??Job <(?P<id>[1-9][0-9]*)> is submitted to .*", re.DOTALL | re.ASCII
    ),
    final=re.compile(
        r"""no\ such\ |bad\ |illegal|unknown|invalid|cannot\ use\ (the\ )?queue|not\ permitted
        |undefined|too\ (many|few|large)|exceeds|request\ aborted\ by\ esub
        |is\ not\ a\ (valid|legal)|cannot\ run|user\ permission\ denied|not\ defined""",
        re.VERBOSE | re.IGNORECASE,
    ),
    passing=re.compile(
        r"cannot connect|is down|not responding|try later|retrying|busy|threshold|timed out"
        r"|communication|failed in an lsf library|closed|license|limit (is|has been) reached",
        re.IGNORECASE,
    ),
    # What ended within the hour, or within what the site keeps, is in the listing. There is no
    # history beside it: `bhist` reads whole logs.
    live=ListCommand("bjobs", ("sh", "-c", _BJOBS), read),
    # A job gets SIGINT and SIGTERM, and time to leave its evidence.
    canceller=("bkill",),
    ids=r"[1-9][0-9]*(\[[1-9][0-9]*\])?",
    gone="already finished|No matching job|is not found|is being terminated|No unfinished job",
    # It is said as an error.
    versions=("sh", "-c", "exec bsub -V 2>&1"),
    queue=("bqueues",),
)
