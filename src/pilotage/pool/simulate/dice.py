"""Random input of a simulation: jobs, capacities and delays, the same for each seed."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from functools import lru_cache

from pilotage.pool.simulate.model import JobKind, Load, Provider

#: A job that comes: which kind it is, and the steps that it runs.
Arrival = tuple[int, int]
#: Those of each step.
Jobs = tuple[tuple[Arrival, ...], ...]
MINUTES = 60


@lru_cache(maxsize=8)
def arrivals(load: Load, kinds: tuple[JobKind, ...], hours: int, seed: int) -> Jobs:
    """Return the jobs of each step."""
    dice = random.Random(f"jobs {seed}")  # noqa: S311 - dice
    steps: list[list[Arrival]] = [[] for _ in range(hours * MINUTES)]
    for begin, end, level, mix in _phases(load, kinds, hours, dice):
        for number, kind in enumerate(kinds):
            rate = level * mix[number] / (kind.cores * _mean(kind)) / load.batch
            now = begin + _next(rate, dice)
            while now < end:
                size = 1 + int(-math.log(1.0 - dice.random()) * (load.batch - 0.5))
                step = int(now * MINUTES)
                steps[step].extend((number, _steps(kind, dice)) for _ in range(size))
                now += _next(rate, dice)
    return tuple(map(tuple, steps))


def _phases(
    load: Load, kinds: tuple[JobKind, ...], hours: int, dice: random.Random
) -> Iterator[tuple[float, float, float, list[float]]]:
    begin = 0.0
    while begin < hours:
        end = min(float(hours), begin + max(1.0, dice.expovariate(1 / load.phase)))
        idle = 100 * dice.random() < load.idle
        level = dice.uniform(load.low, load.high) * (0.02 if idle else 1.0)
        parts = [dice.gammavariate(load.even * kind.share, 1.0) for kind in kinds]
        yield begin, end, level, [part / sum(parts) for part in parts]
        begin = end


def _next(rate: float, dice: random.Random) -> float:
    return dice.expovariate(rate) if rate > 1e-9 else math.inf


@lru_cache(maxsize=64)
def _mean(kind: JobKind) -> float:
    dice = random.Random(1)  # noqa: S311 - dice
    return sum(_steps(kind, dice) for _ in range(4000)) / 4000 / MINUTES


def _steps(kind: JobKind, dice: random.Random) -> int:
    hours = min(kind.longest, kind.median * math.exp(dice.gauss(0, kind.sigma)))
    return max(1, math.ceil(hours * MINUTES))


@lru_cache(maxsize=64)
def capacities(provider: Provider, hours: int, seed: int) -> tuple[int, ...]:
    """Return the cores that may be held in each step."""
    dice = random.Random(f"capacity {provider.name} {seed}")  # noqa: S311 - dice
    found: list[int] = []
    while len(found) < hours * MINUTES:
        lasts = max(1, int(dice.expovariate(1 / 8.0) * MINUTES))
        level = provider.capacity * (1 + dice.uniform(-provider.swing, provider.swing))
        found.extend([int(level)] * lasts)
    return tuple(found[: hours * MINUTES])


@lru_cache(maxsize=64)
def congestion(provider: str, hours: int, seed: int) -> tuple[float, ...]:
    """Return by how much the delay of an order is longer in each step."""
    dice = random.Random(f"congestion {provider} {seed}")  # noqa: S311 - dice
    found: list[float] = []
    while len(found) < hours * MINUTES:
        lasts = max(1, int(dice.expovariate(1 / 6.0) * MINUTES))
        found.extend([math.exp(dice.uniform(math.log(0.4), math.log(2.5)))] * lasts)
    return tuple(found[: hours * MINUTES])


class Delays:
    """The delays of one machine's orders, one after the other."""

    def __init__(self, provider: Provider, machine: str, seed: int) -> None:
        self._dice = random.Random(f"delays {machine} {seed}")  # noqa: S311 - dice
        self._provider = provider

    def next(self, factor: float) -> int:
        """Return the steps that the next order waits."""
        spread = math.exp(self._dice.gauss(0, self._provider.sigma))
        return int(self._provider.delay * spread * factor * MINUTES)
