"""Decorators of pools: change or log the demand on its way to a pool."""

from __future__ import annotations

import logging
import math
from typing import Any

import msgspec

from pilotage.base import errors
from pilotage.pool.model import Decorated, LogLine, Reading, View
from pilotage.pool.pipeline import Stage
from pilotage.pool.words import volume


class BufferState(msgspec.Struct, frozen=True):
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
        if not self.window >= 0:
            raise errors.ConfigError(f"window is {self.window:g}; it must not be below 0")

    def see(self, below: View, state: Any) -> Reading:  # noqa: ANN401
        """Show the demand that waits."""
        held = self._held(below, state)
        return msgspec.structs.replace(below.reading, demand=held.demand)

    def decorate(self, demand: float | None, below: View, elapsed: float, state: Any) -> Decorated:  # noqa: ANN401
        """Pass the newest demand on if the window is over."""
        held = self._held(below, state)
        wanted, age = held.demand if demand is None else demand, held.age + elapsed
        changed = wanted != below.reading.demand
        if age >= self.window:
            # What is left over counts, so that ticks that do not divide a window delay none.
            late = age - self.window
            rest = late if late < self.window else 0.0
            return Decorated(wanted if changed else None, wanted, state=BufferState(wanted, rest))
        left = f"{volume(self.window - age)} s"
        words = f"{volume(wanted)} waits for {left}" if changed else ""
        return Decorated(None, wanted, words, BufferState(wanted, age))

    def _held(self, below: View, state: Any) -> BufferState:  # noqa: ANN401
        # The first demand is let through at once.
        return BufferState(below.reading.demand, math.inf) if state is None else state


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
        if not self.minimum <= self.maximum:
            message = f"minimum {self.minimum:g} is above maximum {self.maximum:g}"
            raise errors.ConfigError(message)
        for name in ("granularity", "backlog", "surplus"):
            if not getattr(self, name) > 0:
                raise errors.ConfigError(f"{name} is {getattr(self, name):g}; it must be above 0")

    def see(self, below: View, state: Any) -> Reading:  # noqa: ANN401
        """Show the demand before it was rounded, so that small steps add up."""
        return msgspec.structs.replace(below.reading, demand=self._smooth(below.reading, state))

    def decorate(self, demand: float | None, below: View, elapsed: float, state: Any) -> Decorated:  # noqa: ANN401, ARG002
        """Keep the demand near the supply, then within its bounds."""
        reading = below.reading
        if demand is None:
            seen = self._smooth(reading, state)
            return Decorated(None, seen, state=seen)
        seen = self._clamp(demand, reading.supply)
        passed = seen
        if self.granularity != 1 and math.isfinite(demand):
            passed = self._clamp(demand // self.granularity * self.granularity, reading.supply)
        return Decorated(passed, seen, self._words(demand, seen, passed, reading.supply), seen)

    def _smooth(self, reading: Reading, state: Any) -> float:  # noqa: ANN401
        # If another controller changed the demand of the pool, its value counts.
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


_MESSAGE = (
    "demand = %(value)s [demand=%(demand)s, supply=%(supply)s, "
    "utilisation=%(utilisation).2f, allocation=%(allocation).2f]"
)


class Logger(Stage, frozen=True):
    """Log every demand on its way."""

    #: The log; that of the pool's name if there is none.
    name: str | None = None
    #: A `%`-style message that may name value, demand, supply, utilisation, allocation, target.
    message: str = _MESSAGE
    #: A number, or a name such as `INFO`.
    level: int | str = logging.INFO

    def __post_init__(self) -> None:
        """Refuse messages that name what is not there, and unknown levels."""
        try:
            self.message % _fields(0.0, View("", Reading(0.0, 0.0)))
        except (KeyError, TypeError, ValueError) as error:
            message = f"the message {self.message!r} cannot be written: {error}"
            hint = "fields are value, demand, supply, utilisation, allocation and target"
            raise errors.ConfigError(message, hint=hint) from None
        if self._level() is None:
            raise errors.ConfigError(f"there is no level {self.level!r}")

    def see(self, below: View, state: Any) -> Reading:  # noqa: ANN401, ARG002
        """Show the pool as it is."""
        return below.reading

    def decorate(self, demand: float | None, below: View, elapsed: float, state: Any) -> Decorated:  # noqa: ANN401, ARG002
        """Pass the demand on as it is, with a line for the log."""
        if demand is None:
            return Decorated(None, below.reading.demand)
        name = self.name or below.name
        fields = _fields(demand, below)
        record = LogLine(name, self._level() or logging.INFO, self.message, fields)
        return Decorated(demand, demand, record=record)

    def _level(self) -> int | None:
        if isinstance(self.level, int):
            return self.level
        return logging.getLevelNamesMapping().get(self.level.upper())


def _fields(value: float, below: View) -> dict[str, Any]:
    seen = below.reading
    used, taken = (
        math.nan if found is None else found for found in (seen.utilisation, seen.allocation)
    )
    return {
        "value": value,
        "demand": seen.demand,
        "supply": seen.supply,
        "utilisation": used,
        "allocation": taken,
        # COBalD's old name for it.
        "consumption": taken,
        "target": below.name,
    }
