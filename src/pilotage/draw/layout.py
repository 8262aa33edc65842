"""Layout of boxes and arrows: columns from left to right, few crossings, no overlap.

The method is Sugiyama's: reverse the arrows that close cycles, put each box in the column after its
farthest predecessor, thread long arrows through the columns between, sort each column by the middle
of its neighbours, and move boxes towards them as far as the order allows. Parts that are not
connected stand beside or below each other; boxes without arrows share rows.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from pilotage.draw import svg
from pilotage.draw.svg import Box, Point

#: An arrow: the box that it leaves and the one that it reaches.
Arc = tuple[str, str]

_SWEEPS = 12
#: Pixels around the picture, between boxes, between columns, for an arrow that passes a column, for
#: one from a box to itself, and between arrows at a box; and how wide parts side by side may be.
_MARGIN, _GAP, _COLUMN_GAP, _STATION, _LOOP, _PORT = 20.0, 22.0, 60.0, 12.0, 18.0, 7.0
_ROW = 1100.0
#: Pixels that the label of an arrow may take between columns.
_MOST_LABEL = 220.0


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


class Arrow(NamedTuple):
    """An arrow, and where its label goes."""

    source: str
    target: str
    #: Its line, as the `d` of an SVG path.
    path: str
    #: Whether it runs from right to left, or from a box to itself.
    back: bool
    note: Point
    #: Which end of the label is at that point.
    anchor: str


class Layout(NamedTuple):
    """The positions of everything."""

    width: float
    height: float
    boxes: dict[str, Box]
    arrows: list[Arrow]


class _Part(NamedTuple):
    """A part of the whole, placed from its own corner."""

    boxes: dict[Key, Box]
    #: The stations of each arrow from its source to its target.
    routes: dict[Arc, list[Point]]
    backward: set[Arc]

    @property
    def width(self) -> float:
        return max(box.right for box in self.boxes.values())

    @property
    def height(self) -> float:
        return max(box.bottom for box in self.boxes.values())


def arrange(sizes: Mapping[str, tuple[float, float]], labels: Mapping[Arc, str]) -> Layout:
    """Place boxes of given widths and heights, and arrows with their labels.

    The boxes of a column get one width. Same sizes and arrows have the same layout.
    """
    parts, lone = _parts(list(sizes), labels)
    placed = [_part(part, sizes, labels) for part in parts]
    if lone:
        placed.append(_rows(lone, sizes, labels))
    room = max([_ROW, *(part.width for part in placed)])
    boxes: dict[str, Box] = {}
    arrows: list[Arrow] = []
    left = top = low = right = 0.0
    for part in placed:
        if left and left + part.width > room:
            left, top = 0.0, low + 2 * _GAP
        corner = Point(_MARGIN + left, _MARGIN + top)
        boxes |= {key: _moved(box, corner) for key, box in part.boxes.items() if type(key) is str}
        arrows += _arrows(part, corner)
        low, right = max(low, top + part.height), max(right, left + part.width)
        left += part.width + _COLUMN_GAP
    arrows += [_loop(key, boxes[key]) for key, other in labels if key == other]
    ordered = {key: boxes[key] for key in sizes}
    return Layout(right + 2 * _MARGIN, low + 2 * _MARGIN, ordered, arrows)


def _parts(keys: list[str], arcs: Iterable[Arc]) -> tuple[list[list[str]], list[str]]:
    """Return the connected parts, largest first, and the boxes without arrows to others."""
    near: dict[str, list[str]] = {key: [] for key in keys}
    for start, end in arcs:
        near[start].append(end)
        near[end].append(start)
    part_of: dict[str, int] = {}
    for number, root in enumerate(keys):
        stack = [root]
        while stack:
            key = stack.pop()
            if key not in part_of:
                part_of[key] = number
                stack += near[key]
    parts: dict[int, list[str]] = {}
    for key in keys:
        parts.setdefault(part_of[key], []).append(key)
    many = sorted((part for part in parts.values() if len(part) > 1), key=len, reverse=True)
    return many, [part[0] for part in parts.values() if len(part) == 1]


# -- pixels ---------------------------------------------------------------------------------------


def _part(
    keys: list[str], sizes: Mapping[str, tuple[float, float]], labels: Mapping[Arc, str]
) -> _Part:
    """Place one connected part."""
    own = set(keys)
    arcs = [arc for arc in labels if arc[0] in own and arc[0] != arc[1]]
    found = columns(keys, arcs)
    tall: dict[Key, float] = {
        key: sizes[key][1] + (2 * _LOOP if (key, key) in labels else 0.0)
        if isinstance(key, str)
        else _STATION
        for column in found.order
        for key in column
    }
    middle = heights(found.order, found.chains.values(), tall, _GAP)
    gaps = _gaps(found, labels)
    boxes: dict[Key, Box] = {}
    left = 0.0
    for column, gap in zip(found.order, gaps, strict=True):
        width = max(sizes[key][0] for key in column if isinstance(key, str))
        for key in column:
            high = sizes[key][1] if isinstance(key, str) else 0.0
            boxes[key] = Box(left, middle[key] - high / 2, width, high)
        left += width + gap
    return _Part(boxes, dict(_routes(found, boxes)), found.backward)


def _gaps(found: Columns, labels: Mapping[Arc, str]) -> list[float]:
    """Return the room after each column: enough for the labels of arrows that end in the next."""
    at = {key: number for number, column in enumerate(found.order) for key in column}
    gaps = [_COLUMN_GAP] * len(found.order)
    for arc, chain in found.chains.items():
        if labels[arc]:
            wide = svg.text_width(svg.short(labels[arc]), 5.6)
            before = at[chain[-2]]
            gaps[before] = max(gaps[before], min(wide, _MOST_LABEL) + 36)
    return gaps


def _routes(found: Columns, boxes: Mapping[Key, Box]) -> Iterator[tuple[Arc, list[Point]]]:
    """Yield the stations of each arrow from left to right."""
    leave = _ports(boxes, ((chain[0], chain[1], arc) for arc, chain in found.chains.items()))
    reach = _ports(boxes, ((chain[-1], chain[-2], arc) for arc, chain in found.chains.items()))
    for arc, chain in found.chains.items():
        stations = [Point(boxes[chain[0]].right, leave[arc])]
        for key in chain[1:-1]:
            stations += [Point(boxes[key].x, boxes[key].y), Point(boxes[key].right, boxes[key].y)]
        yield arc, [*stations, Point(boxes[chain[-1]].x, reach[arc])]


def _ports(boxes: Mapping[Key, Box], ends: Iterable[tuple[Key, Key, Arc]]) -> dict[Arc, float]:
    """Share the side of a box among its arrows, in the order of what they lead to.

    Too many for its side meet in the middle.
    """
    sharing: dict[Key, list[tuple[float, Arc]]] = {}
    for key, other, arc in ends:
        sharing.setdefault(key, []).append((boxes[other].y + boxes[other].height / 2, arc))
    ports: dict[Arc, float] = {}
    for key, arcs in sharing.items():
        box = boxes[key]
        apart = box.height / (len(arcs) + 1)
        for place, (_, arc) in enumerate(sorted(arcs), 1):
            ports[arc] = box.y + (apart * place if apart >= _PORT else box.height / 2)
    return ports


def _rows(
    keys: Sequence[str], sizes: Mapping[str, tuple[float, float]], labels: Mapping[Arc, str]
) -> _Part:
    """Place boxes without arrows to others, side by side in rows."""
    rise = _LOOP if any((key, key) in labels for key in keys) else 0.0
    wide = max(sizes[key][0] for key in keys)
    high = max(sizes[key][1] for key in keys)
    count = max(1, int((_ROW + _GAP) // (wide + _GAP)))
    boxes: dict[Key, Box] = {}
    for number, key in enumerate(keys):
        row, place = divmod(number, count)
        top = row * (high + rise + _GAP) + rise
        boxes[key] = Box(place * (wide + _GAP), top, wide, sizes[key][1])
    return _Part(boxes, {}, set())


def _arrows(part: _Part, corner: Point) -> Iterator[Arrow]:
    for arc, stations in part.routes.items():
        moved = [Point(one.x + corner.x, one.y + corner.y) for one in stations]
        back = arc in part.backward
        before, last = moved[-2:]
        note = Point((before.x + last.x) / 2, (before.y + last.y) / 2 - 5)
        yield Arrow(*arc, _path(moved[::-1] if back else moved), back, note, "middle")


def _loop(key: str, box: Box) -> Arrow:
    """Lead an arrow from a box to itself, over its right shoulder."""
    path = f"M{box.right - 34:.1f} {box.y:.1f}c0 -24 20 -24 20 0"
    return Arrow(key, key, path, False, Point(box.right - 40, box.y - 6), "end")


def _path(stations: Sequence[Point]) -> str:
    """Write the line of an arrow: it bends between stations and passes columns straight."""
    first, *rest = stations
    path, at = [f"M{first.x:.1f} {first.y:.1f}"], first
    for point in rest:
        if point.y == at.y:
            path.append(f"H{point.x:.1f}")
        else:
            bend = (at.x + point.x) / 2
            path.append(
                f"C{bend:.1f} {at.y:.1f} {bend:.1f} {point.y:.1f} {point.x:.1f} {point.y:.1f}"
            )
        at = point
    return "".join(path)


def _moved(box: Box, by: Point) -> Box:
    return Box(box.x + by.x, box.y + by.y, box.width, box.height)


# -- columns --------------------------------------------------------------------------------------


def columns(keys: Sequence[str], arcs: Iterable[Arc]) -> Columns:
    """Put boxes in columns; no arrow may lead from a box to itself."""
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
    """Return positions near the wishes, by least squares, in order and without overlap."""
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
    """Find the arrows that close cycles, depth first from the boxes that no arrow reaches."""
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
        # A box that no arrow reaches stands just before the first that it leads to.
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
