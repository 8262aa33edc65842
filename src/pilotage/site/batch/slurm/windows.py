"""When nodes are free, as `sinfo` and `squeue` show it, and when an order would start.

`sinfo` has the nodes of each partition and what of them is in use, and `sinfo --reservation` what
is kept for others. `squeue` has the ends of what runs, and for what waits the time and the nodes
that the scheduler has planned, as `squeue --start` shows them. What waits is never put off: its
nodes count as taken from then on. `sbatch --test-only` says when an order would start, which knows
of limits, licences and features, but not of what waits; so one needs both.
"""

from __future__ import annotations

import collections
import itertools
import math
import re
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from pilotage.site.batch import whole
from pilotage.site.batch.model import BatchError, Call, Order, Said
from pilotage.site.shape import Bounds, Gap

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
_THERE = "RUNNING,SUSPENDED,CONFIGURING,COMPLETING,STOPPED,RESIZING,SIGNALING,STAGE_OUT,PENDING"
_ENV = ("env", "--unset=SINFO_PARTITION", "--unset=SINFO_FORMAT", *listing.ENV[1:])
_NONE = "No reservations in the system"
#: States of nodes that take jobs, with the signs of those which are asleep or planned for others.
_OPEN = re.compile(r"(idle|mix|plnd|alloc|comp|resv)[~#!-]*", re.ASCII)
#: What has no known end is there for so long at least, in seconds.
_SOON_S = 60.0
_TIME = re.compile(r"((?P<d>\d+)-)?((?P<h>\d+):)?(?P<m>\d+):(?P<s>\d+)", re.ASCII)
_PART = re.compile(r"([^\[\],]*)(\[([0-9,-]+)\])?", re.ASCII)
_START = re.compile(r"Job \d+ to start at (\d+)", re.ASCII)
#: Nodes that one name may stand for.
_MOST = 100_000


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
    spans = [*_jobs(said[1]), *_reservations(said[2])]
    try:
        now = float(whole.body(said[3], "date"))
        nodes = tuple(_node(row) for row in rows)
        partitions = {row[1].rstrip("*"): _partition(row) for row in rows}
    except ValueError as error:
        raise BatchError(f"sinfo: {error}") from None
    return Seen(now, nodes, partitions, tuple(spans))


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


def _jobs(said: Said) -> Iterator[Span]:
    for state, start, end, nodes, planned in _rows(said, "squeue", len(_SQUEUE)):
        runs = state != "PENDING"
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


def hosts(text: str) -> Iterator[str]:
    """Name the nodes of a list such as `n[1-3,7],m01`, however it is written."""
    for word in re.findall(r"(?:[^,\[]|\[[^\]]*\])+", text):
        parts = [[prefix + one for one in _numbers(inner)] if inner else [prefix]
                 for prefix, _, inner in _PART.findall(word) if prefix or inner]  # fmt: skip
        if math.prod(len(part) for part in parts) > _MOST:
            raise BatchError(f"{text[:200]!r} names too many nodes")
        yield from ("".join(one) for one in itertools.product(*parts))


def _numbers(inner: str) -> list[str]:
    found: list[str] = []
    for part in inner.split(","):
        first, _, last = part.partition("-")
        if not first.isdecimal() or not (last or first).isdecimal():
            raise BatchError(f"[{inner[:200]}] numbers no nodes")
        span = range(int(first), min(int(last or first), int(first) + _MOST) + 1)
        found += [str(one).zfill(len(first)) for one in span]
    return found


# -- what follows from it --------------------------------------------------------------------------


def bounds(seen: Seen, order: Order) -> Bounds:
    """Say what the queue of an order gives at most, and for how long if nothing is said."""
    known = [one for name, one in seen.partitions.items() if name in _queues(seen, order)]
    if not known:
        return Bounds()
    return Bounds(
        nodes=max(one.widest for one in known),
        time=max(one.longest for one in known),
        usual=max(min(one.usual, one.longest) for one in known),
    )


def gaps(seen: Seen, order: Order) -> list[Gap]:
    """Say when how many nodes are free that could each run their part of an order."""
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


def _queues(seen: Seen, order: Order) -> set[str]:
    if order.queue:
        return set(order.queue.split(","))
    return {name for name, one in seen.partitions.items() if one.default and one.up}


def _fits(node: Node, order: Order) -> bool:
    """Say whether a node could run its part of an order if it had nothing else to do."""
    large = node.cpus >= order.tasks * order.cpus and node.memory >= (order.memory or 0)
    return node.open and large and (node.gpus or not order.gpus)


def _has_room(node: Node, order: Order) -> bool:
    """Say whether it can do so beside what it does now."""
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
