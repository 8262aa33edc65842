"""Grid Engine (Son of, Univa, Altair, Open): `qsub`, `qstat -xml`, `qacct` and `qdel`.

Only the signal that a job ended by tells that it was cancelled; one that was cancelled while it
waited leaves no trace. `qacct` also has a record of a start that failed, though the job waits on:
such ones say nothing. It reads its file from the beginning each time, so that only what we need of
our own jobs is passed on.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from xml.etree import ElementTree as ET

from . import words
from .model import BatchCommand, BatchEnd, BatchError, BatchItem, BatchOrder, EndCause, Phase
from .tools import ListCommand, Tools

#: `-pe=NAME`, `-l=big=1`, `-h`, with one or two dashes: what Grid Engine takes as two words is one.
_OPTION = re.compile(r"--?(?P<name>[A-Za-z_]+)(=(?P<value>.+))?", re.ASCII)
#: Options that only we may set, or that would have `qsub` take its input for something else.
_RESERVED = frozenset({
    "N", "t", "terse", "r", "wd", "cwd", "o", "e", "j", "S", "sync", "now", "b", "shell", "C",
    "clear", "verify", "cmd", "notify", "i", "pty", "xd", "jsv",
})  # fmt: skip
#: What is read into paths: `host:path`, `$TASK_ID`, lists.
_SPECIAL = re.compile(r"[$:,]")
#: The usual name of an environment whose slots are all on one node.
_ONE_NODE = "smp"

#: Grid Engine runs a job again that ends with 99, whatever `-r` says, and puts one that ends with
#: 100 on hold. SIGUSR2 comes before SIGKILL, and to all processes: what the script runs hears it.
_SCRIPT = """\
#!/bin/sh
trap : USR1 USR2 XCPU
(
{script}
)
code=$?
case $code in 99|100) code=1;; esac
exit "$code"
"""

#: How many jobs are asked for the reasons of errors: `qstat -j` costs much.
_MOST = 20
#: Only jobs in error have a reason, and only `qstat -j` says it.
_QSTAT = f"""\
list=$(qstat -xml -s prs) || exit
printf '%s\\n' "$list"
bad=$(printf '%s\\n' "$list" | awk -F '[<>]' '
    $2 == "JB_job_number" {{ job = $3 }}
    $2 == "state" && $3 ~ /E/ {{ print job }}' | sort -u | head -n {_MOST} | paste -s -d , -)
[ -z "$bad" ] || qstat -j "$bad" | grep -E '^(job_number|error reason) *' || true
"""

_JOB = re.compile(r"job_number: +(?P<job>[0-9]+)")
_REASON = re.compile(r"error reason +(?P<task>[0-9]+): +(?P<why>.*)")
#: Letters of states: deleted, error, held, queued, running, restarted, suspended in four ways,
#: transferred, waiting.
_LETTERS = frozenset("dEhqrRsSTNPtw")

#: `qacct` selects by the time of the start; no job runs longer than this.
_LONGEST_S = 31 * 86400
_FAILED = "qacct ended with"
#: There is no file as long as no job has ended.
_NOTHING = "no jobs running since startup"
_QACCT = f"""\
{{ qacct -j -b "$1" 2>&1 || echo "{_FAILED} $?"; }} | awk '
function show() {{ if (ours) printf "%s", record; record = ""; ours = 0 }}
/^=====/ {{ show() }}
/^jobname / {{ ours = length($2) == 15 }}
/^(=====|jobname|jobnumber|taskid|hostname|start_time|end_time|failed|exit_status)/ {{
    record = record $0 "\\n" }}
/^(ru_wallclock|category|maxvmem) / {{ record = record $0 "\\n" }}
/^{_FAILED}|since startup/ {{ last = last $0 "\\n" }}
END {{ show(); printf "%s", last }}'
"""
#: Milliseconds follow in some versions, a month of numbers comes first in others.
_TIMES = (words.DATE, "%m/%d/%Y %H:%M:%S.%f", "%m/%d/%Y %H:%M:%S")
_LIMIT = re.compile(r"h_rt=(?P<seconds>[0-9]+)")
_WALL = re.compile(r"(?P<seconds>[0-9]+)(\.[0-9]+)?s?")

#: Codes of `failed`. What failed before the job began is tried again or held.
_BEFORE = frozenset({*range(1, 12), *range(26, 30), *range(31, 37), 38})
#: It migrates, or is to be run again.
_AGAIN = frozenset({24, 25})
_LIMITED = 37
_AFTER = frozenset({0, *range(12, 18), 30, 100})
#: SIGUSR2, which `-notify` sends to a job that is cancelled, before SIGKILL.
_NOTIFIED = 140


# -- orders ----------------------------------------------------------------------------------------


def _submit(order: BatchOrder) -> BatchCommand:
    """Have `qsub` read the script; what makes the job ours comes last among the options."""
    words.refuse(order, "Grid Engine", qos="qualities of service", step="steps")
    if _SPECIAL.search(order.folder):
        raise BatchError(f"{order.folder!r} cannot be used in an option of qsub", final=True)
    given = list(words.options(order, _OPTION, _RESERVED))
    environment = {one[0]: one[1] for one in given if len(one) == 2}.get("-pe")
    extra = [word for one in given if one[0] != "-pe" for word in one]
    argv = ("qsub", "-terse", *_resources(order, environment), *extra, *_identity(order))
    return BatchCommand(argv, input=_SCRIPT.format(script=order.script.rstrip("\n")))


def _resources(order: BatchOrder, environment: str | None) -> Iterator[str]:
    slots = order.nodes * order.tasks * order.cpus
    if order.nodes > 1 and environment is None:
        message = "Grid Engine needs a parallel environment for several nodes: extra = ['-pe=NAME']"
        raise BatchError(message, final=True)
    if slots > 1 or environment is not None:
        yield from ("-pe", environment or _ONE_NODE, str(slots))
    if order.time is not None:
        yield from ("-l", f"h_rt={math.ceil(order.time)}")
    if order.memory is not None:
        # It is counted for each slot.
        yield from ("-l", f"h_vmem={math.ceil(order.memory * order.nodes / slots)}")
    if order.gpus:
        yield from ("-l", f"gpu={order.gpus}")
    named = (("-q", order.queue), ("-P", order.account), ("-l", order.constraint))
    for option, value in (*named, ("-ar", order.reservation)):
        if value:
            yield from (option, value)


def _identity(order: BatchOrder) -> Iterator[str]:
    number = "$TASK_ID" if order.count > 1 else "0"
    if order.count > 1:
        yield from ("-t", f"1-{order.count}")
    yield from ("-N", order.key)
    yield from ("-r", "n")
    yield "-notify"
    yield from ("-m", "n")
    yield from ("-j", "n")
    yield from ("-S", "/bin/sh")
    yield from ("-wd", order.folder)
    yield from ("-o", f"{order.folder}/out.{number}")
    yield from ("-e", f"{order.folder}/err.{number}")


# -- what waits and runs ---------------------------------------------------------------------------


def read(text: str) -> list[BatchItem]:
    """Read the list, then reasons."""
    body, end, rest = text.partition("</job_info>\n</job_info>")
    reasons = dict(_reasons(rest))
    tree = words.xml("qstat", body + end, "job_info")
    return [item for job in tree.iter("job_list") for item in _items(job, reasons)]


def phase(state: str) -> Phase:
    """Return what the letters of a state mean together."""
    letters = set(state)
    if not letters or not letters <= _LETTERS:
        return Phase.UNKNOWN
    if "E" in letters:
        return Phase.HELD
    if "d" in letters or letters & set("rtsSTNP"):
        return Phase.RUNNING
    return Phase.HELD if "h" in letters else Phase.QUEUED


def _reasons(text: str) -> Iterator[tuple[tuple[str, int], str]]:
    job = ""
    for line in text.splitlines():
        if found := _JOB.fullmatch(line):
            job = found["job"]
        elif found := _REASON.fullmatch(line):
            yield (job, int(found["task"])), found["why"].strip()


def _items(job: ET.Element, reasons: dict[tuple[str, int], str]) -> Iterator[BatchItem]:
    key, number, state = (job.findtext(tag, "") for tag in ("JB_name", "JB_job_number", "state"))
    if not words.is_key(key):
        return
    tasks = job.findtext("tasks", "")
    try:
        if not number.isdecimal():
            raise ValueError(number)
        numbers = list(words.indices(tasks)) if tasks else [0]
        start = job.findtext("JAT_start_time", "")
        began = datetime.fromisoformat(start).replace(tzinfo=UTC).timestamp() if start else None
    except (ValueError, OverflowError):
        raise BatchError(f"qstat: job {number[:40]!r} is not understood") from None
    now = phase(state)
    for task in numbers:
        # A job that is no array is task 1 of itself.
        why = reasons.get((number, task or 1), "")
        yield BatchItem(
            key=key,
            id=f"{number}.{task}" if tasks else number,
            index=max(0, task - 1),
            phase=now,
            words=": ".join(text for text in (state, why) if text),
            node=job.findtext("queue_name", "").rpartition("@")[2],
            started=began if now is Phase.RUNNING else None,
        )


# -- what ended ------------------------------------------------------------------------------------


def _past(since: float) -> ListCommand:
    start = datetime.fromtimestamp(max(0.0, since - _LONGEST_S), UTC)
    return ListCommand("qacct", ("sh", "-c", _QACCT, "sh", f"{start:%Y%m%d%H%M}"), read_past)


def read_past(text: str) -> list[BatchItem]:
    """Read records; each has a line for each field."""
    if _NOTHING in text:
        return []
    if _FAILED in text:
        raise BatchError(f"qacct: {text[-300:]!r}")
    first, *records = re.split(r"^=+\n", text, flags=re.MULTILINE)
    if first.strip():
        raise BatchError(f"qacct: {first[:200]!r} is no record")
    return [item for record in records for item in _record(record)]


def _record(record: str) -> Iterator[BatchItem]:
    lines = (line.partition(" ") for line in record.splitlines())
    fields = {name: value.strip() for name, _, value in lines}
    try:
        key, job, task = (fields[name] for name in ("jobname", "jobnumber", "taskid"))
        failed = int(fields["failed"].partition(":")[0])
        status = int(fields["exit_status"].partition(" ")[0])
        began, ended = (
            None if fields[name] == "-/-" else words.moment(fields[name], *_TIMES)
            for name in ("start_time", "end_time")
        )
        number = 0 if task == "undefined" else int(task)
    except (KeyError, ValueError):
        raise BatchError(f"qacct: {record[:200]!r} is no record") from None
    if not words.is_key(key) or ended is None or failed in _BEFORE | _AGAIN:
        return
    why = _end(failed, status, fields)
    yield BatchItem(
        key=key,
        id=f"{job}.{number}" if number else job,
        index=max(0, number - 1),
        phase=Phase.OVER,
        **why._asdict(),
        words=" ".join(fields["failed"].split()) if failed else "",
        node=fields.get("hostname", ""),
        started=began,
        ended=ended,
    )


def _end(failed: int, status: int, fields: dict[str, str]) -> BatchEnd:
    """Return why a job is over."""
    if failed == _LIMITED:
        return BatchEnd(EndCause.TIMEOUT if _late(fields) else EndCause.MEMORY)
    if failed not in _AFTER:
        return BatchEnd(EndCause.NODE)
    return BatchEnd(EndCause.CANCELLED) if status == _NOTIFIED else words.ended(status)


def _late(fields: dict[str, str]) -> bool:
    """Return whether it was the time that ran out; one code stands for time and for memory."""
    category = fields.get("category", "")
    limit, wall = _LIMIT.search(category), _WALL.match(fields.get("ru_wallclock", ""))
    if limit is None or wall is None or "h_vmem" not in category:
        return True
    return int(wall["seconds"]) >= int(limit["seconds"])


TOOLS = Tools(
    name="gridengine",
    submitter="qsub",
    order=_submit,
    # `12`, or `12.1-5:1` of an array.
    answer=re.compile(r"(?P<id>[1-9][0-9]*)(\.[0-9]+-[0-9]+:[0-9]+)?", re.ASCII),
    final=re.compile(
        r"""rejected|unknown\ resource|is\ invalid|invalid\ option|not\ a\ valid\ object\ name
        |is\ not\ a\ (time|memory|integer|double|boolean)|can't\ resolve\ hostname|denied:
        |no\ such\ |unknown\ option|no\ suitable\ queues|must\ be""",
        re.VERBOSE | re.IGNORECASE,
    ),
    passing=re.compile(
        r"send error|select error|commlib|answer list|timeout|would exceed|allowed to have"
        r"|quota|limit of|too many|no free slots",
        re.IGNORECASE,
    ),
    live=ListCommand("qstat", ("sh", "-c", _QSTAT), read),
    past=_past,
    # A job gets SIGUSR2, and time to leave its evidence.
    canceller=("qdel",),
    ids=r"[1-9][0-9]*(\.[1-9][0-9]*)?",
    gone="does not exist|already in deletion|has registered|has deleted|invalid task",
    # It is the first line of the help.
    versions=("qstat", "-help"),
    queue=("qconf", "-sq"),
)
