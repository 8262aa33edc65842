"""What a configuration says and may not mean."""

from __future__ import annotations

import math
from typing import Any

from pilotage.pool.controller import Linear, RelativeSupply
from pilotage.pool.decorator import Standardiser
from pilotage.pool.pipeline import Bound, Pipeline


def advise(made: Any) -> tuple[str, ...]:  # noqa: ANN401 - a pipeline or a pool
    """Say what is likely to disappoint."""
    if not isinstance(made, Pipeline):
        return ("there is no controller: nothing decides here",)
    limits, controller, found = _limits(made), made.controller, []
    bounded = any(one.maximum < math.inf or one.surplus < math.inf for one in limits)
    if isinstance(controller, Linear) and not bounded:
        found.append(
            "nothing bounds the demand, which grows for as long as the pool is full and cannot be "
            "had: set `surplus` or `maximum` of a Standardiser"
        )
    stuck = isinstance(controller, RelativeSupply) and not controller.first
    if stuck and not any(one.minimum > 0 for one in limits):
        found.append(
            "a multiple of nothing is nothing: once empty, the pool stays so; set `minimum` of a "
            "Standardiser, or `first`"
        )
    if isinstance(controller, (Linear, RelativeSupply)) and controller.low_utilisation > 0.8:
        found.append(
            f"low_utilisation is {controller.low_utilisation:g}: a pool that is full of jobs which "
            "use little of one feature, such as memory, shrinks all the same"
        )
    return tuple(found)


def _limits(made: Pipeline) -> list[Standardiser]:
    found, below = [], made.target
    while isinstance(below, Bound):
        if isinstance(below.shape, Standardiser):
            found.append(below.shape)
        below = below.target
    return found
