"""Curves of several policies below each other, as one picture."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from xml.sax.saxutils import escape

from .film import Film

_WIDE, _HIGH, _LEFT, _TOP, _GAP = 820, 150, 60, 34, 46
_POINTS = 600
_SERIES = (
    ("supply", "cores", "#2a62a8", ""),
    ("demand", "demand", "#c9731f", "6 3"),
    ("used", "in use", "#3d8b59", ""),
)
_STYLE = """\
text { font: 12px system-ui, sans-serif; fill: #566471; }
text.name { font-size: 14px; font-weight: 600; fill: #1d2a35; }
line { stroke: #dde3e8; }
@media (prefers-color-scheme: dark) {
  rect.ground { fill: #12181d; } text { fill: #9fadb9; } text.name { fill: #e4eaef; }
  line { stroke: #303b45; }
}"""


def draw(title: str, films: Mapping[str, Film]) -> str:
    """Draw what each had, wanted and used; all have the same scales."""
    top = _round(max((max(film.demand, default=0.0) for film in films.values()), default=0.0))
    minutes = max((len(film.supply) for film in films.values()), default=0)
    height = _TOP + len(films) * (_HIGH + _GAP)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_LEFT + _WIDE + 36} {height}">',
        f"<title>{escape(title)}</title><style>{_STYLE}</style>",
        '<rect class="ground" width="100%" height="100%" fill="#ffffff"/>',
        *_legend(),
    ]
    for number, (name, film) in enumerate(films.items()):
        parts += _panel(name, film, _TOP + number * (_HIGH + _GAP) + 18, top, minutes)
    return "\n".join([*parts, "</svg>", ""])


def _legend() -> list[str]:
    found = []
    for number, (_, label, colour, dash) in enumerate(_SERIES):
        x = _LEFT + 120 * number
        found.append(
            f'<path d="M{x} 16h26" stroke="{colour}" stroke-width="2" stroke-dasharray="{dash}"/>'
            f'<text x="{x + 32}" y="20">{label}</text>'
        )
    return found


def _panel(name: str, film: Film, y: float, top: float, minutes: int) -> list[str]:
    parts = [f'<text class="name" x="{_LEFT}" y="{y - 4}">{escape(name)}</text>']
    for part in (0.0, 0.5, 1.0):
        at = y + _HIGH * (1 - part)
        parts.append(f'<line x1="{_LEFT}" x2="{_LEFT + _WIDE}" y1="{at:.1f}" y2="{at:.1f}"/>')
        parts.append(
            f'<text x="{_LEFT - 6}" y="{at + 4:.1f}" text-anchor="end">{part * top:g}</text>'
        )
    hours = minutes / 60
    each = next((one for one in (1, 2, 4, 6, 12, 24, 48, 96) if hours / one <= 12), 168)
    for hour in range(0, int(hours) + 1, each):
        x = _LEFT + _WIDE * hour / max(hours, 1e-9)
        parts.append(
            f'<text x="{x:.1f}" y="{y + _HIGH + 15:.1f}" text-anchor="middle">{hour} h</text>'
        )
    for key, _, colour, dash in _SERIES:
        fill = f'{colour}" fill-opacity="0.18' if key == "supply" else "none"
        line = _line(getattr(film, key), y, top, minutes)
        if key == "supply":
            parts.append(f'<path d="{line}V{y + _HIGH}H{_LEFT}z" fill="{fill}"/>')
        parts.append(
            f'<path d="{line}" fill="none" stroke="{colour}" stroke-width="1.4" '
            f'stroke-dasharray="{dash}"/>'
        )
    return parts


def _line(values: Sequence[float], y: float, top: float, minutes: int) -> str:
    """Draw values thinned: of each part the highest, so that no peak is lost."""
    step = max(1, len(values) // _POINTS)
    points = []
    for at in range(0, len(values), step):
        x = _LEFT + _WIDE * at / max(1, minutes)
        points.append(f"{x:.1f} {y + _HIGH * (1 - max(values[at : at + step]) / top):.1f}")
    return "M" + "L".join(points) if points else f"M{_LEFT} {y + _HIGH}"


def _round(value: float) -> float:
    """Return a round number that is not below a value."""
    if value <= 1:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in (1, 2, 4, 5, 6, 8, 10) if step * power >= value)
