"""What `qstat -xml` lists, with the reasons of those that are in error."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from xml.etree import ElementTree as ET

from pilotage.batch.system import spans, whole, words
from pilotage.batch.system.model import BatchError, Item, Phase

#: Jobs whose reasons are asked for: `qstat -j` costs much.
_MOST = 20
#: Only jobs in error have a reason, and only `qstat -j` says it.
_SHELL = f"""\
list=$(qstat -xml -s prs) || exit
printf '%s\\n' "$list"
bad=$(printf '%s\\n' "$list" | awk -F '[<>]' '
    $2 == "JB_job_number" {{ job = $3 }}
    $2 == "state" && $3 ~ /E/ {{ print job }}' | sort -u | head -n {_MOST} | paste -s -d , -)
[ -z "$bad" ] || qstat -j "$bad" | grep -E '^(job_number|error reason) *' || true
"""
QSTAT = whole.asked("sh", "-c", _SHELL)

_JOB = re.compile(r"job_number: +(?P<job>[0-9]+)")
_REASON = re.compile(r"error reason +(?P<task>[0-9]+): +(?P<why>.*)")
#: Letters of states: deleted, error, held, queued, running, restarted, suspended in four ways,
#: transferred, waiting.
_LETTERS = frozenset("dEhqrRsSTNPtw")


def read(text: str) -> list[Item]:
    """Read the list, then reasons."""
    body, end, rest = text.partition("</job_info>\n</job_info>")
    reasons = dict(_reasons(rest))
    try:
        tree = ET.fromstring(body + end)  # noqa: S314 - of the scheduler, and it has no entities
    except (ET.ParseError, ValueError) as error:
        raise BatchError(f"qstat: this is no listing: {error}") from None
    if tree.tag != "job_info":
        raise BatchError(f"qstat: this is no listing but {tree.tag!r}")
    return [item for job in tree.iter("job_list") for item in _items(job, reasons)]


def phase(state: str) -> Phase:
    """Say what the letters of a state mean together."""
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


def _items(job: ET.Element, reasons: dict[tuple[str, int], str]) -> Iterator[Item]:
    key, number, state = (job.findtext(tag, "") for tag in ("JB_name", "JB_job_number", "state"))
    if not words.is_key(key):
        return
    tasks = job.findtext("tasks", "")
    try:
        if not number.isdecimal():
            raise ValueError(number)
        numbers = list(spans.expand(tasks)) if tasks else [0]
        start = job.findtext("JAT_start_time", "")
        began = datetime.fromisoformat(start).replace(tzinfo=UTC).timestamp() if start else None
    except (ValueError, OverflowError):
        raise BatchError(f"qstat: job {number[:40]!r} is not understood") from None
    now = phase(state)
    for task in numbers:
        # A job that is no array is task 1 of itself.
        why = reasons.get((number, task or 1), "")
        yield Item(
            key=key,
            id=f"{number}.{task}" if tasks else number,
            index=max(0, task - 1),
            phase=now,
            words=": ".join(text for text in (state, why) if text),
            node=job.findtext("queue_name", "").rpartition("@")[2],
            started=began if now is Phase.RUNNING else None,
        )
