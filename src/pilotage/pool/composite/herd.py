"""A pool of pilots, summed up as they change."""

from __future__ import annotations

from collections.abc import Mapping

from pilotage.pool.fitness import Basis, Feature, Fitness, fitness
from pilotage.pool.model import Reading

#: Sums are made anew when there were so many more changes than there are pilots.
_SLACK = 64

#: The supply; then for utilisation and for allocation: whether it is known (0 or 1, so that the
#: sum is exact), the supply that it is known of, and how much of that it is.
_Row = tuple[float, float, float, float, float, float, float]
_COLUMNS = 7


class Herd:
    """Pilots of one kind: a change costs the same however many there are, and so does a reading."""

    def __init__(self, name: str, demand: float = 0.0, basis: Basis = Basis.CLAIMED) -> None:
        """Begin with no pilots."""
        self.name = name
        self.demand = demand
        self.basis = basis
        #: Volumes on the way and on their way out, told by whoever starts pilots.
        self.queued = self.booting = self.draining = 0.0
        self._rows: dict[str, _Row] = {}
        self._sums: list[float] = [0.0] * _COLUMNS
        self._changes = 0

    def put(self, pilot: str, supply: float, features: Mapping[str, Feature]) -> None:
        """Say what a pilot has and does; what was said of it before is forgotten."""
        self.judge(pilot, supply, fitness(features, self.basis))

    def judge(self, pilot: str, supply: float, found: Fitness) -> None:
        """Say how well a pilot is used."""
        row = (supply, *_part(supply, found.utilisation), *_part(supply, found.allocation))
        self._change(self._rows.get(pilot), row)
        self._rows[pilot] = row

    def drop(self, pilot: str) -> None:
        """Forget a pilot."""
        self._change(self._rows.pop(pilot, None), None)

    def read(self) -> Reading:
        """See all of them as one, each by its supply."""
        supply, *parts = self._sums
        return Reading(
            supply if self._rows else 0.0,
            self.demand,
            _fraction(*parts[:3]),
            _fraction(*parts[3:]),
            self.queued,
            self.booting,
            self.draining,
        )

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def supply(self) -> float:
        """The volume of all pilots."""
        return self.read().supply

    @property
    def utilisation(self) -> float | None:
        """The fraction of it that is made use of."""
        return self.read().utilisation

    @property
    def allocation(self) -> float | None:
        """The fraction of it that is taken."""
        return self.read().allocation

    def _change(self, old: _Row | None, new: _Row | None) -> None:
        self._changes += 1
        if self._changes > len(self._rows) + _SLACK:
            self._sum_up(old, new)
            return
        sums = self._sums
        for place in range(_COLUMNS):
            sums[place] += (new[place] if new else 0.0) - (old[place] if old else 0.0)

    def _sum_up(self, old: _Row | None, new: _Row | None) -> None:
        # Sums of differences lose digits; now and then they are made from what is there.
        rows = [row for row in self._rows.values() if row is not old]
        rows += [new] if new else []
        self._sums = [sum(column) for column in zip(*rows, strict=True)] or [0.0] * _COLUMNS
        self._changes = 0


def _part(supply: float, fraction: float | None) -> tuple[float, float, float]:
    return (0.0, 0.0, 0.0) if fraction is None else (1.0, supply, supply * fraction)


def _fraction(known: float, supply: float, part: float) -> float | None:
    """Return the fraction; where it is known of no pilot, the other sums are rounding errors."""
    return part / supply if known and supply > 0 else None
