"""What is seen of pools: their pilots, how well these are used, and what waits for them."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from pilotage.hub.pool_model import Row, Seen
from pilotage.match.bucket import Bucket
from pilotage.match.cluster import QUEUE, Cluster
from pilotage.match.place import Place
from pilotage.match.turn import Ledger
from pilotage.pilot.model import State
from pilotage.pool.files import Aimd, Pool
from pilotage.pool.fitness import CPU, Feature, Fitness, fitness
from pilotage.pool.law.model import Hint, Sight
from pilotage.pool.model import Reading, mean
from pilotage.site.model import Site
from pilotage.site.wish import Wish
from pilotage.store import Db

#: A pilot that is lost sooner than this after it came has died, in seconds.
SOON_S = 300.0
#: Places that wait which are looked at for a kind of jobs.
_LOOKS = 64
#: Memory of a pilot of which nobody knows how much it has.
_MUCH = float(1 << 60)


@functools.lru_cache(maxsize=1024)
def _wish(body: str) -> Wish:
    return msgspec.json.decode(body, type=Wish) if body else Wish()


class Drone(msgspec.Struct):
    """A pilot of a pool that has not ended."""

    number: int
    state: State
    #: Whether nobody wants it any more.
    off: bool
    cpus: int
    enrolled: float
    wanted: float
    place: Place | None = None
    #: Seconds without a job; nothing if it has one.
    idle: float | None = None

    @property
    def waits(self) -> bool:
        """Whether it has not come."""
        return self.state in {State.REQUESTED, State.SUBMITTED}

    @property
    def ready(self) -> bool:
        """Whether it takes jobs."""
        return self.state is State.AVAILABLE and not self.off

    @property
    def free(self) -> int:
        """Cores that no job has; none if nobody knows."""
        return max(0, self.place.free_cpus) if self.place else 0


class Ended(msgspec.Struct, frozen=True):
    """What ended of a pool since the last look."""

    #: Seconds that pilots waited which came and went.
    arrived: tuple[float, ...] = ()
    failed: int = 0
    #: When and how the last of these died.
    died: float = 0.0
    words: str = ""


def drones(
    ledger: Ledger, db: Db, pools: Mapping[str, Pool], idle: dict[int, float], now: float
) -> dict[str, list[Drone]]:
    """Find the pilots of all pools; `idle` keeps since when each has no job."""
    found: dict[str, list[Drone]] = {name: [] for name in pools}
    still: dict[int, float] = {}
    for number, pool, site, state, asked, body, _, enrolled, wanted in db.rows("pool_pilots"):
        if pool in pools and site != pools[pool].site:
            continue
        wish = _wish(body)
        place = ledger.matcher.places.get(number)
        one = Drone(
            number, State(state), bool(asked), place.cpus if place else wish.cpus, enrolled,
            wanted, place,
        )  # fmt: skip
        if place is not None and not place.leases and one.state is State.AVAILABLE:
            since = still[number] = idle.get(number, now)
            one.idle = now - since
        found.setdefault(pool, []).append(one)
    idle.clear()
    idle.update(still)
    return found


def ended(db: Db, rows: Mapping[str, Row], pools: Mapping[str, Pool]) -> dict[str, Ended]:
    """Find what ended of each pool since it was looked at last."""
    since = {name: rows[name].looked for name in pools if name in rows and rows[name].looked}
    found: dict[str, Ended] = {}
    if not since:
        return found
    for _, pool, _, state, reason, came, enrolled, wanted, over in db.rows(
        "pool_ended", since=min(since.values())
    ):
        if over <= since.get(pool, math.inf):
            continue
        one = found.get(pool, Ended())
        if came and wanted and enrolled > since[pool]:
            waited = max(0.0, enrolled - wanted)
            one = msgspec.structs.replace(one, arrived=(*one.arrived, waited))
        if state == State.FAILED or (state == State.LOST and over - enrolled < SOON_S):
            one = msgspec.structs.replace(one, failed=one.failed + 1, died=over, words=reason)
        found[pool] = one
    return found


def use(place: Place) -> Fitness:
    """Judge how well a pilot is used; what no job there has asked for says nothing."""
    kinds = [bucket.cluster for bucket in place.kinds.values()]
    features = {CPU: Feature(place.cpus, place.cpus - max(0, place.free_cpus))}
    if any(one.memory for one in kinds):
        features["memory"] = Feature(place.memory, place.memory - place.free_memory)
    if any(one.disk for one in kinds):
        features["disk"] = Feature(place.disk, place.disk - place.free_disk)
    if place.gpus:
        features["gpu"] = Feature(place.gpus, place.gpus - place.free_gpus)
    return fitness(features)


def see(
    name: str, pool: Pool, mine: list[Drone], past: Ended, row: Row, now: float
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
    sight = Sight(
        name=name, provider=pool.site, cores=wish.cpus,
        memory=float(wish.memory or _memory(ready)), queued=len(queued), booting=len(booting),
        ready=len(ready), draining=len(draining), free=tuple(free),
        idle=tuple(sorted((one.idle for one in ready if one.idle is not None), reverse=True)),
        arrived=(*past.arrived, *(max(0.0, one.enrolled - one.wanted) for one in came)),
        failed=past.failed, joined=sum(one.enrolled > died for one in ready),
        oldest=max((now - one.wanted for one in queued if one.wanted), default=0.0),
        quota=float(pool.maximum),
    )  # fmt: skip
    fits = [(float(one.cpus), use(one.place)) for one in ready if one.place is not None]
    reading = Reading(
        supply=float(sum(one.cpus for one in ready)), demand=row.demand,
        utilisation=mean([(weight, fit.utilisation) for weight, fit in fits]),
        allocation=mean([(weight, fit.allocation) for weight, fit in fits]),
        queued=float(sum(one.cpus for one in queued)),
        booting=float(sum(one.cpus for one in booting)),
        draining=float(sum(one.cpus for one in draining)),
    )  # fmt: skip
    return sight, reading


def _memory(ready: list[Drone]) -> float:
    """Say how much memory a pilot has which was not asked for any in particular."""
    return min((one.place.memory for one in ready if one.place), default=_MUCH)


# -- what waits ----------------------------------------------------------------------------------


class Waiting:
    """What waits in the queue, and which pools could run it."""

    def __init__(
        self, ledger: Ledger, pools: Mapping[str, Pool], sites: Mapping[str, Site],
        found: Mapping[str, list[Drone]],
    ) -> None:  # fmt: skip
        """Look at every kind of jobs once."""
        self._matcher = ledger.matcher
        self._pools = pools
        self._wishes = {name: pool.pilot.wish() for name, pool in pools.items()}
        self._like = {
            name: _attributes(name, pool, sites[pool.site], found[name])
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
            name: {kind for kind in self._suited[name] if _holds(self._wishes[name], kind)}
            for name in pools
        }

    def cores(self, name: str) -> float:
        """Say how many cores wait that a pool could provide."""
        return sum(self._cores[kind] for kind in self._large[name])

    def groups(self) -> Iterator[tuple[str, list[str], tuple[Hint, ...]]]:
        """Yield pools under our law that are alike to jobs, by their first, and what waits."""
        alike: dict[frozenset[Cluster], list[str]] = {}
        for name in sorted(self._pools):
            if isinstance(self._pools[name].control, Aimd):
                alike.setdefault(self._suited[name], []).append(name)
        told: set[Cluster] = set()
        # Pools that suit few kinds come first: what suits them may suit others, too.
        for _, names in sorted(alike.items(), key=lambda one: (len(one[0]), one[1])):
            mine = set[Cluster]().union(*(self._large[name] for name in names)) - told
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
        """Say whether a place that waits for work has room for such a job."""
        classes = self._matcher.classes
        return any(
            place.taking and not place.blocked and kind.fits(place) and classes.suits(kind, place)
            for place in itertools.islice(classes.waiting(kind), _LOOKS)
        )

    def _suits(self, kind: Cluster, name: str) -> bool:
        pilot = self._wishes[name]
        lasts = kind.time is None or pilot.time is None or kind.time <= pilot.time
        return kind.gpus <= pilot.gpus and lasts and kind.accepts(self._like[name])


def _holds(pilot: Wish, kind: Cluster) -> bool:
    return kind.cpus <= pilot.cpus and (pilot.memory is None or kind.memory <= pilot.memory)


def _cores(bucket: Bucket) -> float:
    """Say how many cores the jobs of a bucket may have at once."""
    return min(len(bucket), bucket.most) * bucket.cluster.cpus


def _name(group: str, cpus: int, memory: int) -> str:
    size = f"{cpus} core" if cpus == 1 else f"{cpus} cores"
    return f"{size}{f' {memory / 1e9:.3g} GB' if memory else ''} @{group}"


def _attributes(name: str, pool: Pool, site: Site, mine: list[Drone]) -> dict[str, Any]:
    """Say what requirements may ask of such a pilot: as those that are there, or as was asked."""
    for one in mine:
        if one.place is not None and not one.place.attributes.get(QUEUE):
            return one.place.attributes
    wish = pool.pilot.wish()
    return {
        "site": pool.site, "pool": name, "cpus": wish.cpus, "gpus": wish.gpus, "os": "linux",
        "batch": site.batch, **({"memory": wish.memory} if wish.memory else {}),
    }  # fmt: skip


def look(
    ledger: Ledger, db: Db, pools: Mapping[str, Pool], sites: Mapping[str, Site],
    rows: Mapping[str, Row], found: Mapping[str, list[Drone]], now: float,
) -> dict[str, Seen]:  # fmt: skip
    """See all pools."""
    past = ended(db, rows, pools)
    waiting = Waiting(ledger, pools, sites, found)
    hints = {
        name: (group, told) for group, names, told in waiting.groups() for name in names
    }  # fmt: skip
    there = dict(db.rows("site_pilots"))
    seen = {}
    for name, pool in pools.items():
        last = past.get(name, Ended())
        row = rows.get(name, Row(name))
        sight, reading = see(name, pool, found[name], last, row, now)
        group, told = hints.get(name, ("", ()))
        drained = db.value("site_asked", name=pool.site) == "drain"
        seen[name] = Seen(
            sight, reading, waiting.cores(name),
            room=max(0, sites[pool.site].jobs - there.get(pool.site, 0)),
            closed=f"site {pool.site} is drained" if drained else "", group=group, hints=told,
            death=last.words,
        )  # fmt: skip
    return seen
