"""What `bjobs -json` lists."""

from __future__ import annotations

import re
from datetime import UTC, datetime

import msgspec

from pilotage.batch.system import whole, words
from pilotage.batch.system.model import BatchError, Cause, Item, Phase

_FIELDS = (
    "jobid jobindex stat job_name exit_code exit_reason pend_reason exec_host start_time"
    " finish_time"
)
_NOTHING = "No job found"
#: Times have no year, so the site says first what time it is. That there is no job is said as an
#: error, which ends with 255 where a site wants it so.
_SHELL = f"""\
date +%s
{{ said=$(bjobs -a -o '{_FIELDS}' -json 2>&1 >&3); code=$?; }} 3>&1
case $said in
    *"No "*"job found"*) echo "{_NOTHING}"; exit 0;;
esac
[ -z "$said" ] || printf '%s\\n' "$said" >&2
exit "$code"
"""
BJOBS = whole.asked("sh", "-c", _SHELL)

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
    "TERM_RUNLIMIT": Cause.TIMEOUT,
    "TERM_DEADLINE": Cause.TIMEOUT,
    "TERM_WINDOW": Cause.TIMEOUT,
    "TERM_CPULIMIT": Cause.TIMEOUT,
    "TERM_MEMLIMIT": Cause.MEMORY,
    "TERM_SWAP": Cause.MEMORY,
    "TERM_OWNER": Cause.CANCELLED,
    "TERM_FORCE_OWNER": Cause.CANCELLED,
    "TERM_ADMIN": Cause.CANCELLED,
    "TERM_FORCE_ADMIN": Cause.CANCELLED,
    "TERM_BUCKET_KILL": Cause.CANCELLED,
    "TERM_PREEMPT": Cause.PREEMPTED,
    "TERM_LOAD": Cause.PREEMPTED,
    "TERM_RC_RECLAIM": Cause.PREEMPTED,
}
#: Reasons that say no more than the code does.
_PLAIN = frozenset({"", "TERM_UNKNOWN", "TERM_EXTERNAL_SIGNAL", "TERM_PROCESSLIMIT"})
_SIGNALS = range(129, 193)


class Record(msgspec.Struct, frozen=True, rename="upper"):
    """What we ask of a job; what it does not have is empty."""

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
    records: list[Record]


def read(text: str) -> list[Item]:
    """Read a listing; it says how many jobs it has."""
    now, _, rest = text.partition("\n")
    if not now.isdecimal() or len(now) > 11:
        raise BatchError(f"bjobs: {now[:100]!r} is no time")
    if rest.strip() == _NOTHING:
        return []
    try:
        found = msgspec.json.decode(rest.replace(f"\n{_NOTHING}", ""), type=_Listing, strict=False)
    except (msgspec.DecodeError, UnicodeError) as error:
        raise BatchError(f"bjobs: this is no listing: {error}") from None
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


def _item(record: Record, key: str, now: float) -> Item:
    place = _ID.fullmatch(record.jobid)
    index = (place["index"] if place else None) or record.jobindex or "0"
    if place is None or not index.isdecimal():
        raise BatchError(f"bjobs: {record.jobid!r} is no id of a job")
    number = int(index)
    phase = _PHASES.get(record.stat, Phase.UNKNOWN)
    over = phase is Phase.OVER
    cause, code = _end(record) if over else (None, None)
    reason = record.exit_reason if over else record.pend_reason
    return Item(
        key=key,
        id=f"{place['job']}[{number}]" if number else place["job"],
        index=max(0, number - 1),
        phase=phase,
        cause=cause,
        exit=code if cause is Cause.EXITED else None,
        signal=code - 128 if cause is Cause.SIGNALLED and code else None,
        words=": ".join(text for text in (record.stat, " ".join(reason.split())) if text),
        node=record.exec_host.partition(":")[0].rpartition("*")[2],
        started=_time(record.start_time, now) if phase in {Phase.RUNNING, Phase.OVER} else None,
        ended=_time(record.finish_time, now) if over else None,
    )


def _end(record: Record) -> tuple[Cause, int | None]:
    """Say why a job is over, and by which code."""
    if record.stat == "DONE":
        return Cause.EXITED, 0
    word = record.exit_reason.partition(":")[0].strip().upper()
    if word in _REASONS:
        return _REASONS[word], None
    if word.startswith("TERM_") and word not in _PLAIN:
        return Cause.NODE, None
    if not record.exit_code.isdecimal():
        return Cause.UNKNOWN, None
    code = int(record.exit_code)
    return (Cause.SIGNALLED if code in _SIGNALS else Cause.EXITED), code


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
        moment = _moment(one)
        if moment is not None and (found[3] or moment < now + _DAY):
            return moment
    return None


def _moment(text: str) -> float | None:
    for form in _FORMS:
        try:
            return datetime.strptime(text, form).replace(tzinfo=UTC).timestamp()
        except ValueError:
            continue
    return None
