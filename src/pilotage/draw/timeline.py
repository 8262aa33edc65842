"""Work over time as SVG: lanes with as many rows as ran at once, one colour a name."""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from pilotage.base import units
from pilotage.draw import svg
from pilotage.draw.svg import Box, Picture, Point

_WIDTH, _RIGHT, _TOP, _BOTTOM, _GAP = 960.0, 12.0, 8.0, 30.0, 12.0
#: Pixels left of lanes that have names, and of rows that have numbers.
_NAMES, _NUMBERS = 120.0, 34.0
#: Pixels of a row, and of all rows together if there are many.
_ROW, _ALL_ROWS = 20.0, 600.0
_MOST_CHARS = 16


class TimeBar(NamedTuple):
    """A bar: in which lane, of which name and so of which colour, and from when to when."""

    lane: str
    name: str
    start: float
    end: float
    #: Its tooltip.
    hint: str
    failed: bool = False


def as_svg(spans: Sequence[TimeBar], colours: Mapping[str, str], noun: str) -> Picture:
    """Draw spans; without names of lanes, their rows have numbers. Nothing if there are none."""
    if not spans:
        return Picture()
    lanes: dict[str, list[TimeBar]] = {}
    for span in spans:
        lanes.setdefault(span.lane, []).append(span)
    placed = {lane: rows(some) for lane, some in lanes.items()}
    counts = {lane: 1 + max(row for _, row in some) for lane, some in placed.items()}
    row = max(2.0, min(_ROW, _ALL_ROWS / sum(counts.values())))
    left = _NAMES if any(lanes) else _NUMBERS
    begin = min(span.start for span in spans)
    seconds = max(max(span.end for span in spans) - begin, 0.01)
    scale = (_WIDTH - left - _RIGHT) / seconds
    shapes: list[str] = []
    top = _TOP
    for lane, some in placed.items():
        high = max(counts[lane] * row, 14.0)
        shapes += _lane(lane, counts[lane], Box(left, top, _WIDTH - left - _RIGHT, high), row)
        shapes += [
            _bar(span, Point(left + (span.start - begin) * scale, top + at * row), row, scale,
                 svg.FAILED if span.failed else colours[span.name])
            for span, at in some
        ]  # fmt: skip
        top += high + _GAP
    low = top - _GAP
    axis = [
        svg.rule(Point(left + at * scale, _TOP), Point(left + at * scale, low + 4))
        + svg.write("mark", Point(left + at * scale, low + 20), words)
        for at, words in svg.time_marks(seconds)
    ]
    title = f"{len(spans)} {noun} over {units.for_people(seconds)}"
    return svg.document([*axis, *shapes], _WIDTH, low + _BOTTOM, title)


def rows(spans: Sequence[TimeBar]) -> list[tuple[TimeBar, int]]:
    """Give each span the first row that is free, so that none overlap."""
    free: list[int] = []
    taken: list[tuple[float, int]] = []
    placed = []
    for span in sorted(spans, key=lambda one: one.start):
        while taken and taken[0][0] <= span.start:
            heapq.heappush(free, heapq.heappop(taken)[1])
        row = heapq.heappop(free) if free else len(taken)
        heapq.heappush(taken, (span.end, row))
        placed.append((span, row))
    return placed


def _bar(span: TimeBar, at: Point, row: float, scale: float, colour: str) -> str:
    wide = max(1.2, (span.end - span.start) * scale)
    box = Box(at.x, at.y + row * 0.08, wide, row * 0.84)
    return svg.rect(box, f'fill="{colour}"', min(3.0, wide / 3, row / 4), span.hint)


def _lane(name: str, count: int, box: Box, row: float) -> list[str]:
    if name:
        at = Point(box.x - 12, box.y + box.height / 2 + 4)
        return [
            svg.rect(box, f'fill="{svg.LINE}" opacity="0.25"'),
            svg.write("lane", at, svg.short(name)[:_MOST_CHARS], "end"),
        ]
    numbers = range(count) if row >= 12 else ()
    return [
        svg.write("mark", Point(box.x - 10, box.y + (at + 0.5) * row + 4), f"{at + 1}", "end")
        for at in numbers
    ]
