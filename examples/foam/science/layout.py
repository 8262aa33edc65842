"""The report as HTML: pictures inside, no scripts, fit for a screen and for paper."""

from __future__ import annotations

import base64
import math
import statistics
from html import escape
from pathlib import Path
from typing import NamedTuple

from PIL import Image

from . import files, plot
from .analyse import Bubble

#: Pairs of pictures shown; the table has every scan.
GALLERY = 8

#: Pixels across a picture in the page.
WIDTH = 400


class Scan(NamedTuple):
    """All that is known of a scan so far."""

    #: The scan's file name without its ending.
    name: str
    #: Bubbles that the judge counted.
    estimate: int
    accepted: bool
    #: Why it was accepted or not, in words.
    reason: str
    #: Empty until the scan is analysed.
    bubbles: list[Bubble]
    #: The cleaned scan, or the scan itself.
    before: Path | None
    #: The picture of its bubbles.
    after: Path | None

    @property
    def whole(self) -> list[float]:
        """Diameters of the bubbles that the frame does not cut."""
        return [bubble.diameter_um for bubble in self.bubbles if not bubble.edge]


def document(scans: list[Scan]) -> str:
    """Return a complete page."""
    return (
        '<!DOCTYPE html>\n<html lang="en-GB">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        "<title>Bubbles in foam</title>\n<style>body { margin: 0; background: #fff; }</style>\n"
        f"</head>\n<body>\n{fragment(scans)}\n</body>\n</html>\n"
    )


def fragment(scans: list[Scan]) -> str:
    """Return the report as one element with its own style, to stand inside another page."""
    accepted = [scan for scan in scans if scan.accepted]
    rejected = [scan for scan in scans if not scan.accepted]
    style = Path(__file__).with_name("layout.css").read_text()
    parts = [
        f"<style>\n{style}</style>",
        head(scans, accepted),
        sizes(accepted),
        gallery(accepted),
        aside(rejected),
        table(scans),
        method(),
    ]
    return '<article class="foam">\n' + "\n".join(filter(None, parts)) + "\n</article>"


def head(scans: list[Scan], accepted: list[Scan]) -> str:
    """Say the result in one line and a few figures."""
    whole = [diameter for scan in accepted for diameter in scan.whole]
    sides = [b.neighbours for scan in accepted for b in scan.bubbles if not b.edge]
    waiting = sum(not scan.bubbles for scan in accepted)
    facts = [
        ("scans judged", f"{len(scans)}"),
        ("accepted", f"{len(accepted)}"),
        ("bubbles measured", f"{sum(len(scan.bubbles) for scan in accepted)}"),
        ("median diameter", f"{statistics.median(whole):.0f} <small>µm</small>" if whole else "–"),
        ("mean neighbours", f"{statistics.fmean(sides):.2f}" if sides else "–"),
    ]
    items = "".join(f"<div><dt>{name}</dt><dd>{value}</dd></div>" for name, value in facts)
    lead = f"{len(accepted)} of {len(scans)} scans had the right number of bubbles to be analysed."
    if waiting:
        lead += f" {waiting} of them {'is' if waiting == 1 else 'are'} still at work."
    return f'<h1>Bubbles in foam</h1>\n<p class="lead">{lead}</p>\n<dl class="facts">{items}</dl>'


def sizes(accepted: list[Scan]) -> str:
    """Show how large the bubbles of all accepted scans are."""
    whole = [diameter for scan in accepted for diameter in scan.whole]
    if len(whole) < 2:
        return ""
    law = plot.fit(whole)
    low, high = (law.median * math.exp(sign * law.sigma) for sign in (-1, 1))
    scans = sum(bool(scan.bubbles) for scan in accepted)
    return (
        f"<h2>Bubble sizes</h2>\n<figure>{plot.histogram(whole, plot.LARGE)}"
        "<figcaption><b>Figure 1.</b> Equivalent diameters of the bubbles of "
        f"{scans} accepted {'scan' if scans == 1 else 'scans'}. Bubbles cut by the frame are left "
        f"out. The line is a log-normal law fitted by maximum likelihood; two thirds of its "
        f"bubbles measure {low:.0f} to {high:.0f} µm.</figcaption></figure>"
    )


