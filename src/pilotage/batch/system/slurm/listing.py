"""What `squeue` and `sacct` list.

Neither is asked for JSON. In 22.05 `squeue --json` ignores `--me` (every user's jobs come, whole),
and writes an array that waits as one job with `array_task_string`, which is cut short when it is
long; and the names and types of fields differ between versions. So rows are text, with separators
that no key has, and a last line that only a listing which succeeded has: one that was cut off can
not be taken for a short one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from pilotage.batch.system import spans, whole, words
from pilotage.batch.system.model import BatchError, Call, Item, Phase, Said

from . import states

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

#: Accounting says this and ends with 1, which is no failure: there is no history.
_NO_HISTORY = "accounting storage is disabled"
_ARRAY = re.compile(r"(?P<job>[0-9]+)_\[(?P<spans>[0-9,:-]+)(%[0-9]+)?\]", re.ASCII)
_ONE = re.compile(r"(?P<job>[0-9]+)(_(?P<index>[0-9]+))?", re.ASCII)
_CODE = re.compile(r"(?P<code>[0-9]+):(?P<signal>[0-9]+)", re.ASCII)


def _squeue() -> Call:
    fields = [f"{name}:{width}{_FIELD}" for name, width in _SQUEUE]
    shown = ",".join(fields).removesuffix(_FIELD) + _ROW[0]
    flags = ("--me", "--array", "--noheader", "--all", "--states=all")
    return whole.asked(*ENV, "squeue", *flags, f"--Format={shown}")


SQUEUE = _squeue()


def sacct(since: float) -> Call:
    """Ask for what was there since then, one row for each job, also those whose id was reused."""
    flags = ("--allocations", "--duplicates", "--noheader", "--parsable2", f"--delimiter={_FIELD}")
    fields = f"--format={','.join(_SACCT)}"
    window = (f"--starttime=uts{max(0, int(since))}", "--endtime=now")
    return whole.asked(*ENV, "sacct", *flags, fields, *window)


def listed(said: Said) -> list[Item]:
    """Read what `squeue` said; raise unless it is whole."""
    rows = [_fields(row) for row in _rows(said, "squeue", _ROW)]
    arrays = {row[0] for row in rows if row[1] != "N/A"}
    return [_queued(row) for row in rows if words.is_key(row[-1]) and not _remains(row, arrays)]


def remembered(said: Said) -> list[Item]:
    """Read what `sacct` said; nothing if there is no accounting."""
    if said.exit != 0 and _NO_HISTORY in said.err + said.out:
        return []
    found: list[Item] = []
    for row in _joined(_rows(said, "sacct", "\n")):
        if words.is_key(row[-1]):
            found.extend(_accounted(row))
    return found


def _rows(said: Said, tool: str, end: str) -> list[str]:
    """Cut the output of a tool that succeeded into rows."""
    *rows, last = whole.body(said, tool).split(end)
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
    """Say whether a row is what remains of an array, each of whose jobs has a row or had one.

    A job of an array that is cancelled while it waits leaves the listing without trace; after the
    last of them one row stays that looks like a single job.
    """
    job, index, comment = row[0], row[1], row[8]
    return index == "N/A" and (job in arrays or comment not in {"count=1", "", "(null)"})


def _queued(row: list[str]) -> Item:
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
        states.end(state, raw >> 8 & 0xFF, raw & 0x7F, nodes),
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


def _accounted(row: list[str]) -> Iterator[Item]:
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
    why = states.end(state.partition(" ")[0], int(code["code"]), int(code["signal"]), where)
    for base, index in places:
        yield _item((base, index, name), (state, reason, where), why, times)


def _places(job: str) -> Iterator[tuple[str, int | None]]:
    """Return ids and numbers of `12`, `12_3`, `12_[0-3,7]`; none of an array that is cut short."""
    if one := _ONE.fullmatch(job):
        yield one["job"], None if one["index"] is None else int(one["index"])
    elif array := _ARRAY.fullmatch(job):
        yield from ((array["job"], index) for index in spans.expand(array["spans"]))
    elif "..." not in job and "+" not in job:
        raise ValueError(job)


def _item(
    place: tuple[str, int | None, str],
    now: tuple[str, str, str],
    why: states.End,
    times: tuple[float | None, float | None],
) -> Item:
    job, index, key = place
    state, reason, nodes = now
    phase = states.phase(state.partition(" ")[0], reason)
    over = phase is Phase.OVER
    # Before it runs, the scheduler's guess is in the place of the time.
    began = phase in {Phase.RUNNING, Phase.OVER} and nodes != ""
    said = () if reason in {"", "None"} else (reason,)
    return Item(
        key=key,
        id=job if index is None else f"{job}_{index}",
        index=index or 0,
        phase=phase,
        cause=why.cause if over else None,
        exit=why.exit if over else None,
        signal=why.signal if over else None,
        words=": ".join((state, *said)),
        node=nodes,
        started=times[0] if began else None,
        ended=times[1] if over else None,
    )


def _time(text: str) -> float | None:
    return None if text in {"N/A", "Unknown", "None", ""} else float(int(text))
