"""Boxes and arrows as SVG, as Mermaid, and as trees of text."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from pilotage.base import text
from pilotage.draw import layout, svg
from pilotage.draw.svg import Box, Picture, Point

#: Fill and line of a box by its kind: what fires a rule, or the state of a job or a step.
_COLOURS = {
    "file": ("#e9f1fc", "#3b78c4"),
    "timer": ("#fdf4e3", "#c98a1b"),
    "message": ("#f2ecfc", "#8257c2"),
    "job": ("#e5f5f3", "#2a938a"),
    "output": ("#ffffff", "#9aa1ad"),
    "running": ("#e9f1fc", "#3b78c4"),
    "staging_out": ("#e9f1fc", "#3b78c4"),
    "done": ("#e8f6ec", "#3d9a57"),
    "failed": ("#fdecec", "#cc4747"),
    "rejected": ("#fdecec", "#cc4747"),
    "held": ("#fdf4e3", "#c98a1b"),
    "cancelling": ("#fdf4e3", "#c98a1b"),
}
_PLAIN = ("#f4f5f7", "#8b93a1")
#: States are told by a sign as well: not everybody sees colours.
_SIGNS = {
    "waiting": "·", "queued": "○", "running": "▶", "staging_out": "▶", "done": "✓", "failed": "✗",
    "rejected": "✗", "skipped": "↷", "cancelled": "–", "cancelling": "–", "held": "‖",
}  # fmt: skip
_DASHED = ("output", "planned", "skipped", "cancelled")
#: Pixels: the least width of a box; its height with one line, with two, and with a bar of progress.
_NARROW, _LOW, _USUAL, _HIGH = 120.0, 32.0, 46.0, 52.0


class GraphNode(msgspec.Struct, frozen=True):
    """A box."""

    #: What edges call it.
    id: str
    #: The first line.
    label: str
    #: The second line, smaller.
    sub: str = ""
    #: What fires it or which state it is in, for its colour and sign.
    kind: str = ""
    #: How much of it is done, from 0 to 1, for a bar.
    progress: float | None = None
    #: Its tooltip, and what a line of text says after its label; else the second line.
    hint: str = ""
    line: str = ""


class GraphEdge(msgspec.Struct, frozen=True):
    """An arrow between boxes."""

    #: The `id` of the box that it leaves, and of the one that it reaches.
    source: str
    target: str
    #: What is written beside it.
    label: str = ""


class Graph(msgspec.Struct, frozen=True):
    """Boxes and arrows."""

    nodes: Sequence[GraphNode]
    edges: Sequence[GraphEdge]


# -- SVG ------------------------------------------------------------------------------------------


def as_svg(found: Graph, title: str = "") -> Picture:
    """Draw it; arrows to or from unknown boxes are left out."""
    known = {node.id: node for node in found.nodes}
    labels = _labels(found.edges, known)
    sizes = {key: _size(node, labels.get((key, key), "")) for key, node in known.items()}
    placed = layout.arrange(sizes, labels)
    shapes = [
        f'<path class="edge{" back" if one.back else ""}" d="{one.path}" '
        'marker-end="url(#pg-head)"/>'
        for one in placed.arrows
    ]
    shapes += [_box(known[key], box) for key, box in placed.boxes.items()]
    shapes += [
        svg.write("note", one.note, label, one.anchor)
        for one in placed.arrows
        if (label := labels[one.source, one.target])
    ]
    return svg.document(shapes, placed.width, placed.height, title)


def _labels(edges: Sequence[GraphEdge], known: Mapping[str, GraphNode]) -> dict[layout.Arc, str]:
    """Join the labels of edges between the same boxes."""
    labels: dict[layout.Arc, dict[str, None]] = {}
    for edge in edges:
        if edge.source in known and edge.target in known:
            found = labels.setdefault((edge.source, edge.target), {})
            if edge.label:
                found[edge.label] = None
    return {
        arc: ", ".join(list(found)[:2]) + (f" +{len(found) - 2}" if len(found) > 2 else "")
        for arc, found in labels.items()
    }


def _size(node: GraphNode, loop: str) -> tuple[float, float]:
    """Return the width and height of a box, wide enough for the label of an arrow to itself."""
    width = max(
        svg.text_width(svg.short(node.label), 7.7) + (14 if node.kind in _SIGNS else 0) + 28,
        svg.text_width(svg.short(node.sub), 6.3) + 28,
        svg.text_width(svg.short(loop), 5.6) + 44 if loop else 0.0,
        _NARROW,
    )
    return width, _LOW if not node.sub else _USUAL if node.progress is None else _HIGH


def _box(node: GraphNode, box: Box) -> str:
    """Draw a box with its text; the whole text is its tooltip."""
    fill, line = _COLOURS.get(node.kind, _PLAIN)
    dash = ' stroke-dasharray="4 3"' if node.kind in _DASHED else ""
    sign = _SIGNS.get(node.kind)
    middle = box.x + box.width / 2
    hint = node.hint or f"{node.label}\n{node.sub}".rstrip("\n")
    parts = [
        f"<g><title>{svg.xml(hint)}</title>",
        svg.rect(box, f'class="box" fill="{fill}" stroke="{line}"{dash}', 9),
        svg.write(
            "label", Point(middle, box.y + (20 if node.sub else 21)), node.label,
            lead=f'<tspan fill="{line}">{sign} </tspan>' if sign else "",
        ),
    ]  # fmt: skip
    if node.sub:
        parts.append(svg.write("sub", Point(middle, box.y + 36), node.sub))
    if node.progress is not None:
        rail = Box(box.x + 10, box.bottom - 8, box.width - 20, 3)
        bar = rail._replace(width=rail.width * node.progress)
        parts.append(svg.rect(rail, f'fill="{line}" opacity="0.2"', 1.5))
        parts.append(svg.rect(bar, f'fill="{line}"', 1.5))
    return "".join(parts) + "</g>"


# -- text -----------------------------------------------------------------------------------------


def as_mermaid(found: Graph) -> str:
    """Write it for Mermaid, which many pages and notebooks draw."""
    number = {node.id: f"n{at}" for at, node in enumerate(found.nodes)}
    lines = ["flowchart LR"]
    for node in found.nodes:
        words = _quoted(node.label) + (
            f"<br/><small>{_quoted(node.sub)}</small>" if node.sub else ""
        )
        left, right = ("([", "])") if node.kind == "output" else ("[", "]")
        kind = f":::{node.kind}" if node.kind else ""
        lines.append(f'    {number[node.id]}{left}"{words}"{right}{kind}')
    for edge in found.edges:
        arrow = f'-- "{_quoted(edge.label)}" -->' if edge.label else "-->"
        lines.append(f"    {number[edge.source]} {arrow} {number[edge.target]}")
    for kind in sorted({node.kind for node in found.nodes if node.kind}):
        fill, line = _COLOURS.get(kind, _PLAIN)
        dash = ",stroke-dasharray:4 3" if kind in _DASHED else ""
        lines.append(f"    classDef {kind} fill:{fill},stroke:{line},color:#1f2530{dash}")
    return "\n".join(lines) + "\n"


def _quoted(value: str) -> str:
    return re.sub(r"[^\w ./*(),:=+·…✓-]", lambda found: f"#{ord(found[0])};", text.show(value))


def as_text(found: Graph) -> str:
    """Write it as trees for a terminal; a box that was shown before is only named."""
    nodes = {node.id: node for node in found.nodes}
    after: dict[str, list[GraphEdge]] = {}
    for edge in found.edges:
        after.setdefault(edge.source, []).append(edge)
    reached = {edge.target for edge in found.edges if edge.source != edge.target}
    lines: list[str] = []
    shown: set[str] = set()
    for root in sorted(nodes, key=lambda key: key in reached):
        if root not in shown:
            lines += _tree(root, nodes, after, shown)
    return "\n".join(lines) + "\n" if lines else ""


def _tree(
    root: str,
    nodes: Mapping[str, GraphNode],
    after: Mapping[str, Sequence[GraphEdge]],
    shown: set[str],
) -> Iterator[str]:
    """Write a box and what follows from it, without recursion: chains may be long."""
    stack = [(root, "", "")]
    while stack:
        key, lead, indent = stack.pop()
        if key in shown:
            yield f"{lead}{text.show(nodes[key].label)} ↑"
            continue
        yield lead + _line(nodes[key])
        shown.add(key)
        following = after.get(key, ())
        for left, edge in enumerate(reversed(following)):
            branch, deeper = ("├─ ", "│  ") if left else ("└─ ", "   ")
            via = f"{text.show(edge.label)} → " if edge.label else ""
            stack.append((edge.target, indent + branch + via, indent + deeper))


def _line(node: GraphNode) -> str:
    sign = _SIGNS.get(node.kind)
    head = f"{sign} {text.show(node.label)}" if sign else text.show(node.label)
    facts = node.line or node.sub
    return f"{head}  {text.show(facts)}" if facts else head
