"""The instrument: draws scans of foams, one after another, as a microscope on its own would.

    python -m examples.foam.instrument FOLDER --scans 12 --seed 12 --every 1.5

About half of them have the right number of bubbles; their names do not say which.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np

from .science import draw


def main() -> None:
    """Draw what the command line asks for."""
    parser = argparse.ArgumentParser(prog="examples.foam.instrument", description=__doc__)
    parser.add_argument("folder", type=Path, help="where the scans go")
    parser.add_argument("--scans", type=int, default=12, help="how many")
    parser.add_argument("--seed", type=int, default=12, help="the same seed draws the same scans")
    parser.add_argument("--every", type=float, default=1.5, help="seconds from scan to scan")
    options = parser.parse_args()
    rng = np.random.default_rng(options.seed)
    due = time.monotonic()
    for number, kind in enumerate(deck(rng, options.scans), start=1):
        bubbles = int(rng.integers(*draw.CLASSES[kind], endpoint=True))
        scan = draw.scan(rng, bubbles)
        time.sleep(max(0.0, due - time.monotonic()))
        due = max(due, time.monotonic()) + options.every
        draw.write(str(options.folder / f"foam-{number:02}.png"), scan)


def deck(rng: np.random.Generator, scans: int) -> list[str]:
    """Shuffle the classes of the scans to come: one in two is right."""
    kinds = ["right", "few", "right", "many"]
    return [str(kind) for kind in rng.permutation([kinds[n % 4] for n in range(scans)])]


if __name__ == "__main__":
    main()
