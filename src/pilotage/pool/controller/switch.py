"""One controller of several, by demand."""

from __future__ import annotations

from bisect import bisect_right
from typing import Any

import msgspec

from pilotage.base import errors
from pilotage.pool.controller.linear import check_interval
from pilotage.pool.model import Controller, Decision, Reading
from pilotage.pool.pipeline import Stage
from pilotage.pool.words import volume


class Switch(Stage, frozen=True):
    """Let the controller decide in whose range the demand is."""

    #: The controller below all thresholds.
    default: Any
    #: Demands and the controllers from there on.
    others: tuple[tuple[float, Any], ...] = ()
    #: Seconds between two decisions.
    interval: float = 1.0

    def __post_init__(self) -> None:
        """Refuse what cannot decide."""
        check_interval(self.interval)
        for one in (self.default, *(one for _, one in self.others)):
            if not isinstance(one, Controller):
                raise errors.ConfigError(f"{type(one).__name__} is no controller")
        found = tuple(sorted(self.others, key=lambda pair: pair[0]))
        msgspec.structs.force_setattr(self, "others", found)

    def decide(self, reading: Reading, elapsed: float, state: Any = None) -> Decision:  # noqa: ANN401
        """Ask the controller of the range; each keeps a state of its own."""
        states: tuple[Any, ...] = state or (None,) * (1 + len(self.others))
        place = bisect_right([start for start, _ in self.others], reading.demand)
        start, chosen = (0.0, self.default) if place == 0 else self.others[place - 1]
        made: Decision = chosen.decide(reading, elapsed, states[place])
        kept = (*states[:place], made.state, *states[place + 1 :])
        name = type(chosen).__name__
        why = f"demand {volume(reading.demand)} is in the range from {volume(start)}: {name}"
        return Decision(made.demand, f"{why}: {made.words}", made.hold, kept)
