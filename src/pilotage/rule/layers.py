"""Where the boxes and arrows of a picture go: columns from left to right, few crossings.

Sugiyama's way: turn the arrows of cycles round, put each box in the column after its farthest
predecessor, thread long arrows through the columns between, sort each column by the middle of its
neighbours, and move boxes towards them as far as the order allows.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left, insort
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

#: An arrow: the box that it leaves and the one that it reaches.
Arc = tuple[str, str]

_SWEEPS = 12


class Station(NamedTuple):
    """Where a long arrow passes a column."""

    arc: Arc
    column: int


#: What stands in a column: a box or a station.
Key = str | Station


class Columns(NamedTuple):
    """Boxes in columns, and the stations of every arrow."""

    #: The keys of each column from top to bottom; a station of a long arrow is a key too.
    order: list[list[Key]]
    #: For each arrow the keys that it passes from left to right, ends included.
    chains: dict[Arc, list[Key]]
    #: Arrows that run from right to left.
    backward: set[Arc]


def columns(keys: Sequence[str], arcs: Iterable[Arc]) -> Columns:
    """Put boxes in columns; arrows from a box to itself are not for here."""
    wanted = list(dict.fromkeys(arcs))
    backward = _backward(keys, wanted)
    forward = [(end, start) if (start, end) in backward else (start, end) for start, end in wanted]
    ranks = _ranks(keys, forward)
    order: list[list[Key]] = [[] for _ in range(max(ranks.values(), default=-1) + 1)]
    for key in keys:
        order[ranks[key]].append(key)
    chains: dict[Arc, list[Key]] = {}
    for arc, (start, end) in zip(wanted, forward, strict=True):
        between = [Station(arc, rank) for rank in range(ranks[start] + 1, ranks[end])]
        for rank, station in enumerate(between, ranks[start] + 1):
            order[rank].append(station)
        chains[arc] = [start, *between, end]
    return Columns(_sorted(order, chains.values()), chains, backward)


def _neighbours(
    chains: Iterable[Sequence[Key]],
) -> tuple[dict[Key, list[Key]], dict[Key, list[Key]]]:
    """Return for each key those before it and those after it."""
    before: dict[Key, list[Key]] = {}
    after: dict[Key, list[Key]] = {}
    for chain in chains:
        for left, right in itertools.pairwise(chain):
            after.setdefault(left, []).append(right)
            before.setdefault(right, []).append(left)
    return before, after


def heights(
    order: Sequence[Sequence[Key]],
    chains: Iterable[Sequence[Key]],
    sizes: Mapping[Key, float],
    gap: float,
) -> dict[Key, float]:
    """Return the middle of each key, near its neighbours and clear of its column."""
    before, after = _neighbours(chains)
    middle: dict[Key, float] = {}
    for column in order:
        top = 0.0
        for key in column:
            middle[key] = top + sizes[key] / 2
            top += sizes[key] + gap
    for sweep in range(_SWEEPS):
        near = (after, before)[sweep % 2]
        for column in order if sweep % 2 else reversed(order):
            wishes = [
                _mean([middle[other] for other in near.get(key, ())], middle[key]) for key in column
            ]
            middle |= zip(column, _settle(wishes, [sizes[key] for key in column], gap), strict=True)
    top = min((middle[key] - sizes[key] / 2 for key in middle), default=0.0)
    return {key: value - top for key, value in middle.items()}


def _settle(wishes: list[float], sizes: list[float], gap: float) -> list[float]:
    """Grant wishes in the least-squares sense, in order and without overlap."""
    offsets, at = [], 0.0
    for index, size in enumerate(sizes):
        at += (sizes[index - 1] + size) / 2 + gap if index else 0.0
        offsets.append(at)
    blocks: list[tuple[float, int]] = []
    for wish, offset in zip(wishes, offsets, strict=True):
        mean, count = wish - offset, 1
        # Neighbours that push against each other move as one.
        while blocks and blocks[-1][0] > mean:
            other, more = blocks.pop()
            mean, count = (mean * count + other * more) / (count + more), count + more
        blocks.append((mean, count))
    settled = [mean for mean, count in blocks for _ in range(count)]
    return [mean + offset for mean, offset in zip(settled, offsets, strict=True)]


def _backward(keys: Sequence[str], arcs: Sequence[Arc]) -> set[Arc]:
    """Find the arrows that close cycles, by a walk in depth from where nothing arrives."""
    after: dict[str, list[str]] = {key: [] for key in keys}
    for start, end in arcs:
        after[start].append(end)
    reached = {end for _, end in arcs}
    found: set[Arc] = set()
    done: set[str] = set()
    for root in sorted(keys, key=lambda key: key in reached):
        if root in done:
            continue
        open_keys, stack = {root}, [(root, iter(after[root]))]
        while stack:
            key, rest = stack[-1]
            following = next(rest, None)
            if following is None:
                stack.pop()
                open_keys.discard(key)
                done.add(key)
            elif following in open_keys:
                found.add((key, following))
            elif following not in done:
                open_keys.add(following)
                stack.append((following, iter(after[following])))
    return found


def _ranks(keys: Sequence[str], arcs: Sequence[Arc]) -> dict[str, int]:
    """Return the column of each key: one after its farthest predecessor."""
    before: dict[str, list[str]] = {}
    after: dict[str, list[str]] = {}
    for start, end in arcs:
        after.setdefault(start, []).append(end)
        before.setdefault(end, []).append(start)
    missing = {key: len(before.get(key, ())) for key in keys}
    ranks = dict.fromkeys(keys, 0)
    ready = [key for key in keys if not missing[key]]
    ordered = []
    while ready:
        key = ready.pop()
        ordered.append(key)
        for following in after.get(key, ()):
            ranks[following] = max(ranks[following], ranks[key] + 1)
            missing[following] -= 1
            if not missing[following]:
                ready.append(following)
    for key in reversed(ordered):
        # What nothing leads to stands just before what it leads to.
        if key in after and key not in before:
            ranks[key] = min(ranks[following] for following in after[key]) - 1
    return ranks


def _sorted(order: list[list[Key]], chains: Iterable[list[Key]]) -> list[list[Key]]:
    """Sort the columns back and forth, and keep the best order seen."""
    before, after = _neighbours(chains)
    best, fewest = [list(column) for column in order], _crossings(order, after)
    for sweep in range(_SWEEPS):
        if not fewest:
            break
        near = (before, after)[sweep % 2]
        for index in range(len(order)) if sweep % 2 == 0 else reversed(range(len(order))):
            other = order[index - 1 if sweep % 2 == 0 else (index + 1) % len(order)]
            at = {key: float(place) for place, key in enumerate(other)}
            wish = {
                key: _mean([at[each] for each in near.get(key, ()) if each in at], float(place))
                for place, key in enumerate(order[index])
            }
            order[index].sort(key=wish.__getitem__)
        crossings = _crossings(order, after)
        if crossings < fewest:
            best, fewest = [list(column) for column in order], crossings
    return best


def _crossings(order: Sequence[Sequence[Key]], after: Mapping[Key, list[Key]]) -> int:
    total = 0
    for left, right in itertools.pairwise(order):
        at = {key: place for place, key in enumerate(right)}
        ends = [end for key in left for end in sorted(at[each] for each in after.get(key, ()))]
        seen: list[int] = []
        for end in ends:
            total += len(seen) - bisect_left(seen, end + 1)
            insort(seen, end)
    return total


def _mean(values: Sequence[float], otherwise: float) -> float:
    return sum(values) / len(values) if values else otherwise
