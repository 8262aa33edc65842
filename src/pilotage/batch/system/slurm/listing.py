"""Readers for the output of `squeue` and `sacct`.

Neither is asked for JSON. In 22.05 `squeue --json` ignores `--me` (every user's jobs come, whole),
and writes an array that waits as one job with `array_task_string`, which is cut short when it is
long; and the names and types of fields differ between versions. So rows are text, with separators
that no key has, and a last line that only a listing which succeeded has: one that was cut off can
not be taken for a short one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from pilotage.batch.system import words
from pilotage.batch.system.model import BatchEnd, BatchError, BatchItem, EndCause, Phase
from pilotage.batch.system.tools import ListCommand

_FIELD = "\x1f"
_ROW = "\x1e\n"
#: Each with a width, or 20 letters count. The name comes last and may be anything; those of a key
#: have 15 letters, so that one which is cut at 16 is none.
_SQUEUE = (
    ("ArrayJobID", 12),
    ("ArrayTaskID", 12),
    ("State", 24),
    ("exit_code", 12),
    ("Reason", 48),
    ("NodeList", 64),
    ("StartTime", 12),
    ("EndTime", 12),
    ("Comment", 16),
    ("Name", 16),
)
#: The first field is also the last one, by which the end of a row is known: names may have lines.
_SACCT = ("JobID", "State", "ExitCode", "Reason", "NodeList", "Start", "End", "JobName", "JobID")
#: Variables by which users narrow what the tools show.
_UNSET = (
    "SQUEUE_ACCOUNT",
    "SQUEUE_JOBS",
    "SQUEUE_LICENSES",
    "SQUEUE_NAMES",
    "SQUEUE_PARTITION",
    "SQUEUE_QOS",
    "SQUEUE_RESERVATION",
    "SQUEUE_STATES",
    "SQUEUE_USERS",
    "SLURM_CLUSTERS",
)
#: What tools are asked with; times are seconds, wherever the site is.
ENV = ("env", *(f"--unset={name}" for name in _UNSET), "SLURM_TIME_FORMAT=%s")

#: `sacct` says this and fails where there is no accounting.
_NO_HISTORY = "accounting storage is disabled"
_ARRAY = re.compile(r"(?P<job>[0-9]+)_\[(?P<spans>[0-9,:-]+)(%[0-9]+)?\]", re.ASCII)
_ONE = re.compile(r"(?P<job>[0-9]+)(_(?P<index>[0-9]+))?", re.ASCII)
_CODE = re.compile(r"(?P<code>[0-9]+):(?P<signal>[0-9]+)", re.ASCII)

#: The state of a job whose output could not be opened, and the like: it never began.
_NOT_STARTED = 53

_PHASES = {
    "PENDING": Phase.QUEUED,
    "REQUEUED": Phase.QUEUED,
    "REQUEUE_FED": Phase.QUEUED,
    "CONFIGURING": Phase.RUNNING,
    "POWER_UP_NODE": Phase.RUNNING,
    "RUNNING": Phase.RUNNING,
    "RESIZING": Phase.RUNNING,
    "SUSPENDED": Phase.RUNNING,
    "STOPPED": Phase.RUNNING,
    "SIGNALING": Phase.RUNNING,
    "STAGE_OUT": Phase.RUNNING,
    "COMPLETING": Phase.RUNNING,
    "REQUEUE_HOLD": Phase.HELD,
    "RESV_DEL_HOLD": Phase.HELD,
    "SPECIAL_EXIT": Phase.HELD,
    "COMPLETED": Phase.OVER,
    "FAILED": Phase.OVER,
    "CANCELLED": Phase.OVER,
    "TIMEOUT": Phase.OVER,
    "DEADLINE": Phase.OVER,
    "NODE_FAIL": Phase.OVER,
    "BOOT_FAIL": Phase.OVER,
    "LAUNCH_FAILED": Phase.OVER,
    "PREEMPTED": Phase.OVER,
    "OUT_OF_MEMORY": Phase.OVER,
}
_CAUSES = {
    "CANCELLED": EndCause.CANCELLED,
    "TIMEOUT": EndCause.TIMEOUT,
    "DEADLINE": EndCause.TIMEOUT,
    "NODE_FAIL": EndCause.NODE,
    "BOOT_FAIL": EndCause.NODE,
    "LAUNCH_FAILED": EndCause.NODE,
    "PREEMPTED": EndCause.PREEMPTED,
    "OUT_OF_MEMORY": EndCause.MEMORY,
}
#: Reasons that do not go by themselves, without case, spaces and underscores.
_HOLDING = (
    "held",
    "holdmaxrequeue",
    "dependencyneversatisfied",
    "badconstraints",
    "invalidaccount",
    "invalidqos",
    "accountnotallowed",
    "qosnotallowed",
    "accountingpolicy",
    "partitionconfig",
    "partitionnodelimit",
    "partitiontimelimit",
    "perjob",
    "reservationdeleted",
)


# -- commands --------------------------------------------------------------------------------------


def _squeue() -> tuple[str, ...]:
    fields = [f"{name}:{width}{_FIELD}" for name, width in _SQUEUE]
    shown = ",".join(fields).removesuffix(_FIELD) + _ROW[0]
    flags = ("--me", "--array", "--noheader", "--all", "--states=all")
    return (*ENV, "squeue", *flags, f"--Format={shown}")


SQUEUE = _squeue()


def past(since: float) -> ListCommand:
    """Ask `sacct` for what was there since then, a row for each job, also where ids were reused."""
    flags = ("--allocations", "--duplicates", "--noheader", "--parsable2", f"--delimiter={_FIELD}")
    fields = f"--format={','.join(_SACCT)}"
    window = (f"--starttime=uts{max(0, int(since))}", "--endtime=now")
    argv = (*ENV, "sacct", *flags, fields, *window)
    return ListCommand("sacct", argv, read_past, absent=_NO_HISTORY)


# -- output ----------------------------------------------------------------------------------------


def read(text: str) -> list[BatchItem]:
    """Read what `squeue` printed."""
    rows = [_fields(row) for row in _rows(text, "squeue", _ROW)]
    arrays = {row[0] for row in rows if row[1] != "N/A"}
    return [_queued(row) for row in rows if words.is_key(row[-1]) and not _remains(row, arrays)]


def read_past(text: str) -> list[BatchItem]:
    """Read what `sacct` printed."""
    rows = _joined(_rows(text, "sacct", "\n"))
    return [item for row in rows if words.is_key(row[-1]) for item in _accounted(row)]


def _rows(text: str, tool: str, end: str) -> list[str]:
    *rows, last = text.split(end)
    if last:
        raise BatchError(f"{tool}: {last[:200]!r} is no row")
    return rows


def _fields(row: str) -> list[str]:
    """Cut a row of `squeue`; the last field takes what is left."""
    fields = [field.strip() for field in row.split(_FIELD, len(_SQUEUE) - 1)]
    if len(fields) != len(_SQUEUE) or not fields[0].isdecimal():
        raise BatchError(f"squeue: {row[:200]!r} is no row")
    return fields


def _remains(row: list[str], arrays: set[str]) -> bool:
    """Return whether a row is what remains of an array, each of whose jobs has a row or had one.

    A job of an array that is cancelled while it waits leaves the listing without trace; after the
    last of them one row stays that looks like a single job.
    """
    job, index, comment = row[0], row[1], row[8]
    return index == "N/A" and (job in arrays or comment not in {"count=1", "", "(null)"})


def _queued(row: list[str]) -> BatchItem:
    job, index, state, status, reason, nodes, start, end, _, name = row
    try:
        raw = int(status)
        number = None if index == "N/A" else int(index)
        times = _time(start), _time(end)
    except ValueError:
        raise BatchError(f"squeue: {row!r} is no row") from None
    return _item(
        (job, number, name),
        (state, reason, nodes),
        ended(state, raw >> 8 & 0xFF, raw & 0x7F, nodes),
        times,
    )


def _joined(lines: list[str]) -> Iterator[list[str]]:
    """Join the lines of each row, and leave its end away; the last field is the name."""
    row = ""
    for line in lines:
        row += line
        first, *rest = row.split(_FIELD, len(_SACCT) - 2)
        name, end, last = rest[-1].rpartition(_FIELD) if rest else ("", "", "")
        if len(rest) == len(_SACCT) - 2 and end and last == first:
            yield [first, *rest[:-1], name]
            row = ""
        else:
            row += "\n"
    if row:
        raise BatchError(f"sacct: {row[:200]!r} is no row")


def _accounted(row: list[str]) -> Iterator[BatchItem]:
    job, state, status, reason, nodes, start, end, name = row
    code = _CODE.fullmatch(status)
    try:
        if code is None:
            raise ValueError(status)
        times = _time(start), _time(end)
        places = list(_places(job))
    except ValueError:
        raise BatchError(f"sacct: {row!r} is no row") from None
    where = nodes if nodes != "None assigned" else ""
    # `CANCELLED by 1000`
    why = ended(state.partition(" ")[0], int(code["code"]), int(code["signal"]), where)
    for base, index in places:
        yield _item((base, index, name), (state, reason, where), why, times)


def _places(job: str) -> Iterator[tuple[str, int | None]]:
    """Return ids and numbers of `12`, `12_3`, `12_[0-3,7]`; none of an array that is cut short."""
    if one := _ONE.fullmatch(job):
        yield one["job"], None if one["index"] is None else int(one["index"])
    elif array := _ARRAY.fullmatch(job):
        yield from ((array["job"], index) for index in words.indices(array["spans"]))
    elif "..." not in job and "+" not in job:
        raise ValueError(job)


def _item(
    place: tuple[str, int | None, str],
    now: tuple[str, str, str],
    why: BatchEnd,
    times: tuple[float | None, float | None],
) -> BatchItem:
    job, index, key = place
    state, reason, nodes = now
    phase = phase_of(state.partition(" ")[0], reason)
    over = phase is Phase.OVER
    # Before it runs, the scheduler's guess is in the place of the time.
    began = phase in {Phase.RUNNING, Phase.OVER} and nodes != ""
    said = () if reason in {"", "None"} else (reason,)
    return BatchItem(
        key=key,
        id=job if index is None else f"{job}_{index}",
        index=index or 0,
        phase=phase,
        **(why if over else BatchEnd())._asdict(),
        words=": ".join((state, *said)),
        node=nodes,
        started=times[0] if began else None,
        ended=times[1] if over else None,
    )


def _time(text: str) -> float | None:
    return None if text in {"N/A", "Unknown", "None", ""} else float(int(text))


# -- Slurm's words for the state of a job ----------------------------------------------------------


def phase_of(state: str, reason: str) -> Phase:
    """Return where a job is; unknown for a word that is not in Slurm's manual."""
    found = _PHASES.get(state, Phase.UNKNOWN)
    flat = reason.lower().replace(" ", "").replace("_", "")
    if found is Phase.QUEUED and any(word in flat for word in _HOLDING):
        return Phase.HELD
    return found


def ended(state: str, code: int, signal: int, nodes: str) -> BatchEnd:
    """Return why a job that is over ended."""
    if state in _CAUSES:
        return BatchEnd(_CAUSES[state])
    # Also what `sbatch` refused may be listed, as failed with status 1 and without a node.
    failed = state == "FAILED" and (not nodes or not (code or signal))
    if failed or signal == _NOT_STARTED:
        return BatchEnd(EndCause.NODE)
    if signal:
        return BatchEnd(EndCause.SIGNALLED, signal=signal)
    return BatchEnd(EndCause.EXITED, exit=code)
