"""What is seen of pools: how well their pilots are used, and what waits for them."""

from __future__ import annotations

import math
from collections.abc import Mapping

from pilotage.batch.model import SiteSettings
from pilotage.edge import view
from pilotage.match.turn import Ledger
from pilotage.pilot.model import State
from pilotage.pool.efficiency import Meter, meter
from pilotage.pool.files import Pool
from pilotage.pool.fitness import CPU, Basis, Feature, Fitness, fitness
from pilotage.pool.model import Reading, mean
from pilotage.pool.pilots import Drone, Ended, ended
from pilotage.pool.policy.model import Sight
from pilotage.pool.prospects import MUCH, given, sees
from pilotage.pool.reading import Row, Seen
from pilotage.pool.waiting import Waiting
from pilotage.store import Db


def use(one: Drone, basis: Basis) -> Fitness:
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
    pool: Pool, mine: list[Drone], marks: Mapping[int, tuple[float, float]], row: Row, now: float
) -> Meter:
    """Say how busy the cores of a pool are; `marks` is what was known of each pilot before."""
    used = had = 0.0
    for one in mine:
        known = marks.get(one.number, (0.0, 0.0))
        used += max(0.0, one.measured[0] - known[0])
        had += max(0.0, one.measured[1] - known[1])
    before = row.seen.meter if row.seen else Meter()
    elapsed = max(0.0, now - row.looked) if row.looked else 0.0
    return meter(before, used, had, elapsed, pool.efficiency)


def see(
    name: str, pool: Pool, site: SiteSettings, mine: list[Drone], past: Ended, row: Row, now: float
) -> tuple[Sight, Reading]:
    """Sum up what is seen of one pool."""
    wish = pool.pilot.wish()
    ready = [one for one in mine if one.ready]
    queued = [one for one in mine if one.waits and not one.off]
    booting = [one for one in mine if one.state is State.BOOTING and not one.off]
    # Those that are called off may still come, and drain then.
    draining = [one for one in mine if one.state is State.DRAINING or one.off]
    free = [0] * (wish.cpus + 1)
    for one in ready:
        free[min(one.free, wish.cpus)] += 1
    came = [one for one in mine if not one.waits and one.wanted and one.enrolled > row.looked]
    died = past.died or row.died
    back = sorted(one.free for one in draining if one.callable)
    leaving = sorted(max(0.0, one.lasts) for one in ready if math.isfinite(one.lasts))
    before = given(pool, site, row.seen).memory or MUCH
    sight = Sight(
        name=name, provider=pool.site, cores=wish.cpus,
        memory=float(wish.memory or _memory(ready, before)),
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


def _memory(ready: list[Drone], before: float) -> float:
    """Say how much memory a pilot has which was not asked for any in particular."""
    return min((one.place.memory for one in ready if one.place), default=before)


def look(
    ledger: Ledger, db: Db, pools: Mapping[str, Pool], sites: Mapping[str, SiteSettings],
    rows: Mapping[str, Row], found: Mapping[str, list[Drone]],
    marks: Mapping[int, tuple[float, float]], now: float,
) -> dict[str, Seen]:  # fmt: skip
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
        last = past.get(name, Ended())
        row = rows.get(name, Row(name))
        site = sites[pool.site]
        sight, reading = see(name, pool, site, found[name], last, row, now)
        pilots, cores = there.get(pool.site, (0, 0))
        group, told = hints.get(name, ("", ()))
        drained = db.value("site_asked", name=pool.site) == "drain"
        agent = agents.get(pool.site)
        closed = f"site {pool.site} is drained" if drained else agent.closed if agent else ""
        seen[name] = Seen(
            sight, reading, waiting.cores(name),
            room=max(0, site.jobs - pilots),
            quota=max(0.0, site.quota - cores) if site.quota else None,
            meter=measure(pool, found[name], marks, row, now),
            closed=closed, group=group, hints=told, death=last.words,
        )  # fmt: skip
    return seen
