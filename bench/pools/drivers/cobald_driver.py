"""COBalD's own controllers, decorators and composites at the wheel of simulated drones.

It runs in an environment with COBalD; each line of its input is one run.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import msgspec
from cobald.composite.factory import FactoryPool
from cobald.composite.weighted import WeightedComposite
from cobald.controller.linear import LinearController
from cobald.controller.relative_supply import (
    RelativeSupplyController,
)
from cobald.decorator.standardiser import Standardiser
from cobald.interfaces import Pool

from pilotage.pool.simulate.pilots import PilotPhase, SimulatedPilot
from pilotage.pool.simulate.run import Steer, run
from pilotage.pool.simulate.scenario import SCENARIOS
from pilotage.pool.simulate.world import World

_SECONDS = 60
_READY = PilotPhase.READY
_OVER = frozenset({PilotPhase.DRAINING, PilotPhase.GONE})


class Setup(msgspec.Struct, frozen=True, kw_only=True):
    """One configuration of COBalD."""

    #: One tree over all providers, as TARDIS builds it, or one pipeline for each machine type.
    tree: str = "joint"
    law: str = "linear"
    low: float = 0.9
    high: float = 0.9
    rate: float = 1.0
    low_scale: float = 0.9
    high_scale: float = 1.1
    surplus: float = float("inf")
    minimum: float = 1.0
    #: Whether memory counts beside cores.
    memory: bool = True


class Ask(msgspec.Struct, frozen=True):
    """One run."""

    scenario: str
    seed: int
    setup: Setup


class Child(Pool):  # type: ignore[misc]
    """A drone as TARDIS shows it to COBalD."""

    def __init__(self, world: World, pool: int, *, memory: bool) -> None:
        """Order it."""
        self._world, self._memory = world, memory
        self.drone: SimulatedPilot = world.order(pool)
        self._number = world.tally.orders
        self._demand = float(self.drone.cores)

    def __hash__(self) -> int:
        """Be the same in each run: COBalD keeps its drones in a set."""
        return self._number

    def __eq__(self, other: object) -> bool:
        """Be nobody else."""
        return self is other

    @property
    def supply(self) -> float:
        """Return its cores while it takes jobs."""
        return self.drone.cores if self.drone.state is _READY else 0.0

    @property
    def demand(self) -> float:
        """Return what is wanted of it; nothing when it is gone or its time is over."""
        return 0.0 if self.drone.state in _OVER else self._demand

    @demand.setter
    def demand(self, value: float) -> None:
        self._demand = value
        if value <= 0:
            self._world.cancel(self.drone)
            self._world.drain(self.drone)

    @property
    def utilisation(self) -> float:
        """Return the part in use of its least used feature."""
        cores, memory = self.drone.ratios
        return min(cores, memory) if self._memory else cores

    @property
    def allocation(self) -> float:
        """Return the part in use of its most used feature."""
        cores, memory = self.drone.ratios
        return max(cores, memory) if self._memory else cores


class Factory(FactoryPool):  # type: ignore[misc]
    """COBalD's factory, which sums over its drones once a step instead of once a question."""

    known: dict[str, float]

    @property
    def supply(self) -> float:
        """Return the sum of its children."""
        return self._once("supply")

    @property
    def utilisation(self) -> float:
        """Return the mean of its children."""
        return self._once("utilisation")

    @property
    def allocation(self) -> float:
        """Return the mean of its children."""
        return self._once("allocation")

    def _once(self, name: str) -> float:
        if name not in self.known:
            self.known[name] = getattr(FactoryPool, name).fget(self)
        return self.known[name]


def steer(setup: Setup, world: World) -> Steer:
    """Build the pipelines and return what drives them."""
    factories = [
        Factory(factory=lambda n=n: Child(world, n, memory=setup.memory))
        for n in range(len(world.pools))
    ]
    for factory in factories:
        factory.known = {}
    controllers = list(_controllers(setup, world, factories))

    def tick(_world: World) -> None:
        for factory in factories:
            factory.known = {}
        for controller in controllers:
            controller.regulate(_SECONDS)
        for factory in factories:
            _adjust(factory)

    return tick


def _controllers(setup: Setup, world: World, factories: list[Any]) -> Iterator[Any]:
    quotas = world.quota
    if setup.tree == "joint":
        sites = [
            Standardiser(
                WeightedComposite(
                    *(factories[n] for n, at in enumerate(world.place) if at == place),
                    weight="utilisation",
                ),
                maximum=quota,
            )
            for place, quota in enumerate(quotas)
        ]
        yield _controller(setup, WeightedComposite(*sites, weight="utilisation"), sum(quotas))
        return
    for n, factory in enumerate(factories):
        yield _controller(setup, factory, quotas[world.place[n]])


def _controller(setup: Setup, pool: Any, maximum: float) -> Any:  # noqa: ANN401 - COBalD has no types
    limited = Standardiser(pool, minimum=setup.minimum, maximum=maximum, surplus=setup.surplus)
    limits = {"low_utilisation": setup.low, "high_allocation": setup.high}
    if setup.law == "linear":
        return LinearController(limited, **limits, rate=setup.rate, interval=_SECONDS)
    scales = {"low_scale": setup.low_scale, "high_scale": setup.high_scale}
    return RelativeSupplyController(limited, **limits, **scales, interval=_SECONDS)


def _adjust(factory: Any) -> None:  # noqa: ANN401 - COBalD has no types
    """Do what the pool's own loop does between two sleeps."""
    supply, demand = factory.supply, factory.demand
    if supply > demand:
        factory._shrink(target=demand)  # noqa: SLF001 - the loop that sleeps cannot be simulated
    else:
        factory._grow(target=demand)  # noqa: SLF001


def main() -> None:
    """Answer each line with figures, until the input ends."""
    decoder = msgspec.json.Decoder(Ask)
    for line in sys.stdin:
        ask = decoder.decode(line)
        found = run(SCENARIOS[ask.scenario], ask.seed, lambda world: steer(ask.setup, world))  # noqa: B023
        print(msgspec.json.encode(found).decode(), flush=True)


if __name__ == "__main__":
    main()
