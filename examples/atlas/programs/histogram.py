#!/usr/bin/env python3
"""Count pairs of muons by their mass, find the peak, and draw it.

    histogram.py --in muons.dat --picture mass.svg --result result.json

The peak is fitted by least squares with a resonance, blurred by the detector, over what falls off
beside it.
"""

from __future__ import annotations

import argparse
import json
import math
import struct
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

EVENT = struct.Struct("<I8f")
HEAD = b"MUONS 1\n"
#: Bins in GeV, and where the fit is done.
LOW, HIGH, BIN = 60.0, 120.0, 0.5
NEAR = (76.0, 106.0)
#: The width that a Z has by nature, in GeV.
WIDTH = 2.4952
#: Steps of the fit.
STEPS = 60
#: The picture: its size and the margins of what is drawn in it.
SIZE = (860, 560)
FONT = 'font-family="Helvetica, Arial, sans-serif" font-size="15" fill="#1c2733"'
LEFT, TOP, RIGHT, BOTTOM = 84, 66, 28, 66


def main(argv: Sequence[str]) -> int:
    """Count, fit and draw as the arguments say."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--in", dest="source", default="muons.dat")
    parser.add_argument("--picture", default="mass.svg")
    parser.add_argument("--result", default="result.json")
    given = parser.parse_args(argv)
    data = Path(given.source).read_bytes()
    if not data.startswith(HEAD):
        sys.exit(f"{given.source} holds no muons")
    masses = [mass(event) for event in EVENT.iter_unpack(data[len(HEAD) :])]
    bins = count(masses)
    best, errors, quality = fit(bins)
    result = {
        "events": len(masses),
        "counted": sum(bins),
        "mass": round(best[1], 3),
        "mass_error": round(errors[1], 3),
        "blur": round(best[2], 3),
        "chi2_per_freedom": round(quality, 2),
    }
    Path(given.picture).write_text(draw(bins, best, result), encoding="utf-8")
    Path(given.result).write_text(json.dumps(result, indent=1), encoding="utf-8")
    print(f"m = {result['mass']} ± {result['mass_error']} GeV from {sum(bins)} pairs")
    return 0


def mass(event: Sequence[float]) -> float:
    """Return the mass of what two muons come from."""
    x, y, z, energy = (a + b for a, b in zip(event[1:5], event[5:9], strict=True))
    return math.sqrt(max(0.0, energy * energy - x * x - y * y - z * z))


def count(masses: Sequence[float]) -> list[int]:
    """Count masses by bin."""
    bins = [0] * round((HIGH - LOW) / BIN)
    for one in masses:
        if LOW <= one < HIGH:
            bins[int((one - LOW) / BIN)] += 1
    return bins


def middle(at: int) -> float:
    """Return the mass in the middle of a bin."""
    return LOW + (at + 0.5) * BIN


# -- the fit ---------------------------------------------------------------------------------------


def model(at: float, p: Sequence[float]) -> float:
    """Return how many there should be: height, place and blur of the peak, and two for the rest.

    A resonance that is seen with a blur is a mixture of its own shape and that of the blur
    (Thompson, Cox and Hastings 1987).
    """
    blur = 2.0 * math.sqrt(2.0 * math.log(2.0)) * abs(p[2])
    terms = (1.0, 2.69269, 2.42843, 4.47163, 0.07842, 1.0)
    wide = math.pow(sum(k * blur ** (5 - i) * WIDTH**i for i, k in enumerate(terms)), 0.2)
    part = WIDTH / wide
    share = 1.36603 * part - 0.47719 * part**2 + 0.11116 * part**3
    off = (2.0 * (at - p[1]) / wide) ** 2
    peak = share / (1.0 + off) + (1.0 - share) * math.exp(-math.log(2.0) * off)
    return p[0] * peak + p[3] * math.exp(-p[4] * (at - p[1]) / 30.0)


def fit(bins: Sequence[int]) -> tuple[list[float], list[float], float]:
    """Fit the peak; return the parameters, their errors and χ² for each degree of freedom."""
    points = [(middle(at), n) for at, n in enumerate(bins) if NEAR[0] < middle(at) < NEAR[1]]
    top = max(points, key=lambda one: one[1])
    p = [float(top[1]), top[0], 1.5, max(1.0, 0.03 * top[1]), 1.0]
    damping, before = 1e-3, chi2(points, p)
    matrix: list[list[float]] = []
    for _ in range(STEPS):
        matrix, vector = normal(points, p)
        damped = [
            [value * (1.0 + damping * (i == j)) for j, value in enumerate(row)]
            for i, row in enumerate(matrix)
        ]
        tried = [a + b for a, b in zip(p, solve(damped, vector), strict=True)]
        after = chi2(points, tried)
        if after < before:
            p, before, damping = tried, after, damping / 5
        else:
            damping *= 5
    unit = [[float(i == j) for j in range(len(p))] for i in range(len(p))]
    errors = [math.sqrt(abs(solve(matrix, row)[i])) for i, row in enumerate(unit)]
    p[2] = abs(p[2])
    return p, errors, before / (len(points) - len(p))


def chi2(points: Sequence[tuple[float, int]], p: Sequence[float]) -> float:
    """Say how far a model is off."""
    return sum((n - model(at, p)) ** 2 / max(1, n) for at, n in points)


def normal(
    points: Sequence[tuple[float, int]], p: Sequence[float]
) -> tuple[list[list[float]], list[float]]:
    """Return the normal equations of a step."""
    size = len(p)
    matrix = [[0.0] * size for _ in range(size)]
    vector = [0.0] * size
    for at, n in points:
        here, weight = model(at, p), 1.0 / max(1, n)
        slopes = []
        for i in range(size):
            small = 1e-5 * max(1.0, abs(p[i]))
            moved = [*p[:i], p[i] + small, *p[i + 1 :]]
            slopes.append((model(at, moved) - here) / small)
        for i in range(size):
            vector[i] += weight * slopes[i] * (n - here)
            for j in range(size):
                matrix[i][j] += weight * slopes[i] * slopes[j]
    return matrix, vector


def solve(matrix: Sequence[Sequence[float]], vector: Sequence[float]) -> list[float]:
    """Solve linear equations by elimination."""
    rows = [[*row, value] for row, value in zip(matrix, vector, strict=True)]
    size = len(rows)
    for i in range(size):
        pivot = max(range(i, size), key=lambda at: abs(rows[at][i]))
        rows[i], rows[pivot] = rows[pivot], rows[i]
        for at in range(size):
            if at != i:
                factor = rows[at][i] / rows[i][i]
                rows[at] = [a - factor * b for a, b in zip(rows[at], rows[i], strict=True)]
    return [row[size] / row[i] for i, row in enumerate(rows)]


# -- the picture -----------------------------------------------------------------------------------


def draw(bins: Sequence[int], p: Sequence[float], result: dict[str, Any]) -> str:
    """Draw the counts with their errors, and the fit over them."""
    most = nice(1.12 * max(bins))
    wide, high = SIZE[0] - LEFT - RIGHT, SIZE[1] - TOP - BOTTOM

    def x(value: float) -> float:
        return LEFT + (value - LOW) / (HIGH - LOW) * wide

    def y(value: float) -> float:
        return TOP + high * (1.0 - value / most)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {SIZE[0]} {SIZE[1]}" {FONT}>',
        f'<rect width="{SIZE[0]}" height="{SIZE[1]}" fill="#ffffff"/>',
        *grid(most, x, y),
        outline(bins, x, y),
        curve(p, x, y),
        *points(bins, x, y),
        f'<path d="M{LEFT} {TOP}V{TOP + high}H{LEFT + wide}" fill="none" stroke="#1c2733"/>',
        *legend(bins, result),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def nice(value: float) -> float:
    """Return a round number that is not less."""
    power = 10.0 ** math.floor(math.log10(max(1.0, value)))
    return next(step * power for step in (1, 1.5, 2, 3, 4, 5, 6, 8, 10) if step * power >= value)


def grid(most: float, x: Any, y: Any) -> list[str]:  # noqa: ANN401 - functions from values to places
    """Draw lines, and what they stand for."""
    parts = []
    for at in range(round(LOW), round(HIGH) + 1, 10):
        parts.append(f'<path d="M{x(at):.1f} {TOP}V{y(0):.1f}" stroke="#e8edf2"/>')
        parts.append(f'<text x="{x(at):.1f}" y="{y(0) + 24:.1f}" text-anchor="middle">{at}</text>')
    for step in range(6):
        value = most * step / 5
        parts.append(f'<path d="M{LEFT} {y(value):.1f}H{x(HIGH):.1f}" stroke="#e8edf2"/>')
        place = f'x="{LEFT - 10}" y="{y(value) + 5:.1f}"'
        parts.append(f'<text {place} text-anchor="end">{value:.0f}</text>')
    axis = f'x="{x(HIGH):.1f}" y="{SIZE[1] - 16}" text-anchor="end"'
    parts.append(f"<text {axis}>mass of the pair of muons [GeV]</text>")
    place = f'transform="translate(22 {TOP}) rotate(-90)" text-anchor="end"'
    parts.append(f"<text {place}>pairs in {BIN:g} GeV</text>")
    return parts


def outline(bins: Sequence[int], x: Any, y: Any) -> str:  # noqa: ANN401 - as above
    """Draw the counts as steps."""
    path = [f"M{x(LOW):.1f} {y(0):.1f}"]
    for at, n in enumerate(bins):
        path.append(f"V{y(n):.1f}H{x(LOW + (at + 1) * BIN):.1f}")
    return f'<path d="{"".join(path)}V{y(0):.1f}Z" fill="#dbe9f6" stroke="none"/>'


def curve(p: Sequence[float], x: Any, y: Any) -> str:  # noqa: ANN401 - as above
    """Draw the fit where it was done."""
    steps = 300
    places = [NEAR[0] + (NEAR[1] - NEAR[0]) * at / steps for at in range(steps + 1)]
    line = " ".join(f"{x(at):.1f},{y(model(at, p)):.1f}" for at in places)
    return f'<polyline points="{line}" fill="none" stroke="#d1495b" stroke-width="2.5"/>'


def points(bins: Sequence[int], x: Any, y: Any) -> list[str]:  # noqa: ANN401 - as above
    """Draw each count with its error."""
    parts = []
    for at, n in enumerate(bins):
        error, place = math.sqrt(n), x(middle(at))
        if n:
            up, down = y(n + error), y(max(0.0, n - error))
            parts.append(f'<path d="M{place:.1f} {up:.1f}V{down:.1f}" stroke="#1f4e79"/>')
        parts.append(f'<circle cx="{place:.1f}" cy="{y(n):.1f}" r="2.6" fill="#1f4e79"/>')
    return parts


def legend(bins: Sequence[int], result: dict[str, Any]) -> list[str]:
    """Say what is to be seen."""
    left, top = SIZE[0] - 300, TOP + 26
    lines = [
        ("#1f4e79", f"{sum(bins)} pairs, with √n"),
        ("#d1495b", f"m = {result['mass']:.2f} ± {result['mass_error']:.2f} GeV"),
        ("#ffffff", f"blur of the detector {result['blur']:.2f} GeV"),
        ("#ffffff", f"χ² / freedom {result['chi2_per_freedom']:.2f}"),
    ]
    parts = [f'<text x="{LEFT}" y="36" font-size="20">{escape("Z → μ⁺ μ⁻, simulated")}</text>']
    for at, (colour, text) in enumerate(lines):
        place = top + 26 * at
        parts.append(f'<circle cx="{left - 14}" cy="{place - 5}" r="5" fill="{colour}"/>')
        parts.append(f'<text x="{left}" y="{place}">{escape(text)}</text>')
    return parts


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
