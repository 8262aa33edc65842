"""Which queued jobs start where: one decision at a time, by what is free, fair and urgent.

All of it is in memory and does no input or output. A cluster that matches nothing is in no line,
so that it costs nothing, however many jobs it has.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from typing import Any

from pilotage.match import reserve
from pilotage.match.bucket import Bucket
from pilotage.match.cluster import Cluster, Clusters
from pilotage.match.order import Picked, Queued
from pilotage.match.place import Lease, Place
from pilotage.match.share import Shares
from pilotage.match.view import View


class Matcher:
    """The queue, the places, and who has how much of what."""

    def __init__(self, shares: Shares, *, patience: float = 300.0) -> None:
        self.shares = shares
        #: How long a large job finds no room before a place is kept for it, in seconds.
        self.patience = patience
        self.clusters = Clusters()
        self.places: dict[int, Place] = {}
        self.views: dict[tuple[Any, ...], View] = {}
        self.buckets: dict[tuple[str, Cluster, str], Bucket] = {}
        #: Cores in use by owner and by group, and jobs that run by limit.
        self.cores: dict[str, int] = {}
        self.limited: dict[str, int] = {}
        #: Buckets that were passed over because there was too little room.
        self.stuck: set[Bucket] = set()
        self._view_of: dict[int, View] = {}
        self._significant: frozenset[str] = frozenset()
        self._delayed: list[tuple[float, int, Queued]] = []
        #: Buckets that wait for a limit.
        self._blocked: dict[str, set[Bucket]] = {}
        #: Buckets with new first jobs, for places that wait.
        self._touched: dict[Bucket, None] = {}

    # -- the queue -------------------------------------------------------------------------------

    def add(self, one: Queued, now: float) -> None:
        """Queue a job."""
        if one.not_before > now:
            heapq.heappush(self._delayed, (one.not_before, one.job, one))
            return
        key = (one.owner, one.cluster, one.limit)
        bucket = self.buckets.get(key)
        if bucket is None:
            bucket = self.buckets[key] = Bucket(*key)
            self._sort_places()
        if not bucket:
            bucket.since = now
        if bucket.push(one.job, one.priority):
            self._enlist(bucket)

    def due(self, now: float) -> float | None:
        """Queue what has waited for its time; say when the next comes."""
        while self._delayed and self._delayed[0][0] <= now:
            self.add(heapq.heappop(self._delayed)[2], now)
        return self.next_due

    @property
    def next_due(self) -> float | None:
        """When the next job that may not start yet may."""
        return self._delayed[0][0] if self._delayed else None

    def clear(self) -> None:
        """Forget all jobs, queued or held, and keep the places."""
        self.buckets, self.cores, self.limited = {}, {}, {}
        self._delayed, self._blocked, self.stuck, self._touched = [], {}, set(), {}
        self.views = {}
        for place in self.places.values():
            place.empty()
            self._put(place)

    def hopeless(self, cluster: Cluster) -> bool:
        """Say whether no place could ever run jobs of a cluster."""
        return not any(view.accepts(cluster) for view in self.views.values())

    def queued(self) -> int:
        """Count the jobs in the queue."""
        return sum(map(len, self.buckets.values())) + len(self._delayed)

    def _enlist(self, bucket: Bucket) -> None:
        for view in self.views.values():
            if view.accepts(bucket.cluster):
                view.enlist(bucket, self.shares.key)
        self._touched[bucket] = None

    # -- places ----------------------------------------------------------------------------------

    def join(self, place: Place) -> None:
        """Take a place into account."""
        self.places[place.number] = place
        self._put(place)

    def leave(self, number: int) -> Place | None:
        """Forget a place; whoever asks for this sees to the jobs that it holds."""
        place = self.places.pop(number, None)
        if place is None:
            return None
        view = self._view_of.pop(number)
        view.places.pop(number)
        view.parked.pop(number, None)
        if not view.places:
            self.views = {key: one for key, one in self.views.items() if one is not view}
        self._unreserve(place)
        self.free(place, [(job, None) for job in place.leases], 0.0)
        return place

    def park(self, place: Place) -> None:
        """Note that a place waits for work."""
        self._view_of[place.number].parked[place.number] = place

    def unpark(self, place: Place) -> None:
        """Note that a place waits no more."""
        self._view_of[place.number].parked.pop(place.number, None)

    def _put(self, place: Place) -> None:
        key = tuple(_hashable(place.attributes.get(name)) for name in sorted(self._significant))
        view = self.views.get(key)
        if view is None:
            view = self.views[key] = View(place.attributes)
        self._view_of[place.number] = view
        if view.join(place):
            for bucket in self.buckets.values():
                if bucket and view.accepts(bucket.cluster):
                    view.enlist(bucket, self.shares.key)

    def _sort_places(self) -> None:
        """Class all places anew when a cluster asks for something that none has asked for."""
        if self.clusters.significant == self._significant:
            return
        self._significant = self.clusters.significant
        parked = [place for view in self.views.values() for place in view.parked.values()]
        self.views = {}
        for place in self.places.values():
            self._put(place)
        for place in parked:
            self.park(place)

    # -- matching --------------------------------------------------------------------------------

    def pick(self, place: Place, now: float, *, ahead: int = 0, most: int = 4096) -> list[Picked]:
        """Choose what starts at a place now, and `ahead` plain jobs beyond its free cores."""
        picked: list[Picked] = []
        if not place.taking or place.blocked:
            return picked
        if place.reserved:
            self._serve_reserved(place, picked, now)
        view = self._view_of[place.number]
        passed = []

        def allowed(bucket: Bucket) -> bool:
            return self._allowed(view, bucket, place, now, ahead)

        for owner in view.owners(self.shares.key):
            if len(picked) >= most or place.free_cpus + ahead <= 0:
                break
            bucket = view.first(owner, allowed)
            if bucket is not None:
                many = self._many(view, bucket, place, ahead)
                picked += self._take(place, bucket, now, min(many, most - len(picked)))
            elif view.pass_over(owner):
                passed.append(owner)
        for owner in passed:
            view.rank(owner, self.shares.key(owner))
        return picked

    def serve(self, now: float) -> Iterator[tuple[Place, list[Picked]]]:
        """Give new jobs to places that wait for work, the ones they like best first."""
        touched, self._touched = self._touched, {}
        for bucket in touched:
            while bucket and (place := self._waiting(bucket, now)) is not None:
                picked = self.pick(place, now)
                if not picked:
                    break
                self.unpark(place)
                yield place, picked

    def _waiting(self, bucket: Bucket, now: float) -> Place | None:
        cluster = bucket.cluster
        views = [one for one in self.views.values() if one.parked and one.accepts(cluster)]
        if cluster.rank is not None:
            views.sort(key=lambda view: cluster.prefers(view.attributes), reverse=True)
        for view in views:
            for place in view.parked.values():
                if place.taking and not place.blocked and cluster.fits(place):
                    return place
        if views:
            self._note_stuck(bucket, now)
        return None

    def _allowed(self, view: View, bucket: Bucket, place: Place, now: float, ahead: int) -> bool:
        cluster = bucket.cluster
        if bucket.limit and self.limited.get(bucket.limit, 0) >= bucket.most:
            self._blocked.setdefault(bucket.limit, set()).add(bucket)
            view.unlist(bucket)
            return False
        if now + (cluster.time or 0.0) > place.until:
            return False
        if not cluster.fits(place):
            if ahead + place.free_cpus > 0 and cluster.plain and not bucket.limit:
                return place.reserved is None
            self._note_stuck(bucket, now)
            return False
        if place.reserved and not reserve.backfills(cluster, place.reserved, now):
            return False
        room = self.shares.room(bucket.owner, self.cores)
        return room is None or cluster.cpus <= room

    def _many(self, view: View, bucket: Bucket, place: Place, ahead: int) -> int:
        """Say how many jobs of a bucket start at once: one, unless it has no rival and no bound."""
        if not view.alone(bucket) or bucket.limit or place.reserved or self.shares.bounded:
            return 1
        cluster = bucket.cluster
        room = place.free_cpus + ahead if cluster.plain else cluster.room(place)
        return max(1, min(room, len(bucket)))

    def _take(self, place: Place, bucket: Bucket, now: float, count: int = 1) -> list[Picked]:
        cluster = bucket.cluster
        if place.reserved:
            reserve.use(cluster, place.reserved, now)
        bucket.since = now
        place.take(cluster, count)
        self._count(bucket, count)
        charged = cluster.cpus * cluster.last_wall
        self.shares.charge(bucket.owner, count * charged, now)
        return [Picked(*bucket.pop(), bucket, charged) for _ in range(count)]

    def _count(self, bucket: Bucket, change: int) -> None:
        cpus = change * bucket.cluster.cpus
        self.cores[bucket.owner] = self.cores.get(bucket.owner, 0) + cpus
        group, slash, _ = bucket.owner.partition("/")
        if slash:
            self.cores[f"{group}/"] = self.cores.get(f"{group}/", 0) + cpus
        if bucket.limit:
            self.limited[bucket.limit] = self.limited.get(bucket.limit, 0) + change
            if change < 0:
                for waiting in self._blocked.pop(bucket.limit, ()):
                    if waiting:
                        self._enlist(waiting)

    # -- leases ----------------------------------------------------------------------------------

    def grant(self, place: Place, picked: Picked, lease: Lease) -> None:
        """Note that a place holds a job that was picked for it."""
        lease.charged = picked.charged
        place.leases[lease.job] = lease
        place.kinds[lease.job] = picked.bucket

    def undo(self, place: Place, picked: Picked, now: float) -> None:
        """Give back what was picked and could not be had."""
        place.take(picked.bucket.cluster, -1)
        self._count(picked.bucket, -1)
        self.shares.charge(picked.bucket.owner, -picked.charged, now)

    def adopt(self, place: Place, one: Queued, lease: Lease) -> None:
        """Note that a place holds a job already."""
        key = (one.owner, one.cluster, one.limit)
        bucket = self.buckets.setdefault(key, Bucket(*key))
        self._sort_places()
        place.take(one.cluster)
        self._count(bucket, 1)
        place.leases[lease.job] = lease
        place.kinds[lease.job] = bucket

    def free(self, place: Place, ended: Iterable[tuple[int, float | None]], now: float) -> None:
        """Note that a place holds jobs no more, and how long each took if that is known."""
        counts: dict[Bucket, int] = {}
        due: dict[str, float] = {}
        for job, wall in ended:
            lease = place.leases.pop(job)
            bucket = place.kinds.pop(job)
            counts[bucket] = counts.get(bucket, 0) + 1
            if wall is not None:
                bucket.cluster.learn(wall)
                more = bucket.cluster.cpus * wall - lease.charged
                due[bucket.owner] = due.get(bucket.owner, 0.0) + more
        for bucket, count in counts.items():
            place.take(bucket.cluster, -count)
            self._count(bucket, -count)
        for owner, more in due.items():
            self._charge(owner, more, now)

    def _charge(self, owner: str, core_seconds: float, now: float) -> None:
        self.shares.charge(owner, core_seconds, now)
        if core_seconds < 0 and len(self.cores) > 1:
            key = self.shares.key(owner)
            for view in self.views.values():
                view.rerank(owner, key)

    # -- large jobs ------------------------------------------------------------------------------

    def homes(self, bucket: Bucket) -> Iterator[Place]:
        """Go through the places that could run the jobs of a bucket."""
        for view in self.views.values():
            if view.accepts(bucket.cluster):
                yield from view.places.values()

    def _note_stuck(self, bucket: Bucket, now: float) -> None:
        if not bucket.stuck:
            bucket.stuck = now
            self.stuck.add(bucket)

    def _serve_reserved(self, place: Place, picked: list[Picked], now: float) -> None:
        """Start the large job that a place was kept for as soon as it fits."""
        reserved = place.reserved
        if reserved is None:
            return
        bucket = reserved.bucket
        if not bucket:
            self._unreserve(place)
        elif bucket.cluster.fits(place) and self.limited.get(bucket.limit, 0) < bucket.most:
            self._unreserve(place)
            picked += self._take(place, bucket, now)

    def _unreserve(self, place: Place) -> None:
        if place.reserved:
            place.reserved.bucket.starving = False
            place.reserved = None


def _hashable(value: Any) -> Any:  # noqa: ANN401 - attributes are of any kind
    return tuple(value) if isinstance(value, list) else value
