"""What the store remembers that a policy can be tried on: jobs, and how long pilots waited."""

from __future__ import annotations

from pilotage.pool.simulate.trace import Past
from pilotage.store import Db

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
