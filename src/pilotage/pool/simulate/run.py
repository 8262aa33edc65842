"""Run a simulated world to its end, and record it minute by minute."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from pilotage.pool.simulate.dice import Jobs
from pilotage.pool.simulate.model import Figures, Scenario
from pilotage.pool.simulate.world import World

#: Called once a minute, after jobs were matched.
Steer = Callable[[World], None]


def run(
    scenario: Scenario,
    seed: int,
    steer: Callable[[World], Steer],
    *,
    instant: bool = False,
    jobs: Jobs | None = None,
) -> Figures:
    """Return how it went; with `jobs`, those come instead of what the dice say."""
    world = World(scenario, seed, instant=instant, jobs=jobs)
    wheel = steer(world)
    while world.now < world.end:
        world.step()
        wheel(world)
        if instant:
            # What is ordered now is there now.
            world.start()
            world.match()
        world.close()
    left = [came for queue in world.overlay.queues for came, _ in queue]
    return world.tally.figures(left)


_MINUTES = 60


class Film(msgspec.Struct):
    """Cores in each minute."""

    #: Of pilots that take jobs, and of all that are there or on their way.
    supply: list[float] = []
    demand: list[float] = []
    #: In use, and that jobs wait for.
    used: list[float] = []
    waiting: list[float] = []
    #: Core-hours held times their price, once it counts.
    cost: float = 0.0

    def watch(self, steer: Callable[[World], Steer]) -> Callable[[World], Steer]:
        """Record a run while a policy steers it."""

        def begin(world: World) -> Steer:
            wheel, warm = steer(world), world.scenario.warm * _MINUTES

            def tick(world: World) -> None:
                wheel(world)
                self._take(world, counts=world.now >= warm)

            return tick

        return begin

    def _take(self, world: World, *, counts: bool) -> None:
        supply = demand = cost = 0.0
        for pool in world.pools:
            ready, cores = len(pool.ready), pool.machine.cores
            coming = len(pool.queued) + len(pool.booting)
            supply += ready * cores
            demand += (ready + coming) * cores
            held = ready + len(pool.booting) + len(pool.draining)
            cost += held * cores * pool.machine.price
        self.supply.append(supply)
        self.demand.append(demand)
        self.used.append(float(world.tally.used))
        self.waiting.append(float(world.overlay.waiting))
        if counts:
            self.cost += cost / _MINUTES