def gallery(accepted: list[Scan]) -> str:
    """Show accepted scans beside their bubbles."""
    if not accepted:
        return ""
    shown = accepted[:GALLERY]
    more = f" The first {GALLERY} of {len(accepted)} are shown." if len(accepted) > GALLERY else ""
    palette = ",".join(f"#{colour:06x}" for colour in plot.PALETTE)
    return (
        f"<h2>Accepted scans</h2>\n<p>Left, the scan after cleaning; right, its bubbles.{more}</p>"
        '<div class="scale">small '
        f'<i style="background:linear-gradient(90deg,{palette})"></i> large'
        "<u></u> wall that the scan does not show, found from the bubbles’ shapes</div>"
        f'<div class="pairs">{"".join(pair(scan) for scan in shown)}</div>'
    )


def pair(scan: Scan) -> str:
    """Show one scan, before and after."""
    size = f", median diameter {statistics.median(scan.whole):.0f} µm" if scan.whole else ""
    found = f"{len(scan.bubbles)} bubbles{size}" if scan.bubbles else "not yet analysed"
    return (
        '<figure><div class="pair">'
        f"{picture(scan.before, f'{scan.name}, cleaned', WIDTH)}"
        f"{picture(scan.after, f'{scan.name}, segmented', WIDTH)}</div>"
        f"<figcaption><b>{escape(scan.name)}</b> {found}</figcaption></figure>"
    )


def aside(rejected: list[Scan]) -> str:
    """Show the scans that were turned away, if their pictures are at hand."""
    shown = [scan for scan in rejected if scan.before]
    if not shown:
        return ""
    figures = "".join(
        f"<figure>{picture(scan.before, scan.name, WIDTH // 2)}"
        f"<figcaption><b>{escape(scan.name)}</b> {scan.estimate} bubbles</figcaption></figure>"
        for scan in shown[: 2 * GALLERY]
    )
    return f'<h2>Scans turned away</h2>\n<div class="aside">{figures}</div>'


def picture(path: Path | None, words: str, width: int) -> str:
    """Return an image with its data inside, small enough for a page."""
    if path is None:
        return '<div class="blank">not there yet</div>'
    with Image.open(path) as image:
        # Pillow does not scale 16 bits of grey down to 8 by itself; it clips them.
        grey = image.point(lambda level: level / 257).convert("L") if "I" in image.mode else image
        small = grey.resize((width, width * image.height // image.width), Image.Resampling.LANCZOS)
        data = base64.b64encode(files.encode(small, "JPEG")).decode()
    return f'<img src="data:image/jpeg;base64,{data}" alt="{escape(words)}">'


def table(scans: list[Scan]) -> str:
    """List every scan with its verdict."""
    heads = (
        '<th>scan</th><th class="n">bubbles counted</th><th>verdict</th>'
        '<th class="n">bubbles measured</th><th class="n">median diameter (µm)</th>'
    )
    return (
        f"<h2>All scans</h2>\n<table><thead><tr>{heads}</tr></thead>"
        f"<tbody>{''.join(row(scan) for scan in scans)}</tbody></table>"
    )


def row(scan: Scan) -> str:
    """Return a line of the table."""
    word = '<span class="yes">accepted</span>' if scan.accepted else f"{escape(scan.reason)}"
    median = f"{statistics.median(scan.whole):.0f}" if scan.whole else "–"
    return (
        f'<tr><td>{escape(scan.name)}</td><td class="n">{scan.estimate}</td>'
        f'<td class="{"" if scan.accepted else "no"}">{word}</td>'
        f'<td class="n">{len(scan.bubbles) or "–"}</td><td class="n">{median}</td></tr>'
    )


def method() -> str:
    """Say how the figures were obtained."""
    return (
        "<h2>Method</h2>\n<p>Each scan is divided by its illumination and smoothed. Otsu’s "
        "threshold parts walls from gas; every summit of the distance to the walls is a bubble, "
        "and summits that no neck parts are one. A scan whose count lies outside the limits goes "
        "no further. In the others each pixel climbs to its summit, so that neighbours share the "
        "wall between them and the areas add up to the frame. The equivalent diameter is that of "
        "the circle of the same area. In a plane foam of any kind the mean number of neighbours "
        "is close to six (Euler).</p>"
    )
