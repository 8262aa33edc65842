"""What `qstat` lists: JSON of PBS Professional, XML of Torque.

`qstat` cannot narrow a full listing to one user, so `qselect` says first whose jobs there are. One
of them may be gone before `qstat` is asked, which then fails: this is tried again.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any
from xml.etree import ElementTree as ET

import msgspec

from pilotage.batch.system import spans, whole, words
from pilotage.batch.system.model import BatchError, Call, Cause, Item, Phase

from . import ends

#: Ids have brackets that no shell is to read, and a user may have asked for less to be shown.
_SHELL = """\
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
_LIVE = 'ids=$(qselect -u "$user") || exit'
#: Without a history there is nothing to tell of, and Torque has none.
_PAST = """\
[ "$shown" != -x ] || exit 0
    ids=$(qselect -x -u "$user" -s FM -tm.ge."$1" 2>&1) || case $ids in
        *istory*) exit 0;;
        *) printf '%s\\n' "$ids" >&2; exit 1;;
    esac"""
LIVE = whole.asked("sh", "-c", _SHELL.replace("SELECT", _LIVE).replace("ALSO ", ""))

_ID = re.compile(r"(?P<job>[0-9]+)(?P<array>\[(?P<index>[0-9]*)\])?(\..*)?", re.ASCII)
_STATES = {
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
_TIME = "%a %b %d %H:%M:%S %Y"
_COMMA = re.compile(r",(?=\s*\})")

Job = Mapping[str, Any]


def past(since: float) -> Call:
    """Ask for what ended since then."""
    stamp = f"{datetime.fromtimestamp(max(0.0, since), UTC):%Y%m%d%H%M}"
    text = _SHELL.replace("SELECT", _PAST).replace("ALSO", "-x")
    return whole.asked("sh", "-c", text, "sh", stamp)


def read(text: str) -> list[Item]:
    """Read a listing of either kind; nothing at all is none."""
    if not text.strip():
        return []
    jobs = dict(_torque(text) if text.lstrip().startswith("<") else _professional(text))
    ours = {name: job for name, job in jobs.items() if words.is_key(str(job.get("Job_Name")))}
    return [item for name, job in ours.items() for item in _items(name, job, ours)]


def _professional(text: str) -> Iterator[tuple[str, Job]]:
    try:
        found: object = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError):
        found = _mended(text)
    if not isinstance(found, dict) or "pbs_version" not in found:
        raise BatchError("qstat: this is no listing")
    jobs = found.get("Jobs", {})
    if not isinstance(jobs, dict) or not all(isinstance(job, dict) for job in jobs.values()):
        raise BatchError("qstat: these are no jobs")
    yield from jobs.items()


def _mended(text: str) -> object:
    """Read JSON without what users put into it."""
    try:
        return msgspec.json.decode(_COMMA.sub("", _VARIABLES.sub("", text)), type=object)
    except (msgspec.DecodeError, UnicodeError) as error:
        raise BatchError(f"qstat: this is no JSON: {error}") from None


def _torque(text: str) -> Iterator[tuple[str, Job]]:
    try:
        tree = ET.fromstring(text)  # noqa: S314 - of the scheduler, and it has no entities
    except (ET.ParseError, ValueError) as error:
        raise BatchError(f"qstat: this is no XML: {error}") from None
    if tree.tag != "Data":
        raise BatchError(f"qstat: this is no listing but {tree.tag!r}")
    for job in tree.iter("Job"):
        yield job.findtext("Job_Id", ""), {part.tag: _part(part) for part in job}


def _part(part: ET.Element) -> object:
    return {inner.tag: inner.text or "" for inner in part} or (part.text or "")


def _items(name: str, job: Job, jobs: Mapping[str, Job]) -> Iterator[Item]:
    place = _ID.fullmatch(name)
    if place is None:
        raise BatchError(f"qstat: {name[:40]!r} is no id of a job")
    state = str(job.get("job_state", ""))
    phase = _STATES.get(state, Phase.UNKNOWN)
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
        return [] if text in {"", "-"} else list(spans.expand(text))
    except ValueError:
        raise BatchError(f"qstat: {text[:40]!r} are no numbers of jobs") from None


def _item(name: str, index: int, phase: Phase, job: Job) -> Item:
    over = phase is Phase.OVER
    why = ends.end(job) if over else ends.End(None)
    host = str(job.get("exec_host", "")).partition("/")[0]
    return Item(
        key=str(job["Job_Name"]),
        id=name,
        index=index,
        phase=phase,
        cause=why.cause,
        exit=why.exit if why.cause is Cause.EXITED else None,
        signal=why.signal if why.cause is Cause.SIGNALLED else None,
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
    """Read the first time that is there: in words or in seconds."""
    for name in names:
        value = job.get(name)
        if value is None or value == "":
            continue
        try:
            if isinstance(value, int) or str(value).isdecimal():
                return float(value)
            return datetime.strptime(str(value), _TIME).replace(tzinfo=UTC).timestamp()
        except (ValueError, OverflowError):
            raise BatchError(f"qstat: {value!r} is no time") from None
    return None
