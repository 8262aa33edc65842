"""The shapes of a picture of boxes and arrows, as SVG."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence
from html import escape
from typing import NamedTuple

from pilotage import text

#: Fill and line of a box, by what it is.
COLOURS = {
    "": ("#f4f5f7", "#8b93a1"),
    "file": ("#e9f1fc", "#3b78c4"),
    "timer": ("#fdf4e3", "#c98a1b"),
    "message": ("#f2ecfc", "#8257c2"),
    "job": ("#e5f5f3", "#2a938a"),
    "output": ("#ffffff", "#9aa1ad"),
    "waiting": ("#f4f5f7", "#8b93a1"),
    "queued": ("#f4f5f7", "#8b93a1"),
    "running": ("#e9f1fc", "#3b78c4"),
    "done": ("#e8f6ec", "#3d9a57"),
    "failed": ("#fdecec", "#cc4747"),
    "cancelled": ("#f1eff0", "#9a8f93"),
    "rejected": ("#fdecec", "#cc4747"),
    "held": ("#fdf4e3", "#c98a1b"),
}

_MOST_CHARS = 44
_STYLE = """\
.pg{background:#fff;font-family:system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",sans-serif}
.pg .box{stroke-width:1.4}
.pg .label{font-size:13px;font-weight:600;fill:#1f2530}
.pg .sub{font-size:11px;fill:#5b6472}
.pg .edge{fill:none;stroke:#7d8694;stroke-width:1.4}
.pg .back{stroke-dasharray:5 4}
.pg .head{fill:#7d8694}
.pg .note{font-size:10.5px;fill:#5b6472;stroke:#fff;stroke-width:4;stroke-linejoin:round;\
paint-order:stroke}"""


class Point(NamedTuple):
    """A place in the picture."""

    x: float
    y: float


class Box(NamedTuple):
    """A rectangle in the picture."""

    x: float
    y: float
    width: float
    height: float


def size(label: str, sub: str) -> tuple[float, float]:
    """Return the width and height of a box with one or two lines."""
    width = max(text_width(short(label), 7.7), text_width(short(sub), 6.3))
    return max(70.0, width + 28), 46.0 if sub else 32.0


def short(value: str) -> str:
    """Make text printable and not too long."""
    shown = text.show(value)
    return shown if len(shown) <= _MOST_CHARS else shown[: _MOST_CHARS - 1] + "…"


def text_width(value: str, em: float) -> float:
    """Estimate how wide text is, given the width of a usual letter."""
    return sum(em * (1.7 if unicodedata.east_asian_width(char) in "WF" else 1) for char in value)


def node(box: Box, label: str, sub: str, kind: str) -> str:
    """Draw a box with its text; the whole text is its tooltip."""
    fill, line = COLOURS.get(kind, COLOURS[""])
    middle = box.x + box.width / 2
    dash = ' stroke-dasharray="3 3"' if kind == "output" else ""
    parts = [
        f"<g><title>{xml(label)}{xml(chr(10) + sub) if sub else ''}</title>",
        f'<rect class="box" {_frame(box)} rx="9" fill="{fill}" stroke="{line}"{dash}/>',
        _text("label", middle, box.y + (20 if sub else 21), label),
    ]
    if sub:
        parts.append(_text("sub", middle, box.y + 36, sub))
    return "".join(parts) + "</g>"


def arrow(stations: Sequence[Point], *, back: bool = False) -> str:
    """Draw an arrow that bends between stations and runs straight through pairs of them."""
    kind = "edge back" if back else "edge"
    return f'<path class="{kind}" d="{way(stations)}" marker-end="url(#pg-head)"/>'


def way(stations: Sequence[Point]) -> str:
    """Write the way of an arrow as SVG has it."""
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


def loop(box: Box) -> str:
    """Draw an arrow from a box to itself, over its right shoulder."""
    left, right = box.x + box.width - 34, box.x + box.width - 14
    path = f"M{left:.1f} {box.y:.1f}c0 -24 20 -24 {right - left:.1f} 0"
    return f'<path class="edge" d="{path}" marker-end="url(#pg-head)"/>'


def note(at: Point, label: str, anchor: str = "middle") -> str:
    """Write beside an arrow."""
    return _text("note", at.x, at.y, label, anchor)


def document(shapes: Iterable[str], width: float, height: float, title: str) -> str:
    """Put shapes into a picture that stands alone or inside of a page."""
    name = f"<title>{xml(title)}</title>" if title else ""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="pg" role="img" width="{width:.0f}" '
        f'height="{height:.0f}" viewBox="0 0 {width:.0f} {height:.0f}">{name}'
        f"<style>{_STYLE}</style>"
        '<defs><marker id="pg-head" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" '
        'markerHeight="7" orient="auto-start-reverse"><path class="head" d="M0 0L10 5L0 10z"/>'
        "</marker></defs>" + "\n".join(shapes) + "</svg>\n"
    )


def _text(kind: str, x: float, y: float, value: str, anchor: str = "middle") -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"'
    return f'<text class="{kind}" {place}>{xml(short(value))}</text>'


def _frame(box: Box) -> str:
    place = f'x="{box.x:.1f}" y="{box.y:.1f}"'
    return f'{place} width="{box.width:.1f}" height="{box.height:.1f}"'


def xml(value: str) -> str:
    """Make text fit for SVG."""
    return escape("\n".join(text.show(line) for line in value.split("\n")), quote=True)
