"""How long a policy thinks about ten thousand pools with a hundred thousand drones."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence

from pilotage.pool.policy.aimd import Hinted, Windowed
from pilotage.pool.policy.model import Hint, Memory, Sight

_POOLS = 10_000
_DRONES = 10
_HINTS = tuple(
    Hint(f"{cores}c/{memory}GB", cores, memory, 5e6)
    for cores, memory in ((1, 1), (1, 2), (8, 16), (1, 6), (8, 40))
)


def seconds(cycles: int) -> list[float]:
    """Return the seconds of each cycle of the policy that hears the queue, with much to order."""
    return _time(Hinted(), _HINTS, cycles)


def alone(cycles: int) -> list[float]:
    """Return the same of the policy with feedback alone."""
    return _time(Windowed(), (), cycles)


def _time(policy: Hinted | Windowed, hints: Sequence[Hint], cycles: int) -> list[float]:
    dice = random.Random(1)
    sights = [_sight(number, dice) for number in range(_POOLS)]
    memory, found = Memory(), []
    for cycle in range(cycles + 1):
        begin = time.perf_counter()
        memory = policy(600.0 * cycle, sights, hints, memory).memory
        found.append(time.perf_counter() - begin)
    # The first has nothing to remember.
    return found[1:]


def _sight(number: int, dice: random.Random) -> Sight:
    cores = dice.choice((8, 16))
    free = [0] * (cores + 1)
    for _ in range(_DRONES):
        free[dice.choice((0, 0, 0, 1, 2, cores))] += 1
    return Sight(
        f"pool {number}", f"provider {number // 2}", cores, cores * dice.choice((2.0, 6.0)),
        queued=dice.randrange(3), ready=_DRONES, free=tuple(free), callable=(3,), quota=400,
    )  # fmt: skip
