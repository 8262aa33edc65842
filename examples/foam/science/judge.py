"""First step: clean a scan and judge whether its foam is worth the work that follows."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from . import files, foams


def judge(*, path: str, clean: str, verdict: str, low: int, high: int) -> None:
    """Accept a scan with ``low`` to ``high`` bubbles; only then is the clean image written."""
    picture = files.read_png(path)
    try:
        image = foams.flatten(picture.pixels)
    except foams.NoWallsError as error:
        decide(verdict, path, 0, accepted=False, reason=str(error))
        return
    bubbles = count(image)
    accepted = low <= bubbles <= high
    # The clean image wakes the next step, so all else must be there before it.
    decide(verdict, path, bubbles, accepted=accepted, reason=weigh(bubbles, low, high))
    if accepted:
        files.publish_png(clean, np.rint(image * 255).astype(np.uint8), picture.um)


def decide(verdict: str, path: str, bubbles: int, *, accepted: bool, reason: str) -> None:
    """Write the verdict."""
    said = {"scan": Path(path).name, "bubbles_estimated": bubbles}
    files.publish_json(verdict, {**said, "accepted": accepted, "reason": reason})


def count(image: foams.Floats) -> int:
    """Estimate the bubbles from the distance to the walls: each has a summit of its own."""
    depth = foams.relief(image)
    return int(foams.bubbles(depth, foams.grain(depth)).max())


def weigh(bubbles: int, low: int, high: int) -> str:
    """Say in words how a count stands to its limits."""
    if bubbles < low:
        return f"too few bubbles: {bubbles} is below {low}"
    if bubbles > high:
        return f"too many bubbles: {bubbles} is above {high}"
    return f"{bubbles} bubbles lie within {low} to {high}"
