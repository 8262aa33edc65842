"""Curves over time: panels below each other as SVG, and lines of blocks as text."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from pilotage.draw import svg
from pilotage.draw.svg import Picture, Point

_WIDE, _HIGH, _LEFT, _RIGHT, _TOP, _GAP = 820.0, 150.0, 60.0, 36.0, 52.0, 46.0
_POINTS = 600
_BLOCKS = "▁▂▃▄▅▆▇█"


class Curve(NamedTuple):
    """The style of a curve."""

    name: str
    colour: str
    #: As `stroke-dasharray` has it; empty for a whole line.
    dash: str = ""
    filled: bool = False


#: The values of each curve, by its name, at equal distances in time.
Values = Mapping[str, Sequence[float]]


def as_svg(
    title: str, curves: Sequence[Curve], panels: Mapping[str, Values], step: float
) -> Picture:
    """Draw panels with the same curves on the same scales; values are `step` seconds apart."""
    series = [values for panel in panels.values() for values in panel.values()]
    top = _round(max((max(values, default=0.0) for values in series), default=0.0))
    count = max((len(values) for values in series), default=0)
    shapes = _legend(curves)
    for number, (name, panel) in enumerate(panels.items()):
        shapes += _panel(name, curves, panel, _TOP + number * (_HIGH + _GAP), top, count, step)
    height = _TOP - 18 + len(panels) * (_HIGH + _GAP)
    return svg.document(shapes, _LEFT + _WIDE + _RIGHT, height, title)


def _legend(curves: Sequence[Curve]) -> list[str]:
    shapes = []
    for number, curve in enumerate(curves):
        x = _LEFT + 120 * number
        shapes.append(_stroke(f"M{x:.0f} 16h26", curve, 2.0))
        shapes.append(svg.write("mark", Point(x + 32, 20), curve.name, "start"))
    return shapes


def _panel(
    name: str, curves: Sequence[Curve], panel: Values, y: float, top: float, count: int, step: float
) -> list[str]:
    shapes = [svg.write("label", Point(_LEFT, y - 6), name, "start")]
    for part in (0.0, 0.5, 1.0):
        at = y + _HIGH * (1 - part)
        shapes.append(svg.rule(Point(_LEFT, at), Point(_LEFT + _WIDE, at)))
        shapes.append(svg.write("mark", Point(_LEFT - 6, at + 4), f"{part * top:g}", "end"))
    seconds = max(count * step, 1e-9)
    for mark, words in svg.time_marks(seconds):
        x = _LEFT + _WIDE * mark / seconds
        shapes.append(svg.write("mark", Point(x, y + _HIGH + 15), words))
    for curve in curves:
        line = _line(panel[curve.name], y, top, count)
        if curve.filled:
            area = f'd="{line}V{y + _HIGH:.1f}H{_LEFT:.1f}z"'
            shapes.append(f'<path {area} fill="{curve.colour}" fill-opacity="0.18"/>')
        shapes.append(_stroke(line, curve, 1.4))
    return shapes


def _stroke(line: str, curve: Curve, width: float) -> str:
    dash = f' stroke-dasharray="{curve.dash}"' if curve.dash else ""
    return f'<path d="{line}" fill="none" stroke="{curve.colour}" stroke-width="{width:g}"{dash}/>'


def _line(values: Sequence[float], y: float, top: float, count: int) -> str:
    """Draw values thinned: of each part the highest, so that no peak is lost."""
    step = max(1, len(values) // _POINTS)
    points = []
    for at in range(0, len(values), step):
        x = _LEFT + _WIDE * at / max(1, count)
        points.append(f"{x:.1f} {y + _HIGH * (1 - max(values[at : at + step]) / top):.1f}")
    return "M" + "L".join(points) if points else f"M{_LEFT:.1f} {y + _HIGH:.1f}"


def _round(value: float) -> float:
    """Return a round number that is not below a value."""
    if value <= 1:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in (1, 2, 4, 5, 6, 8, 10) if step * power >= value)


# -- text -----------------------------------------------------------------------------------------


def blocks(values: Sequence[float | None], top: float) -> str:
    """Draw values from 0 to `top` as blocks; unknown ones are blank."""
    return "".join(_block(value, top) for value in values)


def _block(value: float | None, top: float) -> str:
    if value is None:
        return " "
    height = math.ceil(value / top * len(_BLOCKS)) if top > 0 else 0
    return _BLOCKS[min(len(_BLOCKS), max(1, height)) - 1] if value > 0 else "·"


def resample(values: Sequence[float | None], width: int) -> list[float | None]:
    """Return the means of `width` parts of equal length, or the values if there are fewer."""
    count = len(values)
    if count <= width:
        return list(values)
    parts = (values[at * count // width : (at + 1) * count // width] for at in range(width))
    return [_mean(part) for part in parts]


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return math.fsum(known) / len(known) if known else None
