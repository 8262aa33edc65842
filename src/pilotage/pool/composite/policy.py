"""How the readings of many pools become one, and how one demand becomes many."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol

import msgspec

from pilotage.base import errors
from pilotage.pool.model import ASSUMED, Reading, mean


class Policy(Protocol):
    """What makes one pool of many."""

    def combine(self, readings: Sequence[Reading], demand: float) -> Reading:
        """See many as one."""

    def divide(self, demand: float, readings: Sequence[Reading]) -> list[float]:
        """Give each its part."""

    def words(self) -> str:
        """Say by what parts are given."""


class Uniform(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Every pool counts the same, whatever its size."""

    def combine(self, readings: Sequence[Reading], demand: float) -> Reading:
        """Take the plain mean of those that supply anything."""
        # COBalD also counts those that supply nothing, which are neither well nor badly used.
        return _total(readings, demand, [1.0] * len(readings))

    def divide(self, demand: float, readings: Sequence[Reading]) -> list[float]:
        """Give each the same."""
        return [demand / len(readings)] * len(readings)

    def words(self) -> str:
        """Say by what parts are given."""
        return "in equal parts"


class Weighted(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A pool counts by its supply, and is given its part by `weight`."""

    #: What parts are given by.
    weight: Literal["supply", "utilisation", "allocation"] = "supply"
    #: What a pool is given of which nothing is known; without it, its part by its weight, where
    #: what is not known counts as good.
    probe: float | None = None

    def __post_init__(self) -> None:
        """Refuse what makes no sense."""
        if self.weight not in {"supply", "utilisation", "allocation"}:
            hint = "by supply, utilisation or allocation"
            raise errors.ConfigError(f"pools cannot be weighted by {self.weight!r}", hint=hint)
        if self.probe is not None and not self.probe >= 0:
            raise errors.ConfigError(f"probe is {self.probe:g}; it must not be below 0")

    def combine(self, readings: Sequence[Reading], demand: float) -> Reading:
        """Take the mean by supply."""
        # COBalD weights utilisation by itself here: ten full cores and a thousand idle ones
        # are then nearly all used.
        return _total(readings, demand, [one.supply for one in readings])

    def divide(self, demand: float, readings: Sequence[Reading]) -> list[float]:
        """Give each by its weight; if nothing weighs anything, the same."""
        if self.probe is None:
            return _parts(demand, [self._weigh(one) for one in readings])
        least = min(self.probe, demand / len(readings))
        unknown = [not one.supply > 0 for one in readings]
        if all(unknown):
            return _parts(demand, [1.0] * len(readings))
        weights = [
            0.0 if new else self._weigh(one) for new, one in zip(unknown, readings, strict=True)
        ]
        if not sum(weights) > 0:
            weights = [0.0 if new else 1.0 for new in unknown]
        parts = _parts(demand - least * sum(unknown), weights)
        return [least if new else part for new, part in zip(unknown, parts, strict=True)]

    def words(self) -> str:
        """Say by what parts are given."""
        return f"by {self.weight}"

    def _weigh(self, one: Reading) -> float:
        if self.weight == "supply":
            return one.supply
        found = one.utilisation if self.weight == "utilisation" else one.allocation
        return ASSUMED if found is None else found


def _parts(demand: float, weights: list[float]) -> list[float]:
    total = sum(weights)
    if total > 0:
        return [demand * weight / total for weight in weights]
    return [demand / len(weights)] * len(weights)


def _total(readings: Sequence[Reading], demand: float, weights: list[float]) -> Reading:
    pairs = list(zip(weights, readings, strict=True))
    return Reading(
        sum(one.supply for one in readings),
        demand,
        mean([(weight, one.utilisation) for weight, one in pairs]),
        mean([(weight, one.allocation) for weight, one in pairs]),
        sum(one.queued for one in readings),
        sum(one.booting for one in readings),
        sum(one.draining for one in readings),
    )
