"""A histogram of diameters with its log-normal fit, drawn as SVG by hand."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

#: Small bubbles are pale, large ones deep blue.
PALETTE = (0xFBF6D3, 0xC9E6BE, 0x7CCBC0, 0x3FA2BE, 0x2F6DA8, 0x27407F, 0x1C2350)

BAR = "#a9cfdb"
INK = "#23303b"
FIT = "#c2452d"
FONT = "'Helvetica Neue', Helvetica, Arial, sans-serif"


class Size(NamedTuple):
    """A canvas in pixels, and how much of the plot it has room for."""

    width: int
    height: int
    #: Size of the lettering.
    text: int
    #: Ticks to aim for on each axis.
    ticks: int
    #: Lines of lettering kept free above the bars.
    head: int


SMALL = Size(360, 240, 11, 5, 3)
LARGE = Size(860, 400, 14, 8, 1)


class LogNormal(NamedTuple):
    """A log-normal distribution: its median and the spread of the logarithm."""

    median: float
    sigma: float


class Axis(NamedTuple):
    """A linear axis from data to pixels."""

    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        """Return the pixel of a value."""
        return self.start + (self.end - self.start) * value / self.high


def fit(values: Sequence[float]) -> LogNormal:
    """Fit a log-normal distribution by maximum likelihood."""
    logs = np.log(values)
    return LogNormal(float(np.exp(logs.mean())), float(logs.std()))


def histogram(values: Sequence[float], size: Size) -> str:
    """Draw the distribution of diameters (in micrometres)."""
    if len(values) < 2:
        return frame(size, [note(size, "too few whole bubbles to plot")])
    width = bin_width(values)
    edges = np.arange(0.0, max(values) + 2 * width, width)
    count, _ = np.histogram(values, edges)
    law = fit(values)
    curve = density(law, edges, len(values) * width)
    x = Axis(float(edges[-1]), 4.2 * size.text, size.width - 1.2 * size.text)
    top = 1.04 * max(count.max(), curve[:, 1].max())
    y = Axis(top, size.height - 3.7 * size.text, 1.3 * size.head * size.text)
    return frame(
        size,
        [
            *bars(edges, count, x, y),
            line(curve, x, y, size),
            *axes(x, y, size),
            legend(law, len(values), x, size),
        ],
    )


def bin_width(values: Sequence[float]) -> float:
    """Choose a round width by the rule of Freedman and Diaconis."""
    lower, upper = np.percentile(values, [25, 75])
    return nice(2.0 * (upper - lower) / len(values) ** (1 / 3) or max(values) / 10)


def nice(step: float) -> float:
    """Round a step up to 1, 2 or 5 times a power of ten."""
    power = 10.0 ** math.floor(math.log10(step))
    return next(power * lead for lead in (1, 2, 5, 10) if power * lead >= step * (1 - 1e-9))


def density(law: LogNormal, edges: NDArray[np.float64], scale: float) -> NDArray[np.float64]:
    """Return points (diameter, bubbles per bin) of the fitted law."""
    at = np.linspace(edges[-1] / 400, edges[-1], 400)
    sigma = max(law.sigma, 1e-6)
    height = np.exp(-(np.log(at / law.median) ** 2) / (2 * sigma**2))
    return np.column_stack([at, scale * height / (at * sigma * math.sqrt(2 * math.pi))])


def bars(edges: NDArray[np.float64], count: NDArray[np.intp], x: Axis, y: Axis) -> list[str]:
    """Draw one bar for each bin that is not empty."""
    return [
        f'<rect x="{x(left) + 0.5:.1f}" y="{y(n):.1f}" width="{x(right) - x(left) - 1:.1f}" '
        f'height="{y(0) - y(n):.1f}" fill="{BAR}"/>'
        for left, right, n in zip(edges[:-1], edges[1:], count, strict=True)
        if n
    ]


def line(points: NDArray[np.float64], x: Axis, y: Axis, size: Size) -> str:
    """Draw the fit."""
    path = " ".join(f"{x(a):.1f},{y(b):.1f}" for a, b in points)
    return (
        f'<polyline points="{path}" fill="none" stroke="{FIT}" '
        f'stroke-width="{size.text / 7:.1f}" stroke-linejoin="round"/>'
    )


def axes(x: Axis, y: Axis, size: Size) -> list[str]:
    """Draw both axes with ticks, numbers and names."""
    text = size.text
    middle = (y.start + y.end) / 2
    spine = f"M{x.start:.1f} {y.end:.1f}V{y.start:.1f}H{x.end:.1f}"
    return [
        f'<path d="{spine}" fill="none" stroke="{INK}"/>',
        *[below(x(value), y.start, value, text) for value in steps(x.high, size.ticks)],
        *[beside(x.start, y(value), value, text) for value in steps(y.high, size.ticks)],
        name((x.start + x.end) / 2, size.height - 0.5 * text, "equivalent diameter (µm)"),
        name(text, middle, "bubbles per bin", turn=-90),
    ]


def name(x: float, y: float, words: str, turn: int = 0) -> str:
    """Write the name of an axis."""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="middle" '
        f'transform="rotate({turn} {x:.1f} {y:.1f})">{words}</text>'
    )


def below(x: float, y: float, value: float, text: int) -> str:
    """Draw a tick of the horizontal axis."""
    return (
        f'<path d="M{x:.1f} {y:.1f}v{0.4 * text:.1f}" stroke="{INK}"/>'
        f'<text x="{x:.1f}" y="{y + 1.5 * text:.1f}" text-anchor="middle">{value:g}</text>'
    )


def beside(x: float, y: float, value: float, text: int) -> str:
    """Draw a tick of the vertical axis."""
    return (
        f'<path d="M{x:.1f} {y:.1f}h{-0.4 * text:.1f}" stroke="{INK}"/>'
        f'<text x="{x - 0.7 * text:.1f}" y="{y + 0.35 * text:.1f}" '
        f'text-anchor="end">{value:g}</text>'
    )


def steps(high: float, count: int) -> list[float]:
    """Return round values from 0 to the end of an axis."""
    step = nice(high / count)
    return [step * n for n in range(math.floor(high / step * (1 + 1e-9)) + 1)]


def legend(law: LogNormal, count: int, x: Axis, size: Size) -> str:
    """Say in the corner what was fitted."""
    lines = [
        f"{count} whole bubbles",
        f"log-normal fit: median {law.median:.0f} µm, &#963; = {law.sigma:.2f}",
    ]
    return "".join(
        f'<text x="{x.end:.1f}" y="{(1.2 + 1.5 * n) * size.text:.1f}" '
        f'text-anchor="end" fill="{colour}">{text}</text>'
        for n, (text, colour) in enumerate(zip(lines, (INK, FIT), strict=True))
    )


def note(size: Size, text: str) -> str:
    """Write one line in the middle."""
    return f'<text x="{size.width / 2}" y="{size.height / 2}" text-anchor="middle">{text}</text>'


def frame(size: Size, parts: list[str]) -> str:
    """Put the parts on a canvas that scales with its page."""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {size.width} {size.height}" '
        f'width="{size.width}" height="{size.height}" role="img" '
        f'font-family="{FONT}" font-size="{size.text}" fill="{INK}">'
        "<title>Distribution of bubble diameters</title>" + "\n".join(parts) + "</svg>\n"
    )
