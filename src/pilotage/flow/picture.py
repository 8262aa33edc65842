"""The graph of a flow: boxes with states, and arrows, each in its place.

A step that fans out is one box with its progress. Where the boxes stand depends on the definition
alone, so that a picture which is drawn anew while the flow goes on does not move.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile

import msgspec

from pilotage import units
from pilotage.flow import group, look
from pilotage.flow.look import StepRow
from pilotage.flow.model import Flow, State
from pilotage.rule import drawing, layers
from pilotage.rule.drawing import Point

#: Pixels: the height of a box, its bounds of width, and the room around boxes.
HIGH, NARROW, WIDE = 52.0, 204.0, 320.0
_GAP, _COLUMN_GAP, _MARGIN, _STATION = 20.0, 56.0, 16.0, 10.0
#: Who wins if the steps of one box are in several states.
_LOUDEST = (
    State.FAILED, State.HELD, State.CANCELLING, State.RUNNING, State.CANCELLED, State.WAITING,
    State.SKIPPED, State.DONE,
)  # fmt: skip


class Node(msgspec.Struct, frozen=True, kw_only=True):
    """A box: a step, or several that are alike."""

    id: str
    label: str
    #: The steps that it stands for.
    steps: list[str]
    state: str
    #: Tasks of a step that fans out, or steps of several: those that are over, and all.
    done: int = 0
    total: int = 0
    #: Whether it goes through a list, which may not be known yet.
    each: bool = False
    #: Where it runs or may run, what runs, since when, until when, and bytes left and read.
    sites: list[str] = []
    runs: str = ""
    started: float | None = None
    ended: float | None = None
    bytes: int = 0
    read: int = 0
    attempts: int = 0
    why: str = ""
    #: Its place and width in the picture.
    x: float = 0.0
    y: float = 0.0
    width: float = 0.0

    @property
    def title(self) -> str:
        """The first line: its name, and how far it is if it is many."""
        return f"{self.label} {self.done}/{self.total}" if self.total > 1 else self.label

    def sub(self, now: float) -> str:
        """Write the second line: where, how long and how much."""
        parts = [", ".join(self.sites[:2]) + (" …" if len(self.sites) > 2 else "")]
        if not self.state:
            parts = [self.runs + (" for each" if self.each else ""), *parts]
        if self.started is not None:
            parts.append(units.for_people(max(0.0, (self.ended or now) - self.started)))
        if self.bytes:
            parts.append(units.bytes_for_people(self.bytes))
        return " · ".join(part for part in parts if part) or self.runs


class Arrow(msgspec.Struct, frozen=True):
    """An arrow from box to box, with its way as SVG writes it."""

    source: str
    target: str
    path: str


class Picture(msgspec.Struct, frozen=True, kw_only=True):
    """Boxes and arrows, each in its place."""

    width: float
    height: float
    #: The height of all boxes.
    high: float = HIGH
    nodes: list[Node]
    arrows: list[Arrow]


def draw(steps: Sequence[StepRow]) -> Picture:
    """Put the steps of a flow into a picture."""
    rows = {one.name: one for one in steps}
    needs = {one.name: one.needs for one in steps}
    alike = group.groups(list(rows), needs, {one.name: one.runs for one in steps})
    nodes = [_node([rows[name] for name in names]) for names in alike]
    box_of = {name: node.id for node in nodes for name in node.steps}
    arcs = dict.fromkeys(
        (box_of[each], box_of[name])
        for name, before in needs.items()
        for each in before
        if each in box_of and box_of[each] != box_of[name]
    )
    return _arrange(nodes, list(arcs))


def plan(flow: Flow) -> list[StepRow]:
    """Show a definition as the steps of a flow that nobody has started."""
    return [
        StepRow(
            name=name, place=place, state="", reason="", total=0, open=0, failed=0, tasks={},
            started=None, ended=None, needs=list(one.needs), sites=list(one.sites),
            runs=look.runs(one), each=one.each is not None, attempts=0, files=0, bytes=0, read=0,
        )
        for place, (name, one) in enumerate(flow.steps.items())
    ]  # fmt: skip


def _node(rows: Sequence[StepRow]) -> Node:
    first = rows[0]
    if len(rows) == 1:
        return Node(
            id=first.name, label=first.name, steps=[first.name], state=first.state,
            done=first.done, total=first.total, each=first.each, sites=first.sites, runs=first.runs,
            started=first.started, ended=first.ended, bytes=first.bytes, read=first.read,
            attempts=first.attempts, why=first.why,
        )  # fmt: skip
    begun = [one.started for one in rows if one.started is not None]
    ends = [one.ended for one in rows]
    over = [one for one in rows if look.over(one.state)]
    states = {one.state for one in rows}
    state = next((str(each) for each in _LOUDEST if each in states), first.state)
    if state == State.WAITING and over:
        state = State.RUNNING
    bad = next((one for one in rows if one.state == State.FAILED and one.why), None)
    return Node(
        id=first.name, label=_common([one.name for one in rows]),
        steps=[one.name for one in rows], state=state, done=len(over), total=len(rows),
        sites=list(dict.fromkeys(site for one in rows for site in one.sites)), runs=first.runs,
        started=min(begun, default=None),
        ended=max((end for end in ends if end), default=None) if all(ends) else None,
        bytes=sum(one.bytes for one in rows), read=sum(one.read for one in rows),
        attempts=sum(one.attempts for one in rows),
        why=f"{bad.name}: {bad.why}" if bad else "",
    )  # fmt: skip


def _common(names: Sequence[str]) -> str:
    """Name steps by what their names begin with, or by the first and the last of them."""
    alike = takewhile(lambda letters: len(set(letters)) == 1, zip(*names, strict=False))
    stem = "".join(letters[0] for letters in alike).rstrip("0123456789-_.")
    return f"{stem}*" if stem else f"{names[0]} … {names[-1]}"


def _arrange(nodes: Sequence[Node], arcs: Sequence[layers.Arc]) -> Picture:
    found = layers.columns([node.id for node in nodes], arcs)
    wide = {node.id: _width(node) for node in nodes}
    tall: dict[layers.Key, float] = {
        key: HIGH if isinstance(key, str) else _STATION for column in found.order for key in column
    }
    middle = layers.heights(found.order, found.chains.values(), tall, _GAP)
    boxes: dict[layers.Key, tuple[float, float]] = {}
    left = _MARGIN
    for column in found.order:
        width = max((wide[key] for key in column if isinstance(key, str)), default=NARROW)
        for key in column:
            boxes[key] = (left, width)
        left += width + _COLUMN_GAP
    placed = [
        msgspec.structs.replace(
            node, x=round(boxes[node.id][0], 1), width=round(boxes[node.id][1], 1),
            y=round(_MARGIN + middle[node.id] - HIGH / 2, 1),
        )
        for node in nodes
    ]  # fmt: skip
    arrows = [
        Arrow(*ends, _path([_MARGIN + middle[key] for key in chain], [boxes[key] for key in chain]))
        for ends, chain in found.chains.items()
    ]
    low = max((node.y + HIGH for node in placed), default=0.0)
    return Picture(
        width=round(left - _COLUMN_GAP + _MARGIN, 1), height=round(low + _MARGIN, 1),
        nodes=placed, arrows=arrows,
    )  # fmt: skip


def _path(heights: Sequence[float], boxes: Sequence[tuple[float, float]]) -> str:
    """Lead an arrow from the right side of its first box through its stations to the last."""
    stations = [Point(boxes[0][0] + boxes[0][1], heights[0])]
    for height, (left, width) in list(zip(heights, boxes, strict=True))[1:-1]:
        stations += [Point(left, height), Point(left + width, height)]
    stations.append(Point(boxes[-1][0] - 2, heights[-1]))
    return drawing.way(stations)


def _width(node: Node) -> float:
    # Room for numbers that are not known yet, so that boxes stay where they are.
    label = f"{node.label} 0000/0000" if node.each or len(node.steps) > 1 else node.label
    return min(WIDE, max(NARROW, drawing.text_width(label, 7.6) + 44))
