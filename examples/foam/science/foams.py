"""What an image of a foam says: where the walls are, where the bubbles are, which is whose."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

Floats = NDArray[np.float64]
Labels = NDArray[np.int32]

#: A bubble ends where it narrows to less than this part of its width.
NECK = 0.75

#: Walls stand out from the gas by more than this part of the light.
FAINTEST = 0.1


class NoWallsError(ValueError):
    """An image is of one grey: it shows no foam."""

    def __str__(self) -> str:
        """Say what is wrong."""
        return "no walls are to be seen: the image is of one grey"


def flatten(pixels: NDArray[Any]) -> Floats:
    """Even out the light, quieten the noise and stretch the walls to 1, the gas to 0."""
    image = ndimage.gaussian_filter(pixels.astype(np.float64), 1.0)
    # The light is smooth: a sixteenth of the pixels finds it as well as all, far sooner.
    coarse = image[::4, ::4]
    smooth = ndimage.gaussian_filter(coarse, max(coarse.shape) / 7, mode="nearest", truncate=2.5)
    light = ndimage.zoom(
        smooth, [n / m for n, m in zip(image.shape, smooth.shape, strict=True)], order=1
    )
    even = image / np.maximum(light, 1e-9)
    dark, bright = np.percentile(even, [2.0, 98.0])
    if bright - dark < FAINTEST:
        raise NoWallsError
    flat: Floats = np.clip((even - dark) / (bright - dark), 0.0, 1.0)
    return flat


def threshold(image: Floats) -> float:
    """Find the grey level that parts gas from wall best (Otsu's)."""
    count, edges = np.histogram(image, bins=256)
    level = (edges[:-1] + edges[1:]) / 2
    below = np.cumsum(count)
    above = below[-1] - below
    mass = np.cumsum(count * level)
    with np.errstate(divide="ignore", invalid="ignore"):
        contrast = below * above * (mass / below - (mass[-1] - mass) / above) ** 2
    return float(level[np.nanargmax(contrast)])


def relief(image: Floats) -> Floats:
    """Return the distance to the nearest wall's face: positive in gas, negative in walls."""
    wall = image > threshold(image)
    inside: Floats = ndimage.distance_transform_edt(~wall)
    outside: Floats = ndimage.distance_transform_edt(wall)
    return inside - outside


def seeds(depth: Floats, smoothing: float) -> Labels:
    """Mark one summit of the relief for each bubble, numbered from 1."""
    smooth = ndimage.gaussian_filter(depth, smoothing)
    summit = smooth == ndimage.maximum_filter(smooth, 2 * reach(smoothing) + 1)
    marks, _ = ndimage.label(summit & (depth > 1.0), np.ones((3, 3)))
    return np.asarray(marks, np.int32)


def reach(smoothing: float) -> int:
    """Return how far, in pixels, a summit must be the highest point."""
    return max(1, round(2 * smoothing))


def grain(depth: Floats) -> float:
    """Return the smoothing that suits this foam: an eighth of its typical bubble radius."""
    marks = seeds(depth, 1.5)
    summits = ndimage.maximum(depth, marks, np.arange(1, marks.max() + 1))
    return max(1.0, float(np.median(summits)) / 8) if len(summits) else 1.0


def bubbles(depth: Floats, smoothing: float) -> Labels:
    """Give every pixel to a bubble, numbered from 1; walls are shared down their middle."""
    marks = seeds(depth, smoothing)
    height = ndimage.gaussian_filter(depth, smoothing)
    return join(height, basins(height, marks, reach(smoothing)))


def basins(height: Floats, marks: Labels, reach: int) -> Labels:
    """Give every pixel to the mark it comes to by climbing."""
    # Every pixel looks at one higher; looking on from there doubles the way with each round.
    goal = climb(height, marks, reach)
    while not np.array_equal(further := goal[goal], goal):
        goal = further
    owner = marks.ravel()[goal].reshape(marks.shape)
    # A hump inside a wall is nobody's summit: its pixels go to the nearest bubble.
    nearest = ndimage.distance_transform_edt(
        owner == 0, return_distances=False, return_indices=True
    )
    settled: Labels = owner[tuple(nearest)]
    return settled


def climb(height: Floats, marks: Labels, reach: int) -> NDArray[np.intp]:
    """Return for each pixel the index of its highest neighbour, itself if it is a summit."""
    rows, columns = height.shape
    index = np.arange(height.size).reshape(height.shape)
    rim = np.pad(height, 1, constant_values=-np.inf)
    place = np.pad(index, 1)
    best, goal = height.copy(), index.copy()
    for dy, dx in np.ndindex(3, 3):
        window = np.s_[dy : dy + rows, dx : dx + columns]
        higher = rim[window] > best
        best[higher] = rim[window][higher]
        goal[higher] = place[window][higher]
    for y, x in np.argwhere((goal == index) & (marks == 0)):
        # A lesser hump on a bubble's slope leads on to what overtops it.
        top, left = max(0, y - reach), max(0, x - reach)
        around = height[top : y + reach + 1, left : x + reach + 1]
        up, along = np.unravel_index(np.argmax(around), around.shape)
        if around[up, along] > height[y, x]:
            goal[y, x] = index[top + up, left + along]
    return goal.ravel()


def join(height: Floats, owner: Labels) -> Labels:
    """Join basins that no neck parts: a long bubble has several summits but one body."""
    summit = np.concatenate([[0.0], ndimage.maximum(height, owner, np.arange(1, owner.max() + 1))])
    parent = np.arange(len(summit))
    for this, that, saddle in passes(height, owner):
        if saddle > NECK * min(summit[this], summit[that]):
            parent[parent == parent[this]] = parent[that]
    _, number = np.unique(parent[1:], return_inverse=True)
    return np.concatenate([[0], number + 1]).astype(np.int32)[owner]


def passes(height: Floats, owner: Labels) -> list[tuple[int, int, float]]:
    """Find for each two basins that touch the highest way from one to the other."""
    ends, level = [], []
    for one, two in ((np.s_[1:], np.s_[:-1]), (np.s_[:, 1:], np.s_[:, :-1])):
        differ = owner[one] != owner[two]
        ends.append(np.sort([owner[one][differ], owner[two][differ]], axis=0))
        level.append(np.minimum(height[one], height[two])[differ])
    pairs, which = np.unique(np.concatenate(ends, axis=1), axis=1, return_inverse=True)
    saddle = np.full(pairs.shape[1], -np.inf)
    np.maximum.at(saddle, which.ravel(), np.concatenate(level))
    return [(int(a), int(b), float(c)) for a, b, c in zip(*pairs, saddle, strict=True)]
