"""COBalD's controllers and pipelines at the wheel: drones of one machine are a pool."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from pilotage.pool.model import Reading
from pilotage.pool.pipeline import Pipeline
from pilotage.pool.policy.model import Act, Order

from .run import Steer
from .wheel import apply
from .world import World

_STEP_S = 60.0


class Lot:
    """The drones of one machine, as controllers see them."""

    def __init__(self, world: World, number: int, pending: float = math.inf) -> None:
        """Begin with no demand; so many orders may wait at once."""
        self._world = world
        self._pool = world.pools[number]
        self._pending = pending
        self.name = self._pool.machine.name
        self.demand = 0.0

    @property
    def supply(self) -> float:
        """Cores of drones that take jobs."""
        return float(len(self._pool.ready) * self._pool.machine.cores)

    @property
    def utilisation(self) -> float | None:
        """The part in use of the least used feature, in the mean."""
        return self.read().utilisation

    @property
    def allocation(self) -> float | None:
        """The part in use of the most used feature, in the mean."""
        return self.read().allocation

    def read(self) -> Reading:
        """See it."""
        pool, cores = self._pool, self._pool.machine.cores
        used = taken = 0.0
        for drone in pool.ready:
            low, high = sorted(drone.ratios)
            used += low
            taken += high
        count = len(pool.ready)
        return Reading(
            self.supply, self.demand, used / count if count else None,
            taken / count if count else None, float(len(pool.queued) * cores),
            float(len(pool.booting) * cores), float(len(pool.draining) * cores),
        )  # fmt: skip

    def settle(self) -> None:
        """Order, cancel and drain until the demand is met, as the hub does."""
        pool, cores = self._pool, self._pool.machine.cores
        have = len(pool.queued) + len(pool.booting) + len(pool.ready)
        # What cannot be had is not asked for: the way back would begin up there.
        self.demand = min(self.demand, (have + self._pending) * cores)
        change = math.ceil(self.demand / cores - 1e-9) - have
        if change > 0:
            room = max(0.0, self._pending - len(pool.queued))
            self._do(Act.ORDER, int(min(change, room)))
        elif change < 0:
            off = min(len(pool.queued), -change)
            self._do(Act.CANCEL, off)
            self._do(Act.DRAIN, -change - off)

    def _do(self, act: Act, count: int) -> None:
        if count:
            apply(self._world, self._pool, Order(self.name, act, count, ""))


def piped(
    build: Callable[[World, Callable[[int], Lot]], Sequence[Pipeline]], pending: float = math.inf
) -> Callable[[World], Steer]:
    """Let pipelines steer; `build` makes them of the pools of a world, by their numbers."""

    def begin(world: World) -> Steer:
        lots = [Lot(world, number, pending) for number in range(len(world.pools))]
        pipelines = build(world, lots.__getitem__)
        last = [-math.inf] * len(pipelines)

        def tick(world: World) -> None:
            now = world.now * _STEP_S
            for number, pipeline in enumerate(pipelines):
                # A world moves by minutes: whoever looks more often looks once a minute.
                gone = now - last[number]
                if gone >= pipeline.interval:
                    pipeline.tick(max(_STEP_S, pipeline.interval) if math.isinf(gone) else gone)
                    last[number] = now
            for lot in lots:
                lot.settle()

        return tick

    return begin
