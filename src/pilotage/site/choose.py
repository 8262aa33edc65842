"""Which queued jobs start next on this machine."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from pilotage import text
from pilotage.job import model, moves, records
from pilotage.match import fit
from pilotage.match.model import Offer
from pilotage.store import Db

#: Jobs that are claimed before there is room for them, at most.
_MOST_AHEAD = 32
#: Seconds of work to have at hand; jobs longer than this are never claimed ahead.
_AHEAD_S = 0.1


class Tenant(msgspec.Struct):
    """A job that runs here."""

    job: int
    attempt: int
    spec: model.JobSpec
    limit_key: str
    rule: str
    dir: str
    outputs: dict[str, str] = {}
    #: Lock file of the starter of an earlier process that holds it; empty if it is ours.
    adopted: str = ""
    stopping: bool = False

    @property
    def key(self) -> str:
        """The name of the attempt."""
        return f"{self.job}.{self.attempt}"


class Specs:
    """Definitions by number; few, and shared by many jobs."""

    def __init__(self) -> None:
        """Know none yet."""
        self.known: dict[int, model.JobSpec] = {}

    def get(self, db: Db, number: int) -> model.JobSpec:
        """Read a definition once."""
        if number not in self.known:
            self.known[number] = records.read_spec(db.value("spec_body", id=number))
        return self.known[number]


def ahead(cpus: int, wall: float) -> int:
    """Say how many jobs to claim before there is room, if jobs take so long: none but for tiny ones."""
    if wall >= _AHEAD_S:
        return 0
    return min(_MOST_AHEAD, int(cpus * _AHEAD_S / max(wall, 0.001)))


def choose(
    db: Db, specs: Specs, offer: Offer, tenants: Iterable[Tenant], *, extra: int, now: float
) -> list[moves.Claim]:
    """Pick what fits into the free room, the most urgent first, and some `extra` for later."""
    if offer.free_cpus <= 0 and extra <= 0:
        return []
    running = _by_limit(tenants)
    blocked = [key for key, count in running.items() if count >= most(key)]
    chosen: list[moves.Claim] = []
    for job, attempt, limit_key, spec, binding, rule, depth in db.run(
        "job_queue", now=now, blocked=text.dump(blocked)
    ):
        needs = specs.get(db, spec).resources
        if fit.fits(needs, offer):
            if limit_key and running.get(limit_key, 0) >= most(limit_key):
                continue
            offer = fit.carve(needs, offer)
        elif extra > 0 and not limit_key and fit.fit(needs, offer).ever:
            extra -= 1
        else:
            continue
        if limit_key:
            running[limit_key] = running.get(limit_key, 0) + 1
        chosen.append(moves.Claim(job, attempt + 1, spec, binding, rule, depth, limit_key))
        if offer.free_cpus <= 0 and extra <= 0:
            break
    return chosen


def _by_limit(tenants: Iterable[Tenant]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for tenant in tenants:
        if tenant.limit_key:
            counts[tenant.limit_key] = counts.get(tenant.limit_key, 0) + 1
    return counts


def most(limit_key: str) -> int:
    """Read how many may run from a rendered limit key, `key:most`."""
    return int(limit_key.rpartition(":")[2])
