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
#: Jobs of definitions that do not fit that are passed over before the queue is asked without them.
_PASSED_OVER = 500


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
    #: When it was asked to end, in seconds of the event loop's clock; 0 if it was not.
    stopping: float = 0.0

    @property
    def key(self) -> str:
        """The name of the attempt."""
        return f"{self.job}.{self.attempt}"


class Specs:
    """Definitions by number; few, and shared by many jobs."""

    def __init__(self) -> None:
        """Know none yet."""
        self.known: dict[int, model.JobSpec] = {}
        #: Those that do not fit here even when nothing runs.
        self.never: set[int] = set()

    def get(self, db: Db, number: int) -> model.JobSpec:
        """Read a definition once."""
        if number not in self.known:
            self.known[number] = records.read_spec(db.value("spec_body", id=number))
        return self.known[number]


def plain(needs: model.Resources) -> bool:
    """Say whether a job needs one core and nothing else, as most do."""
    return needs.cpus == 1 and not needs.memory and not needs.gpus


def ahead(cpus: int, wall: float) -> int:
    """Say how many jobs to claim before there is room for them, if jobs take so long."""
    if wall >= _AHEAD_S:
        return 0
    return min(_MOST_AHEAD, int(cpus * _AHEAD_S / max(wall, 0.001)))


class _Room:
    """What is free, as it is filled."""

    def __init__(self, offer: Offer, tenants: Iterable[Tenant], extra: int) -> None:
        self.offer = offer
        self.extra = extra
        self.running = _by_limit(tenants)
        #: Definitions that do not fit any more; their jobs need not be looked at.
        self.unfit: set[int] = set()

    @property
    def full(self) -> bool:
        return self.offer.free_cpus <= 0 and self.extra <= 0

    def take(self, needs: model.Resources, limit_key: str) -> bool:
        """Find room for a job, or a place in the row of those that start next."""
        if limit_key and self.running.get(limit_key, 0) >= most(limit_key):
            return False
        if fit.fits(needs, self.offer):
            self.offer = fit.carve(needs, self.offer)
        elif self.extra > 0 and not limit_key and plain(needs):
            self.extra -= 1
        else:
            return False
        if limit_key:
            self.running[limit_key] = self.running.get(limit_key, 0) + 1
        return True


def choose(
    db: Db, specs: Specs, offer: Offer, tenants: Iterable[Tenant], *, extra: int, now: float
) -> list[moves.Claim]:
    """Pick what fits into the free room, the most urgent first, and some `extra` for later."""
    room = _Room(offer, tenants, extra)
    chosen: list[moves.Claim] = []
    while not room.full and _pick(db, specs, room, chosen, now):
        pass
    return chosen


def _pick(db: Db, specs: Specs, room: _Room, chosen: list[moves.Claim], now: float) -> bool:
    """Go through the queue; stop and say so when too many jobs on the way do not fit.

    The next walk leaves out all jobs of their definitions, so that a long queue of jobs that cannot
    run costs little, whether they have one definition or one each.
    """
    taken = {claim.job for claim in chosen}
    passed = 0
    blocked = [key for key, count in room.running.items() if count >= most(key)]
    for job, attempt, limit_key, spec, binding, rule, depth in db.run(
        "job_queue", now=now, blocked=text.dump(blocked), unfit=text.dump(room.unfit)
    ):
        if spec in room.unfit:
            passed += 1
            if passed > _PASSED_OVER:
                return True
        if job in taken or spec in room.unfit:
            continue
        needs = specs.get(db, spec).resources
        if room.take(needs, limit_key):
            chosen.append(moves.Claim(job, attempt + 1, spec, binding, rule, depth, limit_key))
            if room.full:
                return False
            continue
        ever = fit.fit(needs, room.offer).ever
        if not ever:
            specs.never.add(spec)
        # Where only a limit stands in the way, another job of the definition may still start.
        if not (ever and limit_key):
            room.unfit.add(spec)
    return False


def _by_limit(tenants: Iterable[Tenant]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for tenant in tenants:
        if tenant.limit_key:
            counts[tenant.limit_key] = counts.get(tenant.limit_key, 0) + 1
    return counts


def most(limit_key: str) -> int:
    """Read how many may run from a rendered limit key, `key:most`."""
    return int(limit_key.rpartition(":")[2])
