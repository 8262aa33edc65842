"""Attempts over time as SVG: a lane for each site, one colour a step."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from pilotage import units
from pilotage.result import timeline
from pilotage.result.timeline import FAILED, FONT, INK, LINE, MARKS, SOFT, STEPS
from pilotage.rule import drawing

_WIDTH, _LEFT, _RIGHT, _TOP = 960.0, 120.0, 12.0, 8.0
#: Pixels of a row, of all rows together if there are many, and between lanes.
_ROW, _ALL, _GAP = 18.0, 560.0, 12.0


class Bar(NamedTuple):
    """An attempt: where, what, from when to when, and whether it was in vain."""

    site: str
    step: str
    words: str
    start: float
    end: float
    bad: bool


def colours(steps: Iterable[str]) -> dict[str, str]:
    """Give each step a colour, in order."""
    names = list(dict.fromkeys(steps))
    return {name: timeline.COLOURS[at % len(timeline.COLOURS)] for at, name in enumerate(names)}


def svg(bars: Sequence[Bar], paint: dict[str, str]) -> str:
    """Draw the time line; nothing if nothing has begun."""
    if not bars:
        return ""
    begin, end = min(bar.start for bar in bars), max(bar.end for bar in bars)
    span = max(end - begin, 0.01)
    scale = (_WIDTH - _LEFT - _RIGHT) / span
    lanes = {site: _rows([bar for bar in bars if bar.site == site])
             for site in dict.fromkeys(bar.site for bar in bars)}  # fmt: skip
    counts = {site: 1 + max(row for _, row in placed) for site, placed in lanes.items()}
    row = max(2.0, min(_ROW, _ALL / sum(counts.values())))
    shapes: list[str] = []
    top = _TOP
    for site, placed in lanes.items():
        high = max(counts[site] * row, 14.0)
        shapes.append(
            f'<text x="{_LEFT - 12:.0f}" y="{top + high / 2 + 4:.1f}" fill="{INK}" '
            f'text-anchor="end">{drawing.xml(drawing.short(site)[:16])}</text>'
            f'<rect x="{_LEFT:.0f}" y="{top:.1f}" width="{_WIDTH - _LEFT - _RIGHT:.0f}" '
            f'height="{high:.1f}" fill="{LINE}" opacity="0.25"/>'
        )
        for bar, at in placed:
            x, wide = _LEFT + (bar.start - begin) * scale, max(1.2, (bar.end - bar.start) * scale)
            fill = FAILED if bar.bad else paint[bar.step]
            shapes.append(
                f'<rect x="{x:.1f}" y="{top + at * row + row * 0.08:.1f}" width="{wide:.1f}" '
                f'height="{row * 0.84:.1f}" rx="{min(3.0, wide / 3, row / 4):.1f}" fill="{fill}">'
                f"<title>{drawing.xml(bar.words)}</title></rect>"
            )
        top += high + _GAP
    label = f"{len(bars)} attempts over {units.for_people(span)} at {len(lanes)} sites"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH:.0f} {top + 28:.0f}" '
        f'role="img" aria-label="{label}" font-family="{FONT}" font-size="12">'
        f"{''.join([*_axis(span, scale, top), *shapes])}</svg>"
    )


def _rows(bars: Sequence[Bar]) -> list[tuple[Bar, int]]:
    """Give each attempt the first row of its lane that is free."""
    free: list[int] = []
    taken: list[tuple[float, int]] = []
    placed = []
    for bar in sorted(bars, key=lambda one: one.start):
        while taken and taken[0][0] <= bar.start:
            heapq.heappush(free, heapq.heappop(taken)[1])
        row = heapq.heappop(free) if free else len(taken)
        heapq.heappush(taken, (bar.end, row))
        placed.append((bar, row))
    return placed


def _axis(span: float, scale: float, bottom: float) -> list[str]:
    step = next((step for step in STEPS if span / step <= MARKS), STEPS[-1])
    shapes = []
    for n in range(int(span / step) + 1):
        x = _LEFT + n * step * scale
        mark = "0" if not n else f"{n * step:g} s" if n * step < 60 else units.for_people(n * step)
        shapes.append(
            f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP:.0f}" y2="{bottom:.1f}" stroke="{LINE}"/>'
            f'<text x="{x:.1f}" y="{bottom + 16:.1f}" fill="{SOFT}" text-anchor="middle">'
            f"{mark}</text>"
        )
    return shapes
