"""Growing and shrinking by a fraction of what there is."""

from __future__ import annotations

from typing import Any

from pilotage.base import errors
from pilotage.pool.controller.linear import check_band, judge
from pilotage.pool.model import Decision, Reading
from pilotage.pool.pipeline import Stage
from pilotage.pool.words import volume


class RelativeSupply(Stage, frozen=True):
    """Demand a multiple of the supply."""

    #: Utilisation below which there shall be less.
    low_utilisation: float = 0.5
    #: Allocation above which there shall be more.
    high_allocation: float = 0.5
    #: The multiple if there shall be less.
    low_scale: float = 0.9
    #: The multiple if there shall be more.
    high_scale: float = 1.1
    #: Seconds between two decisions.
    interval: float = 1.0
    #: What is asked for where there is nothing yet, since a multiple of nothing is nothing.
    first: float = 0.0

    def __post_init__(self) -> None:
        """Refuse what makes no sense."""
        check_band(self.low_utilisation, self.high_allocation, self.interval)
        if not 0 <= self.low_scale < 1:
            raise errors.ConfigError(f"low_scale is {self.low_scale:g}; it must be below 1")
        if not self.high_scale > 1:
            raise errors.ConfigError(f"high_scale is {self.high_scale:g}; it must be above 1")
        if not self.first >= 0:
            raise errors.ConfigError(f"first is {self.first:g}; it must not be below 0")

    def decide(self, reading: Reading, elapsed: float, state: Any = None) -> Decision:  # noqa: ANN401, ARG002
        """Scale the supply down if there is waste, up if there is no room, else ask for it."""
        why, way = judge(reading, self.low_utilisation, self.high_allocation)
        if way > 0 and not reading.supply > 0:
            return Decision(self.first, f"{why}: {self._first()}")
        scale = {-1: self.low_scale, 0: 1.0, 1: self.high_scale}[way]
        wanted = reading.supply * scale
        words = f"{why}: {scale:g} times the supply of {volume(reading.supply)}"
        return Decision(wanted, f"{words} is {volume(wanted)}")

    def _first(self) -> str:
        if self.first:
            return f"there is no supply, begin with {volume(self.first)}"
        return "there is no supply, and a multiple of nothing is nothing; set a minimum or `first`"
