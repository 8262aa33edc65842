"""Second step: give every pixel of a clean scan to a bubble, and paint the result."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import files, foams, plot

#: Walls that the scan does not show but the shapes of the bubbles do.
RECOVERED = (0xE4, 0x57, 0x3D)

#: The palette spans these diameters, in units of the mean.
SPAN = (0.35, 1.9)


def segment(*, path: str, labels: str, picture: str, smoothing: float = 2.0) -> None:
    """Write the bubbles' numbers as a 16-bit PNG and a coloured picture of them.

    ``smoothing`` (pixels) quietens the distance map: more joins bubbles, less splits them.
    """
    scan = files.read_png(path)
    image = scan.pixels / 255.0
    depth = foams.relief(image)
    owner = foams.bubbles(depth, smoothing)
    files.publish_png(picture, paint(image, depth, owner))
    files.publish_png(labels, owner.astype(np.uint16), scan.um)


def paint(image: foams.Floats, depth: foams.Floats, owner: foams.Labels) -> NDArray[np.uint8]:
    """Colour each bubble by its size, with white walls, recovered ones in red."""
    diameter = np.sqrt(np.bincount(owner.ravel()))
    place = np.interp(diameter / diameter[1:].mean(), SPAN, (0.0, 1.0))
    colour = ramp(place)[owner]
    # The wall's own brightness is its opacity, which keeps its edges smooth.
    level = foams.threshold(image)
    wall = np.clip((image - 0.6 * level) / (0.8 * level), 0.0, 1.0)[..., None]
    colour = colour * (1.0 - wall) + 255.0 * wall
    colour[border(owner) & (depth > 0.0)] = RECOVERED
    return np.rint(colour).astype(np.uint8)


def ramp(place: NDArray[Any]) -> foams.Floats:
    """Interpolate the palette at places from 0 to 1."""
    stops = np.array([[code >> 16, code >> 8 & 255, code & 255] for code in plot.PALETTE], float)
    at = np.linspace(0.0, 1.0, len(stops))
    return np.column_stack([np.interp(place, at, stops[:, channel]) for channel in range(3)])


def border(owner: foams.Labels) -> NDArray[np.bool_]:
    """Mark the pixels on both sides of a change of bubble."""
    edge = np.zeros(owner.shape, bool)
    down = owner[1:] != owner[:-1]
    across = owner[:, 1:] != owner[:, :-1]
    edge[1:] |= down
    edge[:-1] |= down
    edge[:, 1:] |= across
    edge[:, :-1] |= across
    return edge
