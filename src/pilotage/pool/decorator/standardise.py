"""Limits to a demand, and steps that it is rounded down to."""

from __future__ import annotations

import math
from typing import Any

import msgspec

from pilotage.base import errors
from pilotage.pool.model import Reading, Shaped, View
from pilotage.pool.pipeline import Stage
from pilotage.pool.words import volume

_INF = math.inf


class Standardiser(Stage, frozen=True):
    """Limit and round a demand; `minimum` and `maximum` overrule all else."""

    #: The least and the most that is passed on.
    minimum: float = -_INF
    maximum: float = _INF
    #: What is passed on is a multiple of this; 1 leaves fractions as they are.
    granularity: float = 1.0
    #: How far the demand may be below the supply.
    backlog: float = _INF
    #: How far the demand may be above the supply.
    surplus: float = _INF

    def __post_init__(self) -> None:
        """Refuse what makes no sense."""
        if not self.minimum <= self.maximum:
            message = f"minimum {self.minimum:g} is above maximum {self.maximum:g}"
            raise errors.ConfigError(message)
        for name in ("granularity", "backlog", "surplus"):
            if not getattr(self, name) > 0:
                raise errors.ConfigError(f"{name} is {getattr(self, name):g}; it must be above 0")

    def see(self, below: View, state: Any) -> Reading:  # noqa: ANN401
        """Show the demand before it was rounded, so that small steps add up."""
        return msgspec.structs.replace(below.reading, demand=self._smooth(below.reading, state))

    def shape(self, demand: float | None, below: View, elapsed: float, state: Any) -> Shaped:  # noqa: ANN401, ARG002
        """Keep the demand near the supply, then within its bounds."""
        reading = below.reading
        if demand is None:
            seen = self._smooth(reading, state)
            return Shaped(None, seen, state=seen)
        seen = self._clamp(demand, reading.supply)
        passed = seen
        if self.granularity != 1 and math.isfinite(demand):
            passed = self._clamp(demand // self.granularity * self.granularity, reading.supply)
        return Shaped(passed, seen, self._words(demand, seen, passed, reading.supply), seen)

    def _smooth(self, reading: Reading, state: Any) -> float:  # noqa: ANN401
        # Whoever else changed the demand of the pool, it is theirs that counts.
        if state is None or abs(state - reading.demand) >= self.granularity:
            return reading.demand
        return float(state)

    def _clamp(self, value: float, supply: float) -> float:
        near = min(max(value, supply - self.backlog), supply + self.surplus)
        return min(max(near, self.minimum), self.maximum)

    def _words(self, asked: float, seen: float, passed: float, supply: float) -> str:
        found = []
        if seen != asked:
            found.append(f"{volume(asked)} becomes {volume(seen)}: {self._limit(seen, supply)}")
        if passed != seen:
            found.append(f"{volume(passed)} in steps of {volume(self.granularity)}")
        return "; ".join(found)

    def _limit(self, seen: float, supply: float) -> str:
        if seen == self.maximum:
            return "the maximum"
        if seen == self.minimum:
            return "the minimum"
        if seen > supply:
            return f"at most {volume(self.surplus)} above the supply of {volume(supply)}"
        return f"at most {volume(self.backlog)} below the supply of {volume(supply)}"


#: COBalD's other names for it.
Limiter = Coarser = Standardiser
