"""A pool of pilots whose use the test sets, for controllers, decorators and composites."""

from __future__ import annotations

from collections.abc import Mapping

from pilotage.pool.fitness import Basis, Feature, Fitness, fitness
from pilotage.pool.model import Reading, mean


class ScriptedPool:
    """Pilots of one kind, each with its supply and how well it is used."""

    def __init__(self, name: str, demand: float = 0.0, basis: Basis = Basis.CLAIMED) -> None:
        self.name = name
        self.demand = demand
        self.queued = self.booting = self.draining = 0.0
        self._basis = basis
        self._pilots: dict[str, tuple[float, Fitness]] = {}

    def put(self, pilot: str, supply: float, features: Mapping[str, Feature]) -> None:
        self.judge(pilot, supply, fitness(features, self._basis))

    def judge(self, pilot: str, supply: float, found: Fitness) -> None:
        self._pilots[pilot] = supply, found

    def read(self) -> Reading:
        pilots = self._pilots.values()
        return Reading(
            float(sum(supply for supply, _ in pilots)),
            self.demand,
            mean([(supply, found.utilisation) for supply, found in pilots]),
            mean([(supply, found.allocation) for supply, found in pilots]),
            self.queued,
            self.booting,
            self.draining,
        )

    @property
    def supply(self) -> float:
        return self.read().supply

    @property
    def utilisation(self) -> float | None:
        return self.read().utilisation

    @property
    def allocation(self) -> float | None:
        return self.read().allocation
