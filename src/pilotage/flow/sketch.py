"""The graph of a flow as SVG, as Mermaid, and as trees of text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from pilotage import text
from pilotage.flow.picture import HIGH, Node, Picture
from pilotage.rule import drawing

_SIGNS = {
    "waiting": "·", "queued": "○", "running": "▶", "done": "✓", "failed": "✗", "skipped": "↷",
    "cancelled": "–", "held": "‖", "cancelling": "–",
}  # fmt: skip
#: Fill, line and bar of a box by state.
_COLOURS = {
    "running": ("#e9f1fc", "#3b78c4"),
    "staging_out": ("#e9f1fc", "#3b78c4"),
    "done": ("#e8f6ec", "#3d9a57"),
    "failed": ("#fdecec", "#cc4747"),
    "held": ("#fdf4e3", "#c98a1b"),
    "cancelling": ("#fdf4e3", "#c98a1b"),
}
_PLAIN = ("#f4f5f7", "#8b93a1")


def as_svg(found: Picture, title: str, now: float) -> str:
    """Draw it for itself."""
    shapes = [f'<path class="edge" d="{one.path}" marker-end="url(#pg-head)"/>'
              for one in found.arrows]  # fmt: skip
    shapes += [_box(node, now) for node in found.nodes]
    return drawing.document(shapes, found.width, found.height, title)


def _box(node: Node, now: float) -> str:
    fill, line = _COLOURS.get(node.state, _PLAIN)
    dash = ' stroke-dasharray="4 3"' if node.state in ("skipped", "cancelled", "") else ""
    frame = f'x="{node.x}" y="{node.y}" width="{node.width}" height="{HIGH:g}" rx="8"'
    middle = node.x + node.width / 2
    most = int((node.width - 20) / 7.2)
    said = "\n".join(
        part
        for part in (node.title, node.state, node.why, node.runs, ", ".join(node.sites))
        if part
    )
    sign = _SIGNS.get(node.state, "")
    label = _cut(node.title, most - 2)
    shapes = [
        f"<g><title>{drawing.xml(said)}</title>",
        f'<rect class="box" {frame} fill="{fill}" stroke="{line}"{dash}/>',
        f'<text class="label" x="{middle:.1f}" y="{node.y + 21:.1f}" text-anchor="middle">'
        + (f'<tspan fill="{line}">{sign} </tspan>' if sign else "")
        + f"{drawing.xml(label)}</text>",
        _sub(node, middle, now),
    ]
    if node.total > 1:
        part = (node.width - 20) * node.done / node.total
        shapes.append(
            f'<rect x="{node.x + 10:.1f}" y="{node.y + 44:.1f}" width="{node.width - 20:.1f}" '
            f'height="3" rx="1.5" fill="{line}" opacity="0.2"/>'
            f'<rect x="{node.x + 10:.1f}" y="{node.y + 44:.1f}" width="{part:.1f}" height="3" '
            f'rx="1.5" fill="{line}"/>'
        )
    return "".join(shapes) + "</g>"


def _sub(node: Node, middle: float, now: float) -> str:
    words = drawing.xml(_cut(node.sub(now), int((node.width - 16) / 5.6)))
    place = f'x="{middle:.1f}" y="{node.y + 37:.1f}"'
    return f'<text class="sub" {place} text-anchor="middle">{words}</text>'


def _cut(value: str, most: int) -> str:
    shown = text.show(value)
    return shown if len(shown) <= most else shown[: max(1, most - 1)] + "…"


def as_mermaid(found: Picture, now: float) -> str:
    """Write it for Mermaid, with the colours of the states."""
    number = {node.id: f"n{at}" for at, node in enumerate(found.nodes)}
    lines = ["flowchart LR"]
    for node in found.nodes:
        sub = node.sub(now)
        words = _quoted(node.title) + (f"<br/><small>{_quoted(sub)}</small>" if sub else "")
        kind = f":::{node.state}" if node.state else ""
        lines.append(f'    {number[node.id]}["{words}"]{kind}')
    lines += [f"    {number[one.source]} --> {number[one.target]}" for one in found.arrows]
    for state in sorted({node.state for node in found.nodes if node.state}):
        fill, line = _COLOURS.get(state, _PLAIN)
        dash = ",stroke-dasharray:4 3" if state in ("skipped", "cancelled") else ""
        lines.append(f"    classDef {state} fill:{fill},stroke:{line},color:#1f2530{dash}")
    return "\n".join(lines) + "\n"


def _quoted(value: str) -> str:
    return re.sub(r"[^\w ./*(),:=+·…✓-]", lambda found: f"#{ord(found[0])};", text.show(value))


def as_text(found: Picture, now: float) -> str:
    """Write it as trees for a terminal; what was shown before is only named."""
    nodes = {node.id: node for node in found.nodes}
    after: dict[str, list[str]] = {}
    for one in found.arrows:
        after.setdefault(one.source, []).append(one.target)
    reached = {one.target for one in found.arrows}
    lines: list[str] = []
    shown: set[str] = set()
    for root in (key for key in nodes if key not in reached):
        lines += _tree(root, nodes, after, shown, now)
    return "\n".join(lines) + "\n" if lines else ""


def _tree(
    root: str,
    nodes: Mapping[str, Node],
    after: Mapping[str, Sequence[str]],
    shown: set[str],
    now: float,
) -> Iterable[str]:
    """Write a box and what follows from it, without recursion: chains may be long."""
    stack = [(root, "", "")]
    while stack:
        key, lead, indent = stack.pop()
        again = key in shown
        yield lead + (f"{nodes[key].label} ↑" if again else _title(nodes[key], now))
        if again:
            continue
        shown.add(key)
        following = after.get(key, ())
        for at, each in reversed(list(enumerate(following))):
            final = at == len(following) - 1
            # A chain runs straight down; only a branch is set in.
            stack.append(
                (each, indent + ("└─ " if final else "├─ "), indent + ("   " if final else "│  "))
            )


def _title(node: Node, now: float) -> str:
    sign = _SIGNS.get(node.state, "")
    state = "" if node.state in ("", "done") else node.state.replace("_", " ")
    facts = " · ".join(part for part in (state, node.sub(now)) if part)
    head = f"{sign} {text.show(node.title)}" if sign else text.show(node.title)
    told = f"{head}  {facts}" if facts else head
    return f"{told}: {text.show(node.why)}" if node.why and node.state != "done" else told
