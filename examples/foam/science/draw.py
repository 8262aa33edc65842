"""Draw scans of wet foams that do not exist: slices with bright walls, as a microscope gives them.

Bubbles are the cells of a Laguerre tessellation (a Voronoi diagram with sizes), relaxed until
their areas are log-normal; walls swell into Plateau borders where they meet; then come the
troubles of a real scan: uneven light, faint walls, blur and noise.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage
from scipy.spatial import cKDTree

from . import files

#: Bubbles in a 512 x 512 scan of each class.
CLASSES: dict[str, tuple[int, int]] = {"few": (18, 40), "right": (90, 160), "many": (300, 420)}

#: Micrometres a pixel.
PIXEL_UM = 10.0

#: Spread of the areas: the standard deviation of their logarithm.
SPREAD = 0.5

Floats = NDArray[np.float64]


class Seeds(NamedTuple):
    """Centres and weights of the cells, in units of the frame's side."""

    #: One row of (y, x) for each bubble.
    centres: Floats
    #: Squared radii.
    weights: Floats


def scan(rng: np.random.Generator, bubbles: int, size: int = 512) -> NDArray[np.uint16]:
    """Draw a slice with that many bubbles, 16 bits deep."""
    seeds = relax(rng, bubbles)
    pitch = size / np.sqrt(bubbles)
    owner, depth = cells(seeds, size, rounding=0.06 * pitch)
    wall = 1.0 / (1.0 + np.exp((depth - 0.055 * pitch - 0.6) / 0.5))
    shade = rng.normal(0.16, 0.02, bubbles)[owner]
    strength = 0.78 + 0.08 * clouds(rng, size, size / 10)
    # Here and there a wall lies too flat in the slice to be seen.
    strength *= 1.0 - 0.8 / (1.0 + np.exp(9.0 * (2.1 - clouds(rng, size, 0.2 * pitch))))
    image = shade + (strength - shade) * wall
    image = ndimage.gaussian_filter(image, 0.9) * light(rng, size)
    image += rng.normal(0.0, 0.035, image.shape) + 0.012 * clouds(rng, size, 2.0)
    return np.asarray(np.clip(image, 0.0, 1.0) * 65_535, np.uint16)


def write(path: str, array: NDArray[np.uint16]) -> None:
    """Publish a scan as a PNG that knows its pixel size."""
    files.publish_png(path, array, PIXEL_UM)


def relax(rng: np.random.Generator, bubbles: int, rounds: int = 40) -> Seeds:
    """Move and weigh random seeds until every cell has about the area that was drawn for it."""
    target = rng.lognormal(0.0, SPREAD, bubbles)
    target /= target.sum()
    seeds = Seeds(rng.random((bubbles, 2)), target / np.pi)
    side = max(64, int(9 * np.sqrt(bubbles)))
    grid = (np.indices((side, side)).reshape(2, -1).T + 0.5) / side
    for _ in range(rounds):
        owner = nearest(seeds, grid, 1)[1][:, 0]
        count = np.bincount(owner, minlength=bubbles)
        area = count / len(grid)
        heart = (
            np.column_stack([np.bincount(owner, grid[:, axis], bubbles) for axis in (0, 1)])
            / np.maximum(count, 1)[:, None]
        )
        centres = np.where(count[:, None] > 0, heart, seeds.centres)
        seeds = Seeds(centres, seeds.weights + 0.4 * (target - area) / np.pi)
    return seeds


def nearest(seeds: Seeds, points: Floats, count: int) -> tuple[Floats, NDArray[np.intp]]:
    """Find the cells nearest to each point by power distance, the owner first."""
    # Lifting a seed by what its weight lacks turns power distance into plain distance in 3-D.
    lift = seeds.weights.max() - seeds.weights
    tree = cKDTree(np.column_stack([seeds.centres, np.sqrt(lift)]))
    distance, owner = tree.query(
        np.column_stack([points, np.zeros(len(points))]), k=np.arange(1, count + 1)
    )
    return np.asarray(distance) ** 2, np.asarray(owner)


def cells(seeds: Seeds, size: int, rounding: float) -> tuple[NDArray[np.intp], Floats]:
    """Return each pixel's bubble and its depth in pixels behind the nearest walls."""
    # The frame cuts a little into the outer bubbles, as a scan does.
    margin = 0.2 / np.sqrt(len(seeds.weights))
    points = np.indices((size, size)).reshape(2, -1).T / (size - 1)
    power, near = nearest(seeds, points * (1 - 2 * margin) + margin, min(8, len(seeds.weights)))
    scale = size / (1 - 2 * margin)
    apart = np.linalg.norm(seeds.centres[near[:, 1:]] - seeds.centres[near[:, :1]], axis=2)
    depth = scale * (power[:, 1:] - power[:, :1]) / (2 * apart)
    # A soft minimum instead of the nearest wall alone: corners round off into Plateau borders.
    soft = -rounding * np.log(np.exp(-depth / rounding).sum(axis=1))
    return near[:, 0].reshape(size, size), soft.reshape(size, size)


def light(rng: np.random.Generator, size: int) -> Floats:
    """Return an uneven illumination: a lamp off centre, brightest at 1."""
    y, x = np.indices((size, size)) / size
    lamp_y, lamp_x = rng.uniform(0.15, 0.85, 2)
    glow: Floats = np.exp(-((y - lamp_y) ** 2 + (x - lamp_x) ** 2) / rng.uniform(0.7, 1.1))
    return glow


def clouds(rng: np.random.Generator, size: int, scale: float) -> Floats:
    """Return smooth noise of unit variance."""
    rough = ndimage.gaussian_filter(rng.normal(size=(size, size)), scale, mode="wrap")
    return np.asarray(rough / rough.std())
