"""Free nodes as `sinfo` and `squeue` show them, and expected starts of orders.

`sinfo` has the nodes of each partition and what of them is in use, and `sinfo --reservation` what
is kept for others. `squeue` has the ends of what runs, and for what waits the time and the nodes
that the scheduler has planned, as `squeue --start` shows them. What waits is never put off: its
nodes count as taken from then on. `sbatch --test-only` says when an order would start: it knows of
limits, licences and features, of which listings say nothing. But while anything waits it puts all
orders behind that, since it knows nothing of gaps, and it refuses what would reach into a
reservation; so its word counts for what is to start at once, and only where nothing waits.
"""

from __future__ import annotations

import collections
import itertools
import math
import re
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from pilotage.batch.malleable import Gap, QueueBounds
from pilotage.batch.system import words
from pilotage.batch.system.model import (
    BatchCommand,
    BatchError,
    BatchOrder,
    Output,
)
from pilotage.batch.system.tools import asked, body
from pilotage.bus.model import BatchQueue

from . import listing, orders

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
#: The least time that remains of what has no known end, in seconds.
_SOON_S = 60.0
_HOSTS_WORD = re.compile(r"(?:[^,\[]|\[[^\]]*\])+")
_HOSTS_PART = re.compile(r"([^\[\],]*)(\[([0-9,-]+)\])?", re.ASCII)
#: Nodes that one name may stand for.
_MOST_HOSTS = 100_000


class SlurmNode(msgspec.Struct, frozen=True):
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
    """The most that a job may request of a partition."""

    #: Whether it is where jobs go that name none.
    default: bool
    up: bool
    #: Seconds.
    longest: float = math.inf
    usual: float = math.inf
    #: Nodes.
    widest: float = math.inf


class Occupied(msgspec.Struct, frozen=True):
    """Nodes that are taken for a time."""

    nodes: str
    start: float
    end: float
    #: The reservation that it is; else it is a job, which runs or which waits.
    reservation: str = ""
    runs: bool = False


class ClusterState(msgspec.Struct, frozen=True):
    """The state of a cluster at one time."""

    #: When, by its own clock.
    now: float
    #: Whether anything waits there.
    waits: bool
    nodes: tuple[SlurmNode, ...]
    partitions: dict[str, Partition]
    spans: tuple[Occupied, ...]


# -- commands --------------------------------------------------------------------------------------


def _sinfo() -> BatchCommand:
    fields = [f"{name}:{width}{_FIELD}" for name, width in _SINFO]
    shown = ",".join(fields).removesuffix(_FIELD) + _ROW
    return asked(*_ENV, "sinfo", "--Node", "--noheader", "--all", f"--Format={shown}")


def _squeue() -> BatchCommand:
    shown = _FIELD.join(_SQUEUE) + _ROW
    flags = ("--noheader", "--all", f"--states={_THERE}")
    return asked(*_ENV, "squeue", *flags, f"--format={shown}")


LOOKS = (
    _sinfo(),
    _squeue(),
    asked(*_ENV, "sinfo", "--reservation", "--noheader"),
    asked("date", "+%s"),
)


def trial(order: BatchOrder) -> BatchCommand:
    """Ask when an order would start; nothing is submitted."""
    words.check(order)
    return BatchCommand((*_ENV, "sbatch", "--test-only", *orders.batch(order)), input=order.script)


def tried(said: Output) -> float:
    """Read when an order would start; raise if it was refused."""
    found = _START.search(said.err + said.out)
    if said.exit or found is None:
        raise BatchError(f"sbatch: {said.err.strip()[:200] or said.out.strip()[:200]}")
    return float(found[1])


# -- output ----------------------------------------------------------------------------------------


def seen(said: Sequence[Output]) -> ClusterState:
    """Read what was said to `LOOKS`."""
    rows = _rows(said[0], "sinfo", len(_SINFO))
    queue = _rows(said[1], "squeue", len(_SQUEUE))
    spans = [*_jobs(queue), *_reservations(said[2])]
    try:
        now = float(body(said[3], "date"))
        nodes = tuple(_node(row) for row in rows)
        partitions = {row[1].rstrip("*"): _partition(row) for row in rows}
    except ValueError as error:
        raise BatchError(f"sinfo: {error}") from None
    waits = any(row[0] == _WAITS for row in queue)
    return ClusterState(now, waits, nodes, partitions, tuple(spans))


def queues(seen: ClusterState) -> list[BatchQueue]:
    """Return what each partition has, and how much of it is free."""
    found = []
    for name, one in seen.partitions.items():
        nodes = [node for node in seen.nodes if node.partition == name and node.open]
        found.append(
            BatchQueue(
                name=name, default=one.default, open=one.up, nodes=len(nodes),
                free_nodes=sum(node.free == node.cpus for node in nodes),
                cpus=max((node.cpus for node in nodes), default=0),
                memory=max((node.memory for node in nodes), default=0),
                time=0.0 if math.isinf(one.longest) else one.longest,
            )
        )  # fmt: skip
    return found


def _rows(said: Output, tool: str, width: int) -> list[list[str]]:
    *rows, last = body(said, tool).split(_ROW)
    found = [[field.strip() for field in row.split(_FIELD)] for row in rows]
    if last.strip() or any(len(row) != width for row in found):
        raise BatchError(f"{tool}: {said.out[-200:]!r} is no listing")
    return found


