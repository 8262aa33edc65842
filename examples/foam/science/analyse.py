"""Third step: measure the bubbles of a segmented scan."""

from __future__ import annotations

import csv
import io
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from . import files, plot


class Bubble(NamedTuple):
    """One row of a table: lengths in micrometres, the origin at the top left."""

    #: Its number in the labels.
    bubble: int
    #: Square micrometres, the bubble's half of its walls included.
    area_um2: float
    #: Diameter of the circle of the same area.
    diameter_um: float
    #: Centroid.
    x_um: float
    y_um: float
    #: Bubbles it shares a wall with.
    neighbours: int
    #: 1 if the frame cuts it, so that its size is a lower bound.
    edge: int


class NoScaleError(ValueError):
    """An image does not say how large its pixels are, so nothing in it can be measured."""

    def __init__(self, path: str) -> None:
        """Name the image."""
        super().__init__(f"{path} has no pixel size; store it as the resolution of the PNG")


def analyse(*, path: str, table: str, picture: str) -> None:
    """Write a CSV table of the bubbles and a histogram of their diameters as SVG."""
    labels = files.read_png(path)
    if labels.um is None:
        raise NoScaleError(path)
    bubbles = measure(labels.pixels, labels.um)
    whole = [each.diameter_um for each in bubbles if not each.edge]
    files.publish_text(picture, plot.histogram(whole, plot.SMALL))
    files.publish_text(table, to_csv(bubbles))


def measure(owner: NDArray[Any], um: float) -> list[Bubble]:
    """Measure every bubble of a label image whose pixels are ``um`` micrometres wide."""
    area = np.bincount(owner.ravel())
    rows, columns = np.indices(owner.shape)
    y = np.bincount(owner.ravel(), rows.ravel()) / np.maximum(area, 1)
    x = np.bincount(owner.ravel(), columns.ravel()) / np.maximum(area, 1)
    sides = neighbours(owner, len(area))
    cut = np.unique(np.concatenate([owner[0], owner[-1], owner[:, 0], owner[:, -1]]))
    edge = np.isin(np.arange(len(area)), cut)
    return [
        Bubble(
            bubble=int(n),
            area_um2=float(area[n] * um**2),
            diameter_um=float(2.0 * um * np.sqrt(area[n] / np.pi)),
            x_um=float((x[n] + 0.5) * um),
            y_um=float((y[n] + 0.5) * um),
            neighbours=int(sides[n]),
            edge=int(edge[n]),
        )
        for n in np.flatnonzero(area)
        if n > 0
    ]


def neighbours(owner: NDArray[Any], count: int) -> NDArray[np.intp]:
    """Count for each label the other labels it touches."""
    numbers = owner.astype(np.int64)
    pairs = np.concatenate(
        [
            np.column_stack([numbers[1:].ravel(), numbers[:-1].ravel()]),
            np.column_stack([numbers[:, 1:].ravel(), numbers[:, :-1].ravel()]),
        ]
    )
    pairs = np.sort(pairs[pairs[:, 0] != pairs[:, 1]], axis=1)
    codes, length = np.unique(pairs[:, 0] * count + pairs[:, 1], return_counts=True)
    # Four bubbles never share a corner in a foam: a touch of a pixel or two is not a wall.
    codes = codes[length > 2]
    return np.bincount(np.concatenate([codes // count, codes % count]), minlength=count)


def to_csv(bubbles: list[Bubble]) -> str:
    """Write a table with a header, lengths to a tenth of a micrometre."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(Bubble._fields)
    writer.writerows(
        [f"{value:.1f}" if isinstance(value, float) else value for value in bubble]
        for bubble in bubbles
    )
    return buffer.getvalue()


def from_csv(text: str) -> list[Bubble]:
    """Read a table that :func:`to_csv` wrote."""
    return [
        Bubble(
            bubble=int(row["bubble"]),
            area_um2=float(row["area_um2"]),
            diameter_um=float(row["diameter_um"]),
            x_um=float(row["x_um"]),
            y_um=float(row["y_um"]),
            neighbours=int(row["neighbours"]),
            edge=int(row["edge"]),
        )
        for row in csv.DictReader(io.StringIO(text))
    ]
