"""When nodes are free, as `sinfo` and `squeue` show it, and when an order would start.

`sinfo` has the nodes of each partition and what of them is in use, and `sinfo --reservation` what
is kept for others. `squeue` has the ends of what runs, and for what waits the time and the nodes
that the scheduler has planned, as `squeue --start` shows them. What waits is never put off: its
nodes count as taken from then on. `sbatch --test-only` says when an order would start: it knows of
limits, licences and features, of which listings say nothing. But while anything waits it puts all
orders behind that, since it knows nothing of gaps, and it refuses what would reach into a
reservation; so its word counts for what is to start at once, and only where nothing waits.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence

import msgspec

from pilotage.batch.system import whole
from pilotage.batch.system.model import BatchError, BatchQueue, Call, Order, Said

from . import listing, options

_FIELD = "\x1f"
_ROW = "\x1e"
_SINFO = (
    ("NodeList", 64), ("Partition", 64), ("StateCompact", 16), ("CPUsState", 24), ("Memory", 12),
    ("AllocMem", 12), ("Gres", 64), ("Time", 16), ("DefaultTime", 16), ("Size", 24),
    ("Available", 6),
)  # fmt: skip
#: State, start, end, nodes, planned nodes; without widths, since lists of nodes may be long.
_SQUEUE = ("%T", "%S", "%e", "%N", "%Y")
_WAITS = "PENDING"
_THERE = "RUNNING,SUSPENDED,CONFIGURING,COMPLETING,STOPPED,RESIZING,SIGNALING,STAGE_OUT,PENDING"
_ENV = ("env", "--unset=SINFO_PARTITION", "--unset=SINFO_FORMAT", *listing.ENV[1:])
_NONE = "No reservations in the system"
#: States of nodes that take jobs, with the signs of those which are asleep or planned for others.
_OPEN = re.compile(r"(idle|mix|plnd|alloc|comp|resv)[~#!-]*", re.ASCII)
_TIME = re.compile(r"((?P<d>\d+)-)?((?P<h>\d+):)?(?P<m>\d+):(?P<s>\d+)", re.ASCII)
_START = re.compile(r"Job \d+ to start at (\d+)", re.ASCII)


class Node(msgspec.Struct, frozen=True):
    """A node, as one partition has it."""

    name: str
    partition: str
    #: Whether it takes jobs, now or when what is there is over.
    open: bool
    cpus: int
    free: int
    memory: int
    free_memory: int
    gpus: bool


class Partition(msgspec.Struct, frozen=True):
    """What a job may ask a partition for."""

    #: Whether it is where jobs go that name none.
    default: bool
    up: bool
    #: Seconds.
    longest: float = math.inf
    usual: float = math.inf
    #: Nodes.
    widest: float = math.inf


class Span(msgspec.Struct, frozen=True):
    """Nodes that are taken for a time."""

    nodes: str
    start: float
    end: float
    #: The reservation that it is; else it is a job, which runs or which waits.
    reservation: str = ""
    runs: bool = False


class Seen(msgspec.Struct, frozen=True):
    """What was seen of a cluster, at once."""

    #: When, by its own clock.
    now: float
    #: Whether anything waits there.
    waits: bool
    nodes: tuple[Node, ...]
    partitions: dict[str, Partition]
    spans: tuple[Span, ...]


# -- what is asked ---------------------------------------------------------------------------------


def _sinfo() -> Call:
    fields = [f"{name}:{width}{_FIELD}" for name, width in _SINFO]
    shown = ",".join(fields).removesuffix(_FIELD) + _ROW
    return whole.asked(*_ENV, "sinfo", "--Node", "--noheader", "--all", f"--Format={shown}")


def _squeue() -> Call:
    shown = _FIELD.join(_SQUEUE) + _ROW
    flags = ("--noheader", "--all", f"--states={_THERE}")
    return whole.asked(*_ENV, "squeue", *flags, f"--format={shown}")


LOOKS = (
    _sinfo(),
    _squeue(),
    whole.asked(*_ENV, "sinfo", "--reservation", "--noheader"),
    whole.asked("date", "+%s"),
)


def trial(order: Order) -> Call:
    """Ask when an order would start; nothing is submitted."""
    flags = [one for one in options.batch(order) if one != "--parsable"]
    return Call((*_ENV, "sbatch", "--test-only", *flags), input=order.script)


def tried(said: Said) -> float:
    """Read when an order would start; raise if it was refused."""
    found = _START.search(said.err + said.out)
    if said.exit or found is None:
        raise BatchError(f"sbatch: {said.err.strip()[:200] or said.out.strip()[:200]}")
    return float(found[1])


# -- what is read ----------------------------------------------------------------------------------


def seen(said: Sequence[Said]) -> Seen:
    """Read what was said to `LOOKS`."""
    rows = _rows(said[0], "sinfo", len(_SINFO))
    queue = _rows(said[1], "squeue", len(_SQUEUE))
    spans = [*_jobs(queue), *_reservations(said[2])]
    try:
        now = float(whole.body(said[3], "date"))
        nodes = tuple(_node(row) for row in rows)
        partitions = {row[1].rstrip("*"): _partition(row) for row in rows}
    except ValueError as error:
        raise BatchError(f"sinfo: {error}") from None
    waits = any(row[0] == _WAITS for row in queue)
    return Seen(now, waits, nodes, partitions, tuple(spans))


def queues(seen: Seen) -> list[BatchQueue]:
    """Say what each partition has, and how much of it is free."""
    found = []
    for name, one in seen.partitions.items():
        nodes = [node for node in seen.nodes if node.partition == name and node.open]
        found.append(
            BatchQueue(
                name=name, default=one.default, open=one.up, nodes=len(nodes),
                free_nodes=sum(node.free == node.cpus for node in nodes),
                cpus=max((node.cpus for node in nodes), default=0),
                memory=max((node.memory for node in nodes), default=0), time=one.longest,
            )
        )  # fmt: skip
    return found


def _rows(said: Said, tool: str, width: int) -> list[list[str]]:
    *rows, last = whole.body(said, tool).split(_ROW)
    found = [[field.strip() for field in row.split(_FIELD)] for row in rows]
    if last.strip() or any(len(row) != width for row in found):
        raise BatchError(f"{tool}: {said.out[-200:]!r} is no listing")
    return found


def _node(row: list[str]) -> Node:
    name, partition, state, cpus, memory, used, gres, *_ = row
    _, idle, _, total = (int(one) for one in cpus.split("/"))
    return Node(
        name, partition.rstrip("*"), _OPEN.fullmatch(state) is not None, total, idle,
        int(memory) << 20, (int(memory) - int(used)) << 20, gpus="gpu" in gres,
    )  # fmt: skip


def _partition(row: list[str]) -> Partition:
    longest, usual, size, up = row[7:]
    return Partition(
        row[1].endswith("*"), up == "up", _seconds(longest), _seconds(usual), _widest(size)
    )


def _seconds(text: str) -> float:
    """Read a time as Slurm writes it; `10:00` are minutes."""
    found = _TIME.fullmatch(text)
    if found is None:
        return math.inf
    days, hours, minutes, seconds = (int(found[one] or 0) for one in "dhms")
    return float(((days * 24 + hours) * 60 + minutes) * 60 + seconds)


def _widest(text: str) -> float:
    most = text.rpartition("-")[2]
    return int(most) if most.isdecimal() else math.inf


def _jobs(queue: Sequence[Sequence[str]]) -> Iterator[Span]:
    for state, start, end, nodes, planned in queue:
        runs = state != _WAITS
        where = nodes if runs else planned
        if where in {"", "(null)"} or not start.isdecimal():
            continue
        until = float(end) if end.isdecimal() else math.inf
        yield Span(where, 0.0 if runs else float(start), until, runs=runs)


def _reservations(said: Said) -> Iterator[Span]:
    for line in whole.body(said, "sinfo").splitlines():
        words = line.split()
        if len(words) == 6 and words[2].isdecimal() and words[3].isdecimal():
            yield Span(words[5], float(words[2]), float(words[3]), reservation=words[0])
        elif words and words[0] != "RESV_NAME" and line.strip() != _NONE:
            raise BatchError(f"sinfo: {line[:200]!r} is no reservation")
