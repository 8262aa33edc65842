"""Writing down what passes."""

from __future__ import annotations

import logging
import math
from typing import Any

from pilotage.base import errors
from pilotage.pool.model import Reading, Record, Shaped, View
from pilotage.pool.pipeline import Stage

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

    def shape(self, demand: float | None, below: View, elapsed: float, state: Any) -> Shaped:  # noqa: ANN401, ARG002
        """Pass the demand on as it is, with a line for the log."""
        if demand is None:
            return Shaped(None, below.reading.demand)
        name = self.name or below.name
        fields = _fields(demand, below)
        record = Record(name, self._level() or logging.INFO, self.message, fields)
        return Shaped(demand, demand, record=record)

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
