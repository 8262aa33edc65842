"""Recorded jobs and queue delays, read from the store for replay."""

from __future__ import annotations

import math
from collections.abc import Iterable

import msgspec

from pilotage.pool.simulate.dice import Arrival, Jobs
from pilotage.pool.simulate.model import JobKind
from pilotage.store import Db

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

    kinds: tuple[JobKind, ...]
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
        JobKind(f"{cores}c/{memory}GB", cores, memory, 1.0, 1.0) for cores, memory in numbers
    )
    return Trace(kinds, tuple(map(tuple, steps)))


_GB = 1e9
#: Jobs and pilots that are looked at, the last ones.
_MOST = 200_000
#: Gigabytes of a job that did not say.
_MEMORY = 1.0


def jobs(db: Db, since: float) -> list[Past]:
    """Return jobs that ran, the oldest first."""
    rows = db.rows("past_jobs", since=since, most=_MOST)
    return [
        Past(created, ran, cpus or 1, memory / _GB if memory else _MEMORY)
        for created, ran, cpus, memory in reversed(rows)
    ]


def waits(db: Db, since: float) -> dict[str, list[float]]:
    """Return the seconds that pilots waited, by site."""
    found: dict[str, list[float]] = {}
    for site, seconds in db.rows("past_waits", since=since, most=_MOST):
        found.setdefault(site, []).append(seconds)
    return found