def _node(row: list[str]) -> SlurmNode:
    name, partition, state, cpus, memory, used, gres, *_ = row
    _, idle, _, total = (int(one) for one in cpus.split("/"))
    return SlurmNode(
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


def _jobs(queue: Sequence[Sequence[str]]) -> Iterator[Occupied]:
    for state, start, end, nodes, planned in queue:
        runs = state != _WAITS
        where = nodes if runs else planned
        if where in {"", "(null)"} or not start.isdecimal():
            continue
        until = float(end) if end.isdecimal() else math.inf
        yield Occupied(where, 0.0 if runs else float(start), until, runs=runs)


def _reservations(said: Output) -> Iterator[Occupied]:
    for line in body(said, "sinfo").splitlines():
        row = line.split()
        if len(row) == 6 and row[2].isdecimal() and row[3].isdecimal():
            yield Occupied(row[5], float(row[2]), float(row[3]), reservation=row[0])
        elif row and row[0] != "RESV_NAME" and line.strip() != _NONE:
            raise BatchError(f"sinfo: {line[:200]!r} is no reservation")


# -- when nodes are free for an order --------------------------------------------------------------


def bounds(seen: ClusterState, order: BatchOrder) -> QueueBounds:
    """Return what the queue of an order gives at most, and for how long if nothing is said."""
    known = [one for name, one in seen.partitions.items() if name in _queues(seen, order)]
    if not known:
        return QueueBounds()
    return QueueBounds(
        nodes=max(one.widest for one in known),
        time=max(one.longest for one in known),
        usual=max(min(one.usual, one.longest) for one in known),
    )


def gaps(seen: ClusterState, order: BatchOrder) -> list[Gap]:
    """Return when how many nodes are free that could each run their part of an order."""
    now, queues = seen.now, _queues(seen, order)
    nodes = {one.name: one for one in seen.nodes if one.partition in queues and _fits(one, order)}
    taken: dict[str, list[tuple[float, float]]] = collections.defaultdict(list)
    running: dict[str, float] = {}
    inside: dict[str, tuple[float, float]] = {}
    for span in seen.spans:
        for name in hosts(span.nodes):
            if span.runs:
                end = max(span.end, now + _SOON_S)
                running[name] = max(running.get(name, 0.0), end)
            elif span.reservation and span.reservation == order.reservation:
                inside[name] = span.start, span.end
            else:
                taken[name].append((span.start, span.end))
    counts: collections.Counter[tuple[float, float]] = collections.Counter()
    for name, node in nodes.items():
        if order.reservation and name not in inside:
            continue
        first, last = inside.get(name, (now, math.inf))
        since = now if _has_room(node, order) else running.get(name, math.inf)
        counts.update(_free(max(now, first, since), last, taken[name]))
    return [Gap(count, start, end) for (start, end), count in sorted(counts.items())]


def _queues(seen: ClusterState, order: BatchOrder) -> set[str]:
    if order.queue:
        return set(order.queue.split(","))
    return {name for name, one in seen.partitions.items() if one.default and one.up}


def _fits(node: SlurmNode, order: BatchOrder) -> bool:
    """Return whether a node could run its part of an order if it had nothing else to do."""
    large = node.cpus >= order.tasks * order.cpus and node.memory >= (order.memory or 0)
    return node.open and large and (node.gpus or not order.gpus)


def _has_room(node: SlurmNode, order: BatchOrder) -> bool:
    """Return whether it can do so beside what it does now."""
    if order.gpus or any(one.startswith("--exclusive") for one in order.extra):
        return node.free == node.cpus
    return node.free >= order.tasks * order.cpus and node.free_memory >= (order.memory or 0)


def _free(
    start: float, end: float, taken: Iterable[tuple[float, float]]
) -> Iterator[tuple[float, float]]:
    """Cut what is taken out of a time."""
    for since, until in sorted(taken):
        if start < min(since, end):
            yield start, min(since, end)
        start = max(start, until)
    if start < end:
        yield start, end


# -- names of nodes -------------------------------------------------------------------------------


def hosts(text: str) -> Iterator[str]:
    """Name the nodes of a list such as `n[1-3,7],m01`, however it is written."""
    for word in _HOSTS_WORD.findall(text):
        parts = [[prefix + one for one in _numbers(inner)] if inner else [prefix]
                 for prefix, _, inner in _HOSTS_PART.findall(word) if prefix or inner]  # fmt: skip
        if math.prod(len(part) for part in parts) > _MOST_HOSTS:
            raise BatchError(f"{text[:200]!r} names too many nodes")
        yield from ("".join(one) for one in itertools.product(*parts))


def _numbers(inner: str) -> list[str]:
    found: list[str] = []
    for part in inner.split(","):
        first, _, last = part.partition("-")
        if not first.isdecimal() or not (last or first).isdecimal():
            raise BatchError(f"[{inner[:200]}] names no nodes")
        span = range(int(first), min(int(last or first), int(first) + _MOST_HOSTS) + 1)
        found += [str(one).zfill(len(first)) for one in span]
    return found
