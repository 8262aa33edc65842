"""Boxes and arrows as SVG: rules that feed each other, jobs that made each other.

A pure function of generic nodes and edges; it needs no library, and draws hundreds of boxes. Parts
that are not connected stand beside or below each other; boxes without arrows share rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import msgspec

from pilotage.rule import drawing, layers
from pilotage.rule.drawing import Box, Point

_MARGIN = 24.0
_GAP = 22.0
_COLUMN_GAP = 64.0
_LOOP = 18.0
_STATION = 12.0
_ROW = 1100.0

#: The two ends of an arrow.
Ends = tuple[str, str]


class Node(msgspec.Struct, frozen=True):
    """A box."""

    #: What edges call it.
    id: str
    #: The first line.
    label: str
    #: The second line, smaller.
    sub: str = ""
    #: What it is, a key of `drawing.COLOURS`.
    kind: str = ""


class Edge(msgspec.Struct, frozen=True):
    """An arrow between boxes."""

    #: The `id` of the box that it leaves, and of the one that it reaches.
    source: str
    target: str
    #: What is written beside it.
    label: str = ""


class _Picture(NamedTuple):
    """A part of the whole, drawn from its own corner."""

    shapes: list[str]
    width: float
    height: float


def svg(nodes: Sequence[Node], edges: Iterable[Edge], *, title: str = "") -> str:
    """Draw a graph; edges of unknown nodes are left out."""
    known = {node.id: node for node in nodes}
    labels = _merged(edge for edge in edges if edge.source in known and edge.target in known)
    parts, lone = _parts(list(known), labels)
    pictures = [_draw([known[key] for key in part], labels) for part in parts]
    if lone:
        pictures.append(_rows([known[key] for key in lone], labels))
    return _document(pictures, title)


def _document(pictures: Sequence[_Picture], title: str) -> str:
    """Put pictures side by side while there is room, then below each other."""
    room = max([_ROW, *(picture.width for picture in pictures)])
    shapes, left, top, low, right = [], 0.0, 0.0, 0.0, 0.0
    for picture in pictures:
        if left and left + picture.width > room:
            left, top = 0.0, low + 2 * _GAP
        corner = f"{_MARGIN + left:.1f},{_MARGIN + top:.1f}"
        shapes += [f'<g transform="translate({corner})">', *picture.shapes, "</g>"]
        low, right = max(low, top + picture.height), max(right, left + picture.width)
        left += picture.width + _COLUMN_GAP
    return drawing.document(shapes, right + 2 * _MARGIN, low + 2 * _MARGIN, title)


def _merged(edges: Iterable[Edge]) -> dict[Ends, str]:
    """Join the labels of edges between the same boxes."""
    labels: dict[Ends, dict[str, None]] = {}
    for edge in edges:
        found = labels.setdefault((edge.source, edge.target), {})
        if edge.label:
            found[edge.label] = None
    return {
        ends: ", ".join(list(found)[:2]) + (f" +{len(found) - 2}" if len(found) > 2 else "")
        for ends, found in labels.items()
    }


def _parts(keys: list[str], arcs: Iterable[Ends]) -> tuple[list[list[str]], list[str]]:
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


def _draw(nodes: Sequence[Node], labels: dict[Ends, str]) -> _Picture:
    """Draw one connected part."""
    own = {node.id: node for node in nodes}
    arcs = [ends for ends in labels if ends[0] in own and ends[0] != ends[1]]
    found = layers.columns(list(own), arcs)
    boxes = _boxes(found, own, labels)
    arrows, notes = [], []
    for ends, stations in _routes(found, boxes):
        back = ends in found.backward
        arrows.append(drawing.arrow(stations[::-1] if back else stations, back=back))
        if labels[ends]:
            before, last = stations[-2:]
            middle = Point((before.x + last.x) / 2, (before.y + last.y) / 2 - 5)
            notes.append(drawing.note(middle, labels[ends]))
    shapes = [_node(own[key], boxes[key], labels) for key in own]
    width = max(box.x + box.width for box in boxes.values())
    height = max(box.y + box.height for box in boxes.values())
    return _Picture([*arrows, *shapes, *notes], width, height)


def _boxes(
    found: layers.Columns, own: dict[str, Node], labels: dict[Ends, str]
) -> dict[layers.Key, Box]:
    """Give each box and each station of an arrow its place."""
    sizes = {key: drawing.size(node.label, node.sub) for key, node in own.items()}
    tall: dict[layers.Key, float] = {
        key: sizes[key][1] + (2 * _LOOP if (key, key) in labels else 0.0)
        if isinstance(key, str)
        else _STATION
        for column in found.order
        for key in column
    }
    middle = layers.heights(found.order, found.chains.values(), tall, _GAP)
    boxes: dict[layers.Key, Box] = {}
    left = 0.0
    for column in found.order:
        width = max(sizes[key][0] for key in column if isinstance(key, str))
        for key in column:
            wide, high = sizes[key] if isinstance(key, str) else (width, 0.0)
            boxes[key] = Box(left, middle[key] - high / 2, wide, high)
        written = [labels[ends] for ends, chain in found.chains.items() if chain[-2] in column]
        longest = max((drawing.text_width(drawing.short(each), 5.6) for each in written), default=0)
        left += width + max(_COLUMN_GAP, min(longest, 220.0) + 36)
    return boxes


def _routes(
    found: layers.Columns, boxes: dict[layers.Key, Box]
) -> Iterator[tuple[Ends, list[Point]]]:
    """Yield the stations of each arrow from left to right; arrows share the side of a box."""
    height = {key: box.y + box.height / 2 for key, box in boxes.items()}
    leaving: dict[layers.Key, list[tuple[float, Ends]]] = {}
    reaching: dict[layers.Key, list[tuple[float, Ends]]] = {}
    for ends, chain in found.chains.items():
        leaving.setdefault(chain[0], []).append((height[chain[1]], ends))
        reaching.setdefault(chain[-1], []).append((height[chain[-2]], ends))
    for ends, chain in found.chains.items():
        first, last = boxes[chain[0]], boxes[chain[-1]]
        stations = [Point(first.x + first.width, _port(first, leaving[chain[0]], ends))]
        for key in chain[1:-1]:
            box = boxes[key]
            stations += [Point(box.x, box.y), Point(box.x + box.width, box.y)]
        yield ends, [*stations, Point(last.x, _port(last, reaching[chain[-1]], ends))]


def _port(box: Box, sharing: list[tuple[float, Ends]], ends: Ends) -> float:
    place = [each for _, each in sorted(sharing)].index(ends)
    return box.y + box.height * (place + 1) / (len(sharing) + 1)


def _node(node: Node, box: Box, labels: dict[Ends, str]) -> str:
    """Draw a box, and its arrow to itself if it has one."""
    shape = drawing.node(box, node.label, node.sub, node.kind)
    own = labels.get((node.id, node.id))
    if own is None:
        return shape
    corner = Point(box.x + box.width - 40, box.y - 6)
    return shape + drawing.loop(box) + (drawing.note(corner, own, "end") if own else "")


def _rows(nodes: Sequence[Node], labels: dict[Ends, str]) -> _Picture:
    """Draw boxes without arrows to others, side by side."""
    shapes, left, top, widest = [], 0.0, 0.0, 0.0
    rise = _LOOP if any((node.id, node.id) in labels for node in nodes) else 0.0
    for node in nodes:
        width, height = drawing.size(node.label, node.sub)
        if left and left + width > _ROW:
            left, top = 0.0, top + 46 + rise + _GAP
        shapes.append(_node(node, Box(left, top + rise, width, height), labels))
        widest = max(widest, left + width)
        left += width + _GAP
    return _Picture(shapes, widest, top + 46 + rise)
