"""Shapes, colours and text of all pictures, as SVG."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator
from html import escape
from typing import NamedTuple

from pilotage.base import text, units

INK, SOFT, LINE, FAILED = "#23303b", "#63707c", "#dde3e8", "#b3261e"
#: Colours of things that are told apart by nothing else, in order.
_PALETTE = (
    "#3f7cac", "#e08e45", "#4f9d69", "#a05c9c", "#c8553d", "#5aa9a3", "#8d7b4f", "#7a7fc4",
)  # fmt: skip

_MOST_CHARS = 44
#: Seconds between the marks of a time axis, of which there are at most ten, not counting 0.
_STEPS = (
    0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1800, 3600, 7200,
    14400, 21600, 43200, 86400, 172800, 604800, 2592000,
)  # fmt: skip
_MOST_MARKS = 10
_STYLE = f"""\
.pg{{background:#fff;font:12px system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",sans-serif}}
.pg .box{{stroke-width:1.4}}
.pg .label{{font-size:13px;font-weight:600;fill:#1f2530}}
.pg .sub{{font-size:11px;fill:#5b6472}}
.pg .edge{{fill:none;stroke:#7d8694;stroke-width:1.4}}
.pg .back{{stroke-dasharray:5 4}}
.pg .head{{fill:#7d8694}}
.pg .note{{font-size:10.5px;fill:#5b6472;stroke:#fff;stroke-width:4;stroke-linejoin:round;\
paint-order:stroke}}
.pg .lane{{fill:{INK}}}
.pg .mark{{fill:{SOFT}}}
.pg .rule{{stroke:{LINE}}}"""
_HEAD = (
    '<defs><marker id="pg-head" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" '
    'markerHeight="7" orient="auto-start-reverse"><path class="head" d="M0 0L10 5L0 10z"/>'
    "</marker></defs>"
)


class Point(NamedTuple):
    """A position in a picture, in pixels."""

    x: float
    y: float


class Box(NamedTuple):
    """A rectangle in a picture."""

    x: float
    y: float
    width: float
    height: float

    @property
    def right(self) -> float:
        """Its right side."""
        return self.x + self.width

    @property
    def bottom(self) -> float:
        """Its lower side."""
        return self.y + self.height


class Picture(NamedTuple):
    """A whole SVG document, fit for a file of its own or inside a page; empty if nothing is in it.

    All text in it is escaped.
    """

    svg: str = ""
    width: float = 0.0


def document(shapes: Iterable[str], width: float, height: float, title: str) -> Picture:
    """Put shapes into a picture with a title, which readers of screens say aloud."""
    shown = (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="pg" role="img" width="{width:.0f}" '
        f'height="{height:.0f}" viewBox="0 0 {width:.0f} {height:.0f}">'
        + (f"<title>{xml(title)}</title>" if title else "")
        + f"<style>{_STYLE}</style>{_HEAD}"
    )
    return Picture(shown + "\n".join(shapes) + "</svg>\n", width)


def rect(box: Box, look: str, radius: float = 0.0, hint: str = "") -> str:
    """Draw a rectangle; `look` are further attributes, `hint` is its tooltip."""
    round_ = f' rx="{radius:.1f}"' if radius else ""
    frame = f'x="{box.x:.1f}" y="{box.y:.1f}" width="{box.width:.1f}" height="{box.height:.1f}"'
    inside = f"><title>{xml(hint)}</title></rect>" if hint else "/>"
    return f"<rect {frame}{round_} {look}{inside}"


def write(kind: str, at: Point, value: str, anchor: str = "middle", lead: str = "") -> str:
    """Write text of a kind; `lead` is markup before it."""
    place = f'x="{at.x:.1f}" y="{at.y:.1f}" text-anchor="{anchor}"'
    return f'<text class="{kind}" {place}>{lead}{xml(short(value))}</text>'


def rule(start: Point, end: Point) -> str:
    """Draw a thin line of an axis or a grid."""
    ends = f'x1="{start.x:.1f}" y1="{start.y:.1f}" x2="{end.x:.1f}" y2="{end.y:.1f}"'
    return f'<line class="rule" {ends}/>'


def time_marks(seconds: float) -> Iterator[tuple[float, str]]:
    """Yield where marks of a time axis are, in seconds from its start, and what they say."""
    step = next((one for one in _STEPS if seconds / one <= _MOST_MARKS), _STEPS[-1])
    for number in range(int(seconds / step) + 1):
        at = number * step
        yield at, f"{at:g} s" if 0 < at < 60 else units.for_people(at) if at else "0"


def short(value: str) -> str:
    """Make text printable and cut it if it is long."""
    shown = text.show(value)
    return shown if len(shown) <= _MOST_CHARS else shown[: _MOST_CHARS - 1] + "…"


def text_width(value: str, em: float) -> float:
    """Estimate how wide text is, given the width of a usual letter."""
    return sum(em * (1.7 if unicodedata.east_asian_width(char) in "WF" else 1) for char in value)


def xml(value: str) -> str:
    """Escape text for SVG."""
    return escape("\n".join(text.show(line) for line in value.split("\n")), quote=True)


def palette(names: Iterable[str]) -> dict[str, str]:
    """Give each name a colour, in order."""
    known = dict.fromkeys(names)
    return {name: _PALETTE[at % len(_PALETTE)] for at, name in enumerate(known)}
