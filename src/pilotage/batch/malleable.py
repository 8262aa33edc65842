"""Sizes of malleable jobs: nodes and time that fit a gap (pure functions).

A job that can be of any size within bounds is *malleable*: on a machine that is being drained, or
kept for a large job, it may run where others have to wait. The batch system says when how many
nodes are free and for how long; here it is decided what to ask it for.

* What starts at once comes before what starts later, and then the most node-seconds count: such
  a job does more in a larger place, and a place that it leaves empty is lost.
* If nothing starts at once, it is what has the work done soonest, or else what starts soonest.
* If the batch system does not report free nodes, it is the most, as if the job had no
  choice, and a batch system that plans by itself makes the best of it.
* If all is known and nothing fits, it is the least, which some day fits first.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from pilotage.base import units

#: Batch systems count wall time in minutes.
_GRAIN_S = 60.0
#: From the look at a gap to the start in it some time passes, in seconds.
_MARGIN_S = 30.0


class SizeRange(msgspec.Struct, frozen=True, kw_only=True):
    """The sizes in which a job may run."""

    nodes_least: int
    nodes_most: int
    #: Seconds of wall time.
    time_least: float
    time_most: float
    #: Node-seconds that it needs at least.
    work: float = 0.0
    #: Seconds by which a batch job must be longer than what runs in it.
    longer: float = 0.0


class QueueBounds(msgspec.Struct, frozen=True, kw_only=True):
    """The most that a queue gives to one job, whatever is free."""

    nodes: float = math.inf
    #: Seconds: the most, and what a job has that does not say.
    time: float = math.inf
    usual: float = math.inf


class Gap(msgspec.Struct, frozen=True):
    """Nodes that are free from one moment to another."""

    nodes: int
    start: float
    end: float = math.inf


class Fit(msgspec.Struct, frozen=True, kw_only=True):
    """The size chosen for a job; it is recorded before the batch system is asked."""

    nodes: int
    #: Seconds of wall time; nothing means what the queue gives.
    time: float | None = None
    #: When it is expected to start, if that is known.
    start: float | None = None
    #: Why this size was chosen, for people.
    why: str = ""


def bounded(ask: SizeRange, bounds: QueueBounds) -> SizeRange:
    """Limit a range to the bounds of a queue; one that does not fit at all stays as it is."""
    nodes = min(ask.nodes_most, bounds.nodes)
    time = min(ask.time_most, _minutes(bounds.time) - ask.longer)
    if nodes < ask.nodes_least or time < ask.time_least or nodes * time < ask.work:
        return ask
    return msgspec.structs.replace(ask, nodes_most=int(nodes), time_most=time)


def best(ask: SizeRange, gaps: Sequence[Gap], now: float, *, count: int = 1) -> list[Fit]:
    """Return the best sizes, the best first; none if nothing fits.

    Of several the last is one that starts later, if there is one: only the batch system
    knows for certain what starts at once.
    """
    found = _at(ask, gaps, now, now)[: max(1, count - 1)]
    if len(found) < count and (later := _later(ask, gaps, now)):
        found.append(later)
    return found


def choose(ask: SizeRange, gaps: Sequence[Gap] | None, now: float) -> Fit:
    """Choose a shape; no gaps mean that free nodes are unknown."""
    if gaps is None:
        return most(ask, "the batch system does not report free nodes")
    return next(iter(best(ask, gaps, now)), None) or least(ask)


def most(ask: SizeRange, why: str) -> Fit:
    """Return the largest shape."""
    words = say(ask.nodes_most, ask.time_most)
    return Fit(nodes=ask.nodes_most, time=ask.time_most, why=f"{words}, the most: {why}")


def least(ask: SizeRange) -> Fit:
    """Return the smallest shape in which the work can be done, the narrowest of them."""
    narrow = math.ceil(ask.work / ask.time_most) if ask.time_most else 0
    nodes = min(ask.nodes_most, max(ask.nodes_least, narrow))
    time = min(ask.time_most, max(ask.time_least, ask.work / nodes))
    return Fit(nodes=nodes, time=time, why=f"{say(nodes, time)}, the least: nothing fits now")


def say(nodes: int, time: float) -> str:
    """Write a shape for people."""
    words = f"{nodes} node{'s' if nodes > 1 else ''}"
    return words if math.isinf(time) else f"{words} for {units.for_people(time)}"


def _at(ask: SizeRange, gaps: Iterable[Gap], start: float, now: float) -> list[Fit]:
    """Name the shapes that can start at a moment, the largest first."""
    ends: dict[float, int] = {}
    for gap in gaps:
        if gap.start <= start < gap.end:
            ends[gap.end] = ends.get(gap.end, 0) + gap.nodes
    found, free = [], 0
    for end in sorted(ends, reverse=True):
        free += ends[end]
        time = min(ask.time_most, _usable(end - start, ask.longer))
        nodes = min(ask.nodes_most, free)
        if nodes >= ask.nodes_least and time >= ask.time_least and nodes * time >= ask.work:
            found.append((nodes * time, nodes, time))
    found.sort(reverse=True)
    return [_fit(nodes, time, start, now) for _, nodes, time in dict.fromkeys(found)]


def _later(ask: SizeRange, gaps: Sequence[Gap], now: float) -> Fit | None:
    """Find the size that ends the work soonest, or starts soonest."""
    best: tuple[float, Fit] | None = None
    for start in _starts(gaps, now):
        if best and start + ask.time_least >= best[0]:
            break
        for fit in _at(ask, gaps, start, now):
            done = start + max(ask.time_least, ask.work / fit.nodes)
            if best is None or done < best[0]:
                best = done, fit
    return best[1] if best else None


def _starts(gaps: Iterable[Gap], now: float) -> Iterator[float]:
    """Go through the moments at which nodes come free, lazily: mostly the first is enough."""
    heap = list({gap.start for gap in gaps if gap.start > now})
    heapq.heapify(heap)
    while heap:
        yield heapq.heappop(heap)


def _usable(seconds: float, longer: float) -> float:
    """Return how long a job may be that runs in a gap, in whole minutes as it is asked for."""
    return _minutes(seconds - _MARGIN_S) - longer


def _minutes(seconds: float) -> float:
    return seconds if math.isinf(seconds) else math.floor(seconds / _GRAIN_S) * _GRAIN_S


def _fit(nodes: int, time: float, start: float, now: float) -> Fit:
    when = "at once" if start <= now else f"in {units.for_people(start - now)}"
    return Fit(
        nodes=nodes, time=time, start=start,
        why=f"{say(nodes, time)}, the most that can start {when}",
    )  # fmt: skip


# -- booked gaps ----------------------------------------------------------------------------------


def book(gaps: Sequence[Gap], fit: Fit, longer: float) -> list[Gap]:
    """Return what is left of gaps after a size took the tightest one that it fits.

    The next job must not count on the same nodes.
    """
    if fit.start is None or fit.time is None:
        return list(gaps)
    start, wanted = fit.start, fit.nodes
    end = start + math.ceil((fit.time + longer) / _GRAIN_S) * _GRAIN_S
    left: list[Gap] = []
    for gap in sorted(gaps, key=lambda one: one.end):
        fits = gap.start <= start and end <= gap.end
        taken = min(wanted, gap.nodes) if fits else 0
        wanted -= taken
        if gap.nodes > taken:
            left.append(Gap(gap.nodes - taken, gap.start, gap.end))
        if taken:
            parts = ((gap.start, start), (end, gap.end))
            left += [Gap(taken, since, until) for since, until in parts if since < until]
    return left
