"""What was found so far, by what it is of."""

from __future__ import annotations

import sys
from collections import defaultdict

from bench import machine


class Found:
    """Measured values, told as they come."""

    def __init__(self) -> None:
        """Know none yet."""
        self._values: dict[str, list[float]] = defaultdict(list)

    def add(self, name: str, value: float) -> None:
        """Note a value, and tell people of it."""
        self._values[name].append(value)
        print(f"{name}: {value:.4g}  (load {machine.load()})", file=sys.stderr, flush=True)

    def __getitem__(self, name: str) -> list[float]:
        """Return the values of all repeats."""
        return self._values[name]

    def difference(self, name: str, other: str, by: float) -> list[float]:
        """Return by how much one is more than the other, repeat by repeat, in parts of `by`."""
        pairs = zip(self[name], self[other], strict=True)
        return [(one - another) / by for one, another in pairs]
