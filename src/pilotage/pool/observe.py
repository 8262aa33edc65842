"""Observe pools: how well their pilots are used, and which jobs wait for them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from pilotage.batch.model import SiteSettings
from pilotage.edge import view
from pilotage.match.classes import Bucket
from pilotage.match.cluster import QUEUE, Cluster
from pilotage.match.negotiate import Matcher
from pilotage.match.turn import TurnRecords
from pilotage.pilot.model import PilotState
from pilotage.pool.efficiency import Meter, meter
from pilotage.pool.files import Aimd, Pool
from pilotage.pool.fitness import CPU, Basis, Feature, Fitness, fitness
from pilotage.pool.model import Reading, mean
from pilotage.pool.pilots import EndedPilots, PoolPilot, ended
from pilotage.pool.policy.model import Hint, Sight
from pilotage.pool.prospects import MUCH, attributes, given, holds, sees, suits
from pilotage.pool.state import PoolObservation, PoolRow
from pilotage.store import Db

#: Places that wait which are looked at for a kind of jobs.
_LOOKS = 64


class Waiting:
    """What waits in the queue, and which pools could run it."""

    def __init__(
        self, matcher: Matcher, pools: Mapping[str, Pool], sites: Mapping[str, SiteSettings],
        found: Mapping[str, list[PoolPilot]], rows: Mapping[str, PoolRow], now: float,
        sees: Callable[[str], bool],
    ) -> None:  # fmt: skip
        """Look at every kind of jobs once; `sees` says of a pool what its pilots see here."""
        self._matcher = matcher
        self._pools = pools
        self._now = now
        self._shut = {name for name, row in rows.items() if row.asked or now < row.care.until}
        self._wishes = {
            name: given(pool, sites[pool.site], rows[name].seen if name in rows else None)
            for name, pool in pools.items()
        }
        self._like = {
            name: _like(name, pool, sites[pool.site], found[name], sees=sees(name))
            for name, pool in pools.items()
        }
        self._cores: dict[Cluster, float] = {}
        for bucket in self._matcher.buckets.values():
            if bucket and not self._matcher.bounds.bar(bucket):
                kind = bucket.cluster
                self._cores[kind] = self._cores.get(kind, 0.0) + _cores(bucket)
        #: By pool, the kinds that it could run, and those of them for which it is large enough.
        self._suited = {
            name: frozenset(kind for kind in self._cores if self._suits(kind, name))
            for name in pools
        }
        self._large = {
            name: {kind for kind in self._suited[name] if holds(self._wishes[name], kind)}
            for name in pools
        }

    def cores(self, name: str) -> float:
        """Return how many cores wait that a pool could provide."""
        return sum(self._cores[kind] for kind in self._large[name])

    def groups(self) -> Iterator[tuple[str, list[str], tuple[Hint, ...]]]:
        """Yield groups of AIMD pools that suit the same jobs: first name, all names, what waits."""
        alike: dict[frozenset[Cluster], list[str]] = {}
        for name in sorted(self._pools):
            if isinstance(self._pools[name].control, Aimd):
                alike.setdefault(self._suited[name], []).append(name)
        told: set[Cluster] = set()
        # Pools that suit few kinds come first: what suits them may suit others, too.
        for _, names in sorted(alike.items(), key=lambda one: (len(one[0]), one[1])):
            mine = set[Cluster]().union(*(self._large[name] for name in names)) - told
            # What none of these pools may provide is offered to the other pools, too.
            if not self._shut.issuperset(names):
                told |= mine
            yield names[0], names, self._hints(names[0], mine)

    def _hints(self, group: str, kinds: set[Cluster]) -> tuple[Hint, ...]:
        found: dict[tuple[int, int], tuple[float, bool]] = {}
        for kind in kinds:
            size = (kind.cpus, kind.memory)
            cores, fits = found.get(size, (0.0, False))
            found[size] = (cores + self._cores[kind], fits or self._fits(kind))
        return tuple(
            Hint(_name(group, *size), size[0], float(max(1, size[1])), *told)
            for size, told in sorted(found.items())
        )

    def _fits(self, kind: Cluster) -> bool:
        """Return whether a place that waits for work has room for such a job."""
        classes, over = self._matcher.classes, self._now + (kind.time or 0.0)
        return any(
            place.taking
            and not place.blocked
            and over <= place.until
            and kind.fits(place)
            and classes.suits(kind, place)
            for place in itertools.islice(classes.waiting(kind), _LOOKS)
        )

    def _suits(self, kind: Cluster, name: str) -> bool:
        return suits(kind, self._wishes[name], self._like[name])


def _cores(bucket: Bucket) -> float:
    """Return how many cores the jobs of a bucket may have at once."""
    return min(len(bucket), bucket.most) * bucket.cluster.cpus


def _name(group: str, cpus: int, memory: int) -> str:
    size = f"{cpus} core" if cpus == 1 else f"{cpus} cores"
    return f"{size}{f' {memory / 1e9:.3g} GB' if memory else ''} @{group}"


def _like(
    name: str, pool: Pool, site: SiteSettings, mine: list[PoolPilot], *, sees: bool
) -> dict[str, Any]:
    """Return the attributes of such a pilot: those of present pilots, or as requested."""
    for one in mine:
        if one.place is not None and not one.place.attributes.get(QUEUE):
            return one.place.attributes
    return attributes(name, pool, site, sees=sees)


def use(one: PoolPilot, basis: Basis) -> Fitness:
    """Judge how well a pilot is used; what no job there has asked for says nothing."""
    place = one.place
    if place is None:
        return Fitness()
    kinds = [bucket.cluster for bucket in place.kinds.values()]
    cores = place.cpus - max(0, place.free_cpus)
    busy = None if one.busy is None else one.busy * cores
    features = {CPU: Feature(place.cpus, cores, busy)}
    if any(one.memory for one in kinds):
        taken = place.memory - place.free_memory
        features["memory"] = Feature(place.memory, taken, one.resident)
    if any(one.disk for one in kinds):
        features["disk"] = Feature(place.disk, place.disk - place.free_disk)
    if place.gpus:
        features["gpu"] = Feature(place.gpus, place.gpus - place.free_gpus)
    return fitness(features, basis)


def measure(
    pool: Pool,
    mine: list[PoolPilot],
    marks: Mapping[int, tuple[float, float]],
    row: PoolRow,
    now: float,
) -> Meter:
    """Return how busy the cores of a pool are; `marks` is what was known of each pilot before."""
    used = had = 0.0
    for one in mine:
        known = marks.get(one.number, (0.0, 0.0))
        used += max(0.0, one.measured[0] - known[0])
        had += max(0.0, one.measured[1] - known[1])
    before = row.seen.meter if row.seen else Meter()
    elapsed = max(0.0, now - row.looked) if row.looked else 0.0
    return meter(before, used, had, elapsed, pool.efficiency)


def see(
    name: str,
    pool: Pool,
    site: SiteSettings,
    mine: list[PoolPilot],
    past: EndedPilots,
    row: PoolRow,
    now: float,
) -> tuple[Sight, Reading]:
    """Sum up what is seen of one pool."""
    wish = pool.pilot
    ready = [one for one in mine if one.ready]
    queued = [one for one in mine if one.waits and not one.off]
    booting = [one for one in mine if one.state is PilotState.BOOTING and not one.off]
    # Cancelled pilots may still start, and then drain.
    draining = [one for one in mine if one.state is PilotState.DRAINING or one.off]
    free = [0] * (wish.cpus + 1)
    for one in ready:
        free[min(one.free, wish.cpus)] += 1
    came = [one for one in mine if not one.waits and one.wanted and one.enrolled > row.looked]
    died = past.died or row.died
    back = sorted(one.free for one in draining if one.callable)
    leaving = sorted(max(0.0, one.lasts) for one in ready if math.isfinite(one.lasts))
    before = given(pool, site, row.seen).bytes or MUCH
    sight = Sight(
        name=name, provider=pool.site, cores=wish.cpus,
        memory=float(wish.bytes or _memory(ready, before)),
        queued=len(queued), booting=len(booting),
        ready=len(ready), draining=len(draining), free=tuple(free),
        idle=tuple(sorted((one.idle for one in ready if one.idle is not None), reverse=True)),
        arrived=(*past.arrived, *(max(0.0, one.enrolled - one.wanted) for one in came)),
        failed=past.failed, joined=sum(one.proven and one.enrolled > died for one in ready),
        oldest=max((now - one.wanted for one in queued if one.wanted), default=0.0),
        quota=float(pool.maximum), callable=tuple(back), leaving=tuple(leaving),
        lasting=not (wish.time or site.defaults.time or leaving),
    )  # fmt: skip
    fits = [(float(one.cpus), use(one, pool.utilisation)) for one in ready]
    reading = Reading(
        supply=float(sum(one.cpus for one in ready)), demand=row.demand,
        utilisation=mean([(weight, fit.utilisation) for weight, fit in fits]),
        allocation=mean([(weight, fit.allocation) for weight, fit in fits]),
        queued=float(sum(one.cpus for one in queued)),
        booting=float(sum(one.cpus for one in booting)),
        draining=float(sum(one.cpus for one in draining)),
    )  # fmt: skip
    return sight, reading


def _memory(ready: list[PoolPilot], before: float) -> float:
    """Return how much memory a pilot has which was not asked for any in particular."""
    return min((one.place.memory for one in ready if one.place), default=before)


def look(
    ledger: TurnRecords, db: Db, pools: Mapping[str, Pool], sites: Mapping[str, SiteSettings],
    rows: Mapping[str, PoolRow], found: Mapping[str, list[PoolPilot]],
    marks: Mapping[int, tuple[float, float]], now: float,
) -> dict[str, PoolObservation]:  # fmt: skip
    """See all pools."""
    past = ended(db, rows, pools)
    waiting = Waiting(ledger.matcher, pools, sites, found, rows, now, lambda name: sees(db, name))
    hints = {
        name: (group, told) for group, names, told in waiting.groups() for name in names
    }  # fmt: skip
    agents = view.pilot_sites(db, now)
    there = {site: (pilots, cores) for site, pilots, cores in db.rows("site_taken")}
    seen = {}
    for name, pool in pools.items():
        last = past.get(name, EndedPilots())
        row = rows.get(name, PoolRow(name))
        site = sites[pool.site]
        sight, reading = see(name, pool, site, found[name], last, row, now)
        pilots, cores = there.get(pool.site, (0, 0))
        group, told = hints.get(name, ("", ()))
        drained = db.value("site_asked", name=pool.site) == "drain"
        agent = agents.get(pool.site)
        closed = f"site {pool.site} is drained" if drained else agent.closed if agent else ""
        seen[name] = PoolObservation(
            sight, reading, waiting.cores(name),
            room=max(0, site.jobs - pilots),
            quota=max(0.0, site.quota - cores) if site.quota else None,
            meter=measure(pool, found[name], marks, row, now),
            closed=closed, group=group, hints=told, death=last.words,
        )  # fmt: skip
    return seen
