"""Run a world to its end with somebody at the wheel."""

from __future__ import annotations

from collections.abc import Callable

from .dice import Jobs
from .model import Figures, Scenario
from .world import World

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
