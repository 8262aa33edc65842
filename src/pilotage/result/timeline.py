"""Jobs over time as SVG: one row for each job that ran beside others, one colour a rule."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from html import escape
from typing import NamedTuple

from pilotage import text, units
from pilotage.job.model import State
from pilotage.result.lineage import Ran

COLOURS = (
    "#3f7cac", "#e08e45", "#4f9d69", "#a05c9c", "#c8553d", "#5aa9a3", "#8d7b4f", "#7a7fc4",
)  # fmt: skip
FAILED = "#b3261e"
INK, SOFT, LINE = "#23303b", "#63707c", "#dde3e8"
FONT = "'Helvetica Neue', Helvetica, Arial, sans-serif"

WIDTH, LEFT, RIGHT, TOP = 960, 34, 8, 8
#: Pixels of a row, and of all rows together if there are many.
ROW, ALL_ROWS = 22, 640
#: Seconds between marks, chosen so that there are not more than this many.
MARKS = 9
STEPS = (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21600, 86400)


class Bar(NamedTuple):
    """A job in its row."""

    job: Ran
    row: int
    start: float
    end: float


def rows(jobs: Sequence[Ran], now: float) -> list[Bar]:
    """Give each job that started the first row that is free."""
    free: list[int] = []
    taken: list[tuple[float, int]] = []
    bars = []
    for job in sorted((job for job in jobs if job.started is not None), key=_start):
        start = _start(job)
        while taken and taken[0][0] <= start:
            heapq.heappush(free, heapq.heappop(taken)[1])
        row = heapq.heappop(free) if free else len(taken)
        end = max(job.ended if job.ended is not None else now, start)
        heapq.heappush(taken, (end, row))
        bars.append(Bar(job, row, start, end))
    return bars


def _start(job: Ran) -> float:
    return job.started or 0.0


def colours(jobs: Sequence[Ran]) -> dict[str, str]:
    """Give each name a colour, in the order of their first jobs."""
    names = list(dict.fromkeys(job.name for job in jobs if job.started is not None))
    return {name: COLOURS[n % len(COLOURS)] for n, name in enumerate(names)}


def svg(jobs: Sequence[Ran], now: float, base: str) -> str:
    """Draw the time line."""
    from pilotage.result import lineage

    bars = rows(jobs, now)
    if not bars:
        return ""
    begin, end = min(bar.start for bar in bars), max(bar.end for bar in bars)
    span = max(end - begin, 0.01)
    count = 1 + max(bar.row for bar in bars)
    row = max(3.0, min(ROW, ALL_ROWS / count))
    bottom = TOP + count * row
    scale = (WIDTH - LEFT - RIGHT) / span
    paint = colours(jobs)
    shapes = [*_axis(span, scale, bottom), *_numbers(count, row)]
    for bar in bars:
        job = bar.job
        x, width = LEFT + (bar.start - begin) * scale, max(1.0, (bar.end - bar.start) * scale)
        fill = FAILED if job.state is State.FAILED else paint[job.name]
        words = escape(f"{text.show(job.name)} {job.id}, {lineage.trigger(job, base)}: ")
        words += escape(f"{job.state}, {units.for_people(bar.end - bar.start)}")
        shapes.append(
            f'<rect x="{x:.1f}" y="{TOP + bar.row * row + row * 0.09:.1f}" width="{width:.1f}" '
            f'height="{row * 0.82:.1f}" rx="{min(3.0, width / 3):.1f}" fill="{fill}">'
            f"<title>{words}</title></rect>"
        )
    label = f"{len(bars)} jobs over {units.for_people(span)} in {count} places"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {bottom + 34:.0f}" '
        f'role="img" aria-label="{label}" font-family="{FONT}" font-size="12">'
        f"{''.join(shapes)}</svg>"
    )


def _axis(span: float, scale: float, bottom: float) -> list[str]:
    step = next((step for step in STEPS if span / step <= MARKS), STEPS[-1])
    shapes = []
    for n in range(int(span / step) + 1):
        x = LEFT + n * step * scale
        shapes.append(
            f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{bottom + 4:.1f}" stroke="{LINE}"/>'
            f'<text x="{x:.1f}" y="{bottom + 20:.1f}" fill="{SOFT}" text-anchor="middle">'
            f"{_mark(n * step)}</text>"
        )
    return shapes


def _mark(seconds: float) -> str:
    if seconds == 0:
        return "0"
    return f"{seconds:g} s" if seconds < 60 else units.for_people(seconds)


def _numbers(count: int, row: float) -> list[str]:
    if row < 12:
        return []
    return [
        f'<text x="{LEFT - 10}" y="{TOP + n * row + row / 2 + 4:.1f}" fill="{SOFT}" '
        f'text-anchor="end">{n + 1}</text>'
        for n in range(count)
    ]
