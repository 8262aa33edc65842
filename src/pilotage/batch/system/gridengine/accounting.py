"""What `qacct` remembers.

A start that failed has a record as well, though the job waits on: such ones say nothing. And the
file is read from its beginning each time, so that only what we need of our own jobs is passed on.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime

from pilotage.batch.system import whole, words
from pilotage.batch.system.model import BatchError, Call, Cause, Item, Phase

#: `qacct` selects by the time of the start; no job runs longer than this.
_LONGEST = 31 * 86400
_FAILED = "qacct ended with"
#: There is no file as long as no job has ended.
_NOTHING = "no jobs running since startup"
_SHELL = f"""\
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
_TIME = "%a %b %d %H:%M:%S %Y"
_LIMIT = re.compile(r"h_rt=(?P<seconds>[0-9]+)")
_WALL = re.compile(r"(?P<seconds>[0-9]+)(\.[0-9]+)?s?")

#: Codes of `failed`. What failed before the job began is tried again or held.
_BEFORE = frozenset({*range(1, 12), *range(26, 30), *range(31, 37), 38})
#: It migrates, or is to be run again.
_AGAIN = frozenset({24, 25})
_LIMITED = 37
_AFTER = frozenset({0, *range(12, 18), 30, 100})
_SIGNALS = range(129, 193)
#: SIGUSR2: what `-notify` sends to a job that somebody called off, before SIGKILL.
_TOLD = 140


def asked(since: float) -> Call:
    """Ask for all that may have ended since then."""
    start = datetime.fromtimestamp(max(0.0, since - _LONGEST), UTC)
    return whole.asked("sh", "-c", _SHELL, "sh", f"{start:%Y%m%d%H%M}")


def read(text: str) -> list[Item]:
    """Read records; each has a line for each field."""
    if _NOTHING in text:
        return []
    if _FAILED in text:
        raise BatchError(f"qacct: {text[-300:]!r}")
    first, *records = re.split(r"^=+\n", text, flags=re.MULTILINE)
    if first.strip():
        raise BatchError(f"qacct: {first[:200]!r} is no record")
    return [item for record in records for item in _items(record)]


def _items(record: str) -> Iterator[Item]:
    fields = {name: value.strip() for name, _, value in map(_halves, record.splitlines())}
    try:
        key, job, task = (fields[name] for name in ("jobname", "jobnumber", "taskid"))
        failed = int(fields["failed"].partition(":")[0])
        status = int(fields["exit_status"].partition(" ")[0])
        began, ended = (_time(fields[name]) for name in ("start_time", "end_time"))
        number = 0 if task == "undefined" else int(task)
    except (KeyError, ValueError):
        raise BatchError(f"qacct: {record[:200]!r} is no record") from None
    if not words.is_key(key) or ended is None or failed in _BEFORE | _AGAIN:
        return
    cause = _cause(failed, status, fields)
    yield Item(
        key=key,
        id=f"{job}.{number}" if number else job,
        index=max(0, number - 1),
        phase=Phase.OVER,
        cause=cause,
        exit=status if cause is Cause.EXITED else None,
        signal=status - 128 if cause is Cause.SIGNALLED else None,
        words=" ".join(fields["failed"].split()) if failed else "",
        node=fields.get("hostname", ""),
        started=began,
        ended=ended,
    )


def _halves(line: str) -> tuple[str, str, str]:
    return line.partition(" ")


def _time(text: str) -> float | None:
    if text == "-/-":
        return None
    # Milliseconds follow in some versions, a month of numbers comes first in others.
    for form in (_TIME, "%m/%d/%Y %H:%M:%S.%f", "%m/%d/%Y %H:%M:%S"):
        try:
            return datetime.strptime(text, form).replace(tzinfo=UTC).timestamp()
        except ValueError:
            continue
    raise ValueError(text)


def _cause(failed: int, status: int, fields: dict[str, str]) -> Cause:
    """Say why a job is over; a code over 128 stands for a signal."""
    if failed == _LIMITED:
        return Cause.TIMEOUT if _late(fields) else Cause.MEMORY
    if failed not in _AFTER:
        return Cause.NODE
    if status == _TOLD:
        return Cause.CANCELLED
    return Cause.SIGNALLED if status in _SIGNALS else Cause.EXITED


def _late(fields: dict[str, str]) -> bool:
    """Say whether it was the time that ran out; one code stands for time and for memory."""
    category = fields.get("category", "")
    limit, wall = _LIMIT.search(category), _WALL.match(fields.get("ru_wallclock", ""))
    if limit is None or wall is None or "h_vmem" not in category:
        return True
    return int(wall["seconds"]) >= int(limit["seconds"])
