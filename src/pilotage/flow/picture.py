"""The graph of a flow: boxes with states, and arrows, each in its place.

A step that fans out is one box with its progress. Where the boxes stand depends on the definition
alone, so that boxes do not move when the picture is drawn again while the flow goes on.

In a flow with many steps, those that are alike become one box: steps that run the same, follow on
alike steps and are followed by alike steps, whatever their names are. If that leaves too many,
chains become one box too; and if that still does, so does all that may run at the same time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import takewhile

import msgspec

from pilotage.base import units
from pilotage.draw import graph, layout, svg
from pilotage.draw.graph import Graph, GraphEdge
from pilotage.flow import view
from pilotage.flow.model import Flow, FlowState
from pilotage.flow.view import StepSummary

#: Pixels: the height of a box, and its bounds of width.
HIGH, NARROW, WIDE = 52.0, 204.0, 320.0
#: Steps up to which each has a box of its own, and boxes that are drawn at most.
FEW, MOST = 40, 300
#: Which state a box shows if its steps are in several.
_LOUDEST = (
    FlowState.FAILED,
    FlowState.HELD,
    FlowState.CANCELLING,
    FlowState.RUNNING,
    FlowState.CANCELLED,
    FlowState.WAITING,
    FlowState.SKIPPED,
    FlowState.DONE,
)

#: The predecessors of each step.
Needs = Mapping[str, Sequence[str]]


class StepBox(msgspec.Struct, frozen=True, kw_only=True):
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


class FlowArrow(msgspec.Struct, frozen=True):
    """An arrow from box to box, with its line as the `d` of an SVG path."""

    source: str
    target: str
    path: str


class FlowPicture(msgspec.Struct, frozen=True, kw_only=True):
    """Boxes and arrows, each in its place."""

    width: float
    height: float
    #: The height of all boxes.
    high: float = HIGH
    nodes: list[StepBox]
    arrows: list[FlowArrow]


def draw(steps: Sequence[StepSummary]) -> FlowPicture:
    """Place the steps of a flow in a picture."""
    rows = {one.name: one for one in steps}
    needs = {one.name: one.needs for one in steps}
    alike = _groups(list(rows), needs, {one.name: one.runs for one in steps})
    nodes = [_node([rows[name] for name in names]) for names in alike]
    box_of = {name: node.id for node in nodes for name in node.steps}
    arcs = {
        (box_of[each], box_of[name]): ""
        for name, before in needs.items()
        for each in before
        if each in box_of and box_of[each] != box_of[name]
    }
    placed = layout.arrange({node.id: (_width(node), HIGH) for node in nodes}, arcs)
    return FlowPicture(
        width=round(placed.width, 1), height=round(placed.height, 1),
        nodes=[_at(node, placed.boxes[node.id]) for node in nodes],
        arrows=[FlowArrow(one.source, one.target, one.path) for one in placed.arrows],
    )  # fmt: skip


def plan(flow: Flow) -> list[StepSummary]:
    """Show a definition as the steps of a flow that is not started."""
    return [
        StepSummary(
            name=name, place=place, state="", reason="", total=0, open=0, failed=0, tasks={},
            started=None, ended=None, needs=list(one.needs), sites=list(one.sites),
            runs=view.runs(one), each=one.each is not None, attempts=0, files=0, bytes=0, read=0,
        )
        for place, (name, one) in enumerate(flow.steps.items())
    ]  # fmt: skip


def _node(rows: Sequence[StepSummary]) -> StepBox:
    first = rows[0]
    if len(rows) == 1:
        return StepBox(
            id=first.name, label=first.name, steps=[first.name], state=first.state,
            done=first.done, total=first.total, each=first.each, sites=first.sites, runs=first.runs,
            started=first.started, ended=first.ended, bytes=first.bytes, read=first.read,
            attempts=first.attempts, why=first.why,
        )  # fmt: skip
    begun = [one.started for one in rows if one.started is not None]
    ends = [one.ended for one in rows]
    over = [one for one in rows if view.over(one.state)]
    states = {one.state for one in rows}
    state = next((str(each) for each in _LOUDEST if each in states), first.state)
    if state == FlowState.WAITING and over:
        state = FlowState.RUNNING
    bad = next((one for one in rows if one.state == FlowState.FAILED and one.why), None)
    return StepBox(
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


def _at(node: StepBox, box: svg.Box) -> StepBox:
    place = {"x": round(box.x, 1), "y": round(box.y, 1), "width": round(box.width, 1)}
    return msgspec.structs.replace(node, **place)


def _width(node: StepBox) -> float:
    # Room for numbers that are not known yet, so that boxes stay where they are.
    label = f"{node.label} 0000/0000" if node.each or len(node.steps) > 1 else node.label
    return min(WIDE, max(NARROW, svg.text_width(label, 7.6) + 44))


def as_graph(found: FlowPicture, now: float) -> Graph:
    """Return it for SVG, Mermaid and text."""
    edges = [GraphEdge(one.source, one.target) for one in found.arrows]
    return Graph([_drawn(node, now) for node in found.nodes], edges)


def _drawn(node: StepBox, now: float) -> graph.GraphNode:
    sub = node.sub(now)
    state = "" if node.state == FlowState.DONE else node.state.replace("_", " ")
    line = " · ".join(part for part in (state, sub) if part)
    if node.why and node.state != FlowState.DONE:
        line += f": {node.why}"
    told = (node.title, node.state, node.why, node.runs, ", ".join(node.sites))
    return graph.GraphNode(
        node.id, node.title, sub, node.state or "planned", hint="\n".join(filter(None, told)),
        line=line, progress=node.done / node.total if node.total > 1 else None,
    )  # fmt: skip


# -- steps that are alike -------------------------------------------------------------------------


def _groups(names: Sequence[str], needs: Needs, runs: Mapping[str, str]) -> list[list[str]]:
    """Group steps that are shown as one box; each group is in the order of the steps."""
    if len(names) <= FEW:
        return [[name] for name in names]
    order, after = _order(names, needs)
    known = set(names)
    before = {name: [each for each in needs.get(name, ()) if each in known] for name in names}
    past = _colours(order, before, runs)
    future = _colours(list(reversed(order)), after, runs)
    found = _by(names, {name: (past[name], future[name]) for name in names})
    if len(found) > FEW:
        found = _chains(found, needs)
    if len(found) > MOST:
        depth = _depths(order, before)
        found = _chains(_by(names, {name: (depth[name],) for name in names}), needs)
    return found


def _by(names: Sequence[str], keys: Mapping[str, tuple[int, ...]]) -> list[list[str]]:
    found: dict[tuple[int, ...], list[str]] = {}
    for name in names:
        found.setdefault(keys[name], []).append(name)
    return list(found.values())


def _order(names: Sequence[str], needs: Needs) -> tuple[list[str], dict[str, list[str]]]:
    """Sort steps so that each comes after what it needs; and return what follows on each."""
    after: dict[str, list[str]] = {name: [] for name in names}
    missing = dict.fromkeys(names, 0)
    for name in names:
        for each in needs.get(name, ()):
            if each in after:
                after[each].append(name)
                missing[name] += 1
    order = [name for name in names if not missing[name]]
    for name in order:
        for following in after[name]:
            missing[following] -= 1
            if not missing[following]:
                order.append(following)
    return order, after


def _colours(
    order: Sequence[str], near: Mapping[str, Sequence[str]], runs: Mapping[str, str]
) -> dict[str, int]:
    """Give one number to steps that run the same and have neighbours with the same numbers."""
    seen: dict[tuple[str, frozenset[int]], int] = {}
    colours: dict[str, int] = {}
    for name in order:
        key = (runs.get(name, ""), frozenset(colours[each] for each in near[name]))
        colours[name] = seen.setdefault(key, len(seen))
    return colours


def _depths(order: Sequence[str], before: Mapping[str, Sequence[str]]) -> dict[str, int]:
    depths: dict[str, int] = {}
    for name in order:
        depths[name] = 1 + max((depths[each] for each in before[name]), default=-1)
    return depths


def _chains(found: Sequence[Sequence[str]], needs: Needs) -> list[list[str]]:
    """Join groups that follow on each other and on nothing else, but for the ends of a chain."""
    group_of = {name: number for number, group in enumerate(found) for name in group}
    into: list[set[int]] = [set() for _ in found]
    out: list[set[int]] = [set() for _ in found]
    for name, number in group_of.items():
        for each in needs.get(name, ()):
            if each in group_of and group_of[each] != number:
                into[number].add(group_of[each])
                out[group_of[each]].add(number)
    single = [len(into[at]) == 1 and len(out[at]) == 1 for at in range(len(found))]
    joined: list[list[str]] = []
    taken: set[int] = set()
    for number, group in enumerate(found):
        if number in taken:
            continue
        taken.add(number)
        chain = list(group)
        at = number
        while single[at] and single[at := next(iter(out[at]))] and at not in taken:
            taken.add(at)
            chain += found[at]
        joined.append(chain)
    return joined
