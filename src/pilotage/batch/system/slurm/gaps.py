"""When nodes are free for an order, by what was seen of a cluster: pure."""

from __future__ import annotations

import collections
import itertools
import math
import re
from collections.abc import Iterable, Iterator

from pilotage.batch.malleable import Bounds, Gap
from pilotage.batch.system.model import BatchError, Order

from .windows import Node, Seen

#: What has no known end is there for so long at least, in seconds.
_SOON_S = 60.0
_WORD = re.compile(r"(?:[^,\[]|\[[^\]]*\])+")
_PART = re.compile(r"([^\[\],]*)(\[([0-9,-]+)\])?", re.ASCII)
#: Nodes that one name may stand for.
_MOST = 100_000


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


# -- names of nodes -------------------------------------------------------------------------------


def hosts(text: str) -> Iterator[str]:
    """Name the nodes of a list such as `n[1-3,7],m01`, however it is written."""
    for word in _WORD.findall(text):
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
