"""First step: clean a scan and judge whether its foam is worth the work that follows."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from . import files, foams


def judge(*, path: str, clean: str, verdict: str, low: int, high: int) -> None:
    """Accept a scan with ``low`` to ``high`` bubbles; only then is the clean image written."""
    picture = files.read_png(path)
    image = foams.flatten(picture.pixels)
    try:
        bubbles = count(image)
        reason = weigh(bubbles, low, high)
    except foams.NoWallsError as error:
        bubbles, reason = 0, str(error)
    accepted = low <= bubbles <= high
    if accepted:
        files.publish_png(clean, np.rint(image * 255).astype(np.uint8), picture.um)
    files.publish_json(
        verdict,
        {
            "scan": Path(path).name,
            "bubbles_estimated": bubbles,
            "accepted": accepted,
            "reason": reason,
        },
    )


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
