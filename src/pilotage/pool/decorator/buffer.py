"""Letting changes through only so often."""

from __future__ import annotations

import math
from typing import Any

import msgspec

from pilotage.base import errors
from pilotage.pool.model import Reading, Shaped, View
from pilotage.pool.pipeline import Stage
from pilotage.pool.words import volume


class Held(msgspec.Struct, frozen=True):
    """What a buffer holds."""

    #: The last demand.
    demand: float
    #: Seconds since it let one through.
    age: float = 0.0


class Buffer(Stage, frozen=True):
    """Pass on the last demand of each window."""

    #: Seconds between two changes.
    window: float = 10.0

    def __post_init__(self) -> None:
        """Refuse what makes no sense."""
        if not self.window >= 0:
            raise errors.ConfigError(f"window is {self.window:g}; it must not be below 0")

    def see(self, below: View, state: Any) -> Reading:  # noqa: ANN401
        """Show the demand that waits."""
        held = self._held(below, state)
        return msgspec.structs.replace(below.reading, demand=held.demand)

    def shape(self, demand: float | None, below: View, elapsed: float, state: Any) -> Shaped:  # noqa: ANN401
        """Pass the newest demand on if the window is over."""
        held = self._held(below, state)
        wanted, age = held.demand if demand is None else demand, held.age + elapsed
        changed = wanted != below.reading.demand
        if age >= self.window:
            # What is left over counts, so that ticks that do not divide a window delay none.
            late = age - self.window
            rest = late if late < self.window else 0.0
            return Shaped(wanted if changed else None, wanted, state=Held(wanted, rest))
        left = f"{volume(self.window - age)} s"
        words = f"{volume(wanted)} waits for {left}" if changed else ""
        return Shaped(None, wanted, words, Held(wanted, age))

    def _held(self, below: View, state: Any) -> Held:  # noqa: ANN401
        # The first demand is let through at once.
        return Held(below.reading.demand, math.inf) if state is None else state
