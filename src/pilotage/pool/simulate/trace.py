"""Jobs as they were recorded, to be replayed instead of dice."""

from __future__ import annotations

import math
from collections.abc import Iterable

import msgspec

from .dice import Arrival, Jobs
from .model import Kind

_MINUTE = 60.0


class Past(msgspec.Struct, frozen=True):
    """A job that was run."""

    #: When it was submitted, in seconds from any beginning.
    submitted: float
    #: Seconds that it ran.
    ran: float
    cores: int = 1
    #: Gigabytes.
    memory: float = 1.0


class Trace(msgspec.Struct, frozen=True):
    """Kinds of jobs, and which come in each minute."""

    kinds: tuple[Kind, ...]
    steps: Jobs

    @property
    def hours(self) -> int:
        """Return how long it is."""
        return len(self.steps) // 60


def recorded(jobs: Iterable[Past]) -> Trace:
    """Make a trace of jobs: those that need the same are of one kind."""
    known = sorted(jobs, key=lambda one: one.submitted)
    first = known[0].submitted if known else 0.0
    hours = math.ceil((known[-1].submitted - first + 1) / 3600) if known else 1
    steps: list[list[Arrival]] = [[] for _ in range(hours * 60)]
    numbers: dict[tuple[int, int], int] = {}
    for one in known:
        need = (one.cores, math.ceil(one.memory))
        number = numbers.setdefault(need, len(numbers))
        minutes = max(1, math.ceil(one.ran / _MINUTE))
        steps[int((one.submitted - first) / _MINUTE)].append((number, minutes))
    kinds = tuple(
        Kind(f"{cores}c/{memory}GB", cores, memory, 1.0, 1.0) for cores, memory in numbers
    )
    return Trace(kinds, tuple(map(tuple, steps)))
