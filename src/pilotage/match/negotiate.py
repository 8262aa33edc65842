"""Which queued jobs start where: one decision at a time, by what is free, fair and urgent.

All of it is in memory and does no input or output. A cluster that matches nothing is in no line,
so that it costs nothing, however many jobs it has.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Collection, Iterable, Iterator
from typing import Any

from pilotage.match import classes as barren
from pilotage.match import reserve
from pilotage.match.classes import Bucket, Classes, PickedJob, QueuedJob, View
from pilotage.match.cluster import Cluster, Clusters
from pilotage.match.place import Lease, Place, PlaceQuota, Reservation
from pilotage.match.share import Shares, cost


class RunningLimits:
    """Counts what runs, and remembers which buckets wait for something to end."""

    def __init__(self, shares: Shares) -> None:
        self._shares = shares
        #: Cores in use by owner and by group, and jobs that run by limit.
        self.cores: dict[str, int] = {}
        self.limited: dict[str, int] = {}
        self._waiting: dict[tuple[str, str], dict[Bucket, None]] = {}

    def bar(self, bucket: Bucket) -> bool:
        """Return whether a limit or a quota keeps a bucket from starting; it then waits."""
        if bucket.limit and self.limited.get(bucket.limit, 0) >= bucket.most:
            self._waiting.setdefault(("limit", bucket.limit), {})[bucket] = None
            return True
        room = self._shares.room(bucket.owner, self.cores)
        if room is None or bucket.cluster.cpus <= room:
            return False
        for owner in bucket.counted:
            self._waiting.setdefault(("quota", owner), {})[bucket] = None
        return True

    def count(self, bucket: Bucket, change: int) -> list[Bucket]:
        """Count jobs of a bucket that start or end; return the buckets that waited for an end."""
        cpus = change * bucket.cluster.cpus
        for owner in bucket.counted:
            _add(self.cores, owner, cpus)
        if bucket.limit:
            _add(self.limited, bucket.limit, change)
        if change > 0 or not self._waiting:
            return []
        keys = [("quota", owner) for owner in bucket.counted] + [("limit", bucket.limit)]
        return [one for key in keys for one in self._waiting.pop(key, ()) if one]

    def clear(self) -> None:
        """Start over."""
        self.cores, self.limited, self._waiting = {}, {}, {}


def _add(counts: dict[str, int], name: str, change: int) -> None:
    """Count, and forget what comes to nothing."""
    if count := counts.get(name, 0) + change:
        counts[name] = count
    else:
        counts.pop(name, None)


#: Waiting places that are examined for a new job, and those that may fail to match.
_LOOKS = 2000
_TRIES = 16


class Matcher:
    """The queue, the places, and who has how much of what."""

    def __init__(self, shares: Shares, *, patience: float = 300.0) -> None:
        self.shares = shares
        #: How long a large job finds no room before a place is kept for it, in seconds.
        self.patience = patience
        self.clusters = Clusters()
        self.places: dict[int, Place] = {}
        self.classes = Classes(shares.key)
        self.buckets: dict[tuple[str, Cluster, str], Bucket] = {}
        self.bounds = RunningLimits(shares)
        #: Places that had too many jobs of some cluster.
        self.busy: dict[int, Place] = {}
        #: Buckets that were passed over because there was too little room.
        self.stuck: dict[Bucket, None] = {}
        self._delayed: list[tuple[float, int, QueuedJob]] = []
        #: How many buckets were left when it was last tidied up.
        self._tidy = 0
        #: Buckets with new first jobs, for places that wait.
        self._touched: dict[Bucket, None] = {}

    # -- the queue -------------------------------------------------------------------------------

    def add(self, one: QueuedJob, now: float) -> None:
        """Queue a job."""
        if one.not_before > now:
            heapq.heappush(self._delayed, (one.not_before, one.job, one))
            return
        key = (one.owner, one.cluster, one.limit)
        bucket = self.buckets.get(key)
        if bucket is None:
            bucket = self.buckets[key] = Bucket(*key)
            self._sort()
        if not bucket:
            bucket.since = now
        if bucket.push(one.job, one.priority):
            self._enlist(bucket)

    def part(self, owner: str, cluster: Cluster, jobs: Collection[int], new: Cluster) -> None:
        """Move queued jobs of a cluster to another cluster."""
        for bucket in [one for one in self.buckets.values() if one.cluster is cluster]:
            if bucket.owner == owner:
                since = bucket.since
                for job, priority in bucket.take_out(jobs):
                    self.add(QueuedJob(job, priority, owner, new, bucket.limit), since)

    def due(self, now: float) -> float | None:
        """Queue what has waited for its time, and try busy places; say when the next comes."""
        while self._delayed and self._delayed[0][0] <= now:
            self.add(heapq.heappop(self._delayed)[2], now)
        for place, cluster, quota in self._full():
            if quota.due <= now:
                quota.grow(now)
                self._wake(place, cluster)
        return self.next_due

    @property
    def next_due(self) -> float | None:
        """When the next job that may not start yet may."""
        times = [quota.due for _, _, quota in self._full()]
        if self._delayed:
            times.append(self._delayed[0][0])
        return min(times, default=None)

    def clear(self) -> None:
        """Remove all jobs, queued or leased, and keep the places."""
        self.buckets, self._delayed, self.stuck, self._touched = {}, [], {}, {}
        self.bounds.clear()
        for place in self.places.values():
            place.empty()
        self.classes.redo(self.places.values(), (), self.clusters.significant)

    def queued(self) -> int:
        """Count the jobs in the queue."""
        return sum(map(len, self.buckets.values())) + len(self._delayed)

    def tidy(self) -> set[Cluster] | None:
        """Forget buckets and clusters that have no jobs any more, once they are many.

        Return the clusters that are left, if any were looked at.
        """
        if len(self.buckets) + len(self.clusters) < 2 * self._tidy + 1000:
            return None
        held = {bucket for place in self.places.values() for bucket in place.kinds.values()}
        kept = {place.reserved.bucket for place in self.places.values() if place.reserved}
        self.buckets = {
            key: one for key, one in self.buckets.items() if one or one in held or one in kept
        }
        used = {one.cluster for one in self.buckets.values()}
        used |= {one.cluster for _, _, one in self._delayed}
        self.clusters.keep(used)
        for place in self.busy.values():
            place.quotas = {one: quota for one, quota in place.quotas.items() if one in used}
        self.stuck = {bucket: None for bucket in self.stuck if bucket}
        self._tidy = len(self.buckets) + len(self.clusters)
        self._redo()
        return used

    def _redo(self) -> None:
        self.classes.redo(self.places.values(), self.buckets.values(), self.clusters.significant)

    def _enlist(self, bucket: Bucket) -> None:
        self.classes.enlist(bucket)
        self._touched[bucket] = None

    # -- places ----------------------------------------------------------------------------------

    def join(self, place: Place, now: float = 0.0) -> None:
        """Add a place."""
        self.leave(place.number, now)
        self.places[place.number] = place
        self.classes.put(place, self.buckets.values())
        if self.classes.crowded:
            self._redo()

    def leave(self, number: int, now: float) -> None:
        """Remove a place; the caller handles the jobs that it holds."""
        place = self.places.pop(number, None)
        if place is None:
            return
        self.busy.pop(number, None)
        self.classes.drop(place)
        self.unreserve(place)
        self.free(place, [(job, None) for job in place.leases], now)

    def describe(self, place: Place, attributes: dict[str, Any]) -> None:
        """Change the attributes of a place that does not wait for work."""
        self.classes.drop(place)
        place.attributes, place.barren = attributes, None
        self.classes.put(place, self.buckets.values())
        if self.classes.crowded:
            self._redo()

    def park(self, place: Place) -> None:
        """Note that a place waits for work."""
        self.classes.of(place).park(place)

    def unpark(self, place: Place) -> None:
        """Note that a place waits no more."""
        self.classes.of(place).unpark(place)

    def _sort(self) -> None:
        """Classify all places again when a cluster asks for something that none has asked for."""
        self.classes.sort(self.places.values(), self.buckets.values(), self.clusters.significant)

    # -- places that have enough -----------------------------------------------------------------

    def enough(self, place: Place, cluster: Cluster, pause: float, now: float) -> None:
        """Note that a place refused one job more of a cluster than it has now."""
        self.busy[place.number] = place
        place.quotas[cluster] = PlaceQuota(place.held.get(cluster, 0), pause, now + pause)

    def forgive(self, place: Place) -> None:
        """Offer all jobs to a place again, those too that it has refused."""
        self.clusters.forgive(place.number)
        self.busy.pop(place.number, None)
        place.quotas = {}

    def _full(self) -> Iterator[tuple[Place, Cluster, PlaceQuota]]:
        """Go through what places have as much of as they take, as far as that is known."""
        for place in self.busy.values():
            for cluster, quota in place.quotas.items():
                if place.left(cluster) <= 0:
                    yield place, cluster, quota

    def _wake(self, place: Place, cluster: Cluster) -> None:
        """Match a waiting place again: it may take more jobs of a cluster."""
        place.barren = None
        for bucket in self.buckets.values():
            if bucket and bucket.cluster is cluster:
                self._touched[bucket] = None

    # -- matching --------------------------------------------------------------------------------

    def pick(
        self, place: Place, now: float, *, ahead: int = 0, most: int = 4096
    ) -> list[PickedJob]:
        """Choose what starts at a place now, and `ahead` plain jobs beyond its free cores."""
        picked: list[PickedJob] = []
        most = min(most, place.slots - len(place.leases))
        if not place.taking or place.blocked or most <= 0:
            return picked
        if place.reserved:
            self._serve_reserved(place, picked, now)
        view = self.classes.of(place)
        searched = place.reserved is None

        def allowed(bucket: Bucket) -> bool:
            return self._allowed(view, bucket, place, now, ahead)

        if searched and barren.still_barren(place, view, allowed, ahead):
            return picked
        passed = []
        for owner in view.owners(self.shares.key):
            if len(picked) >= most or place.free_cpus + ahead <= 0:
                searched = False
                break
            bucket = view.first(
                owner, lambda rough: place.roomy(rough, ahead), allowed,
                lambda short: self._note_stuck(short, now),
            )  # fmt: skip
            if bucket is not None:
                many = min(self._many(view, bucket, place, ahead), most - len(picked))
                picked += self._take(place, bucket, now, many)
            elif view.pass_over(owner):
                passed.append(owner)
        view.let_back(passed, self.shares.key)
        if searched:
            barren.note_barren(place, view, ahead)
        return picked

    def serve(self, now: float) -> Iterator[tuple[Place, list[PickedJob]]]:
        """Match new jobs with waiting places, those of the highest rank first."""
        touched, self._touched = self._touched, {}
        for bucket in touched:
            vain: set[int] = set()
            while bucket and (place := self._waiting(bucket, now, vain)) is not None:
                picked = self.pick(place, now)
                if picked:
                    self.unpark(place)
                    yield place, picked
                elif len(vain) < _TRIES:
                    vain.add(place.number)
                else:
                    break

    def _waiting(self, bucket: Bucket, now: float, vain: set[int]) -> Place | None:
        cluster = bucket.cluster
        if self.bounds.bar(bucket):
            return None
        looked = False
        for place in itertools.islice(self.classes.waiting(cluster), _LOOKS):
            looked = True
            if place.number not in vain and self._suits(bucket, place, now):
                return place
        if looked:
            self._note_stuck(bucket, now)
        return None

    def _suits(self, bucket: Bucket, place: Place, now: float) -> bool:
        """Return whether a job may start at a place now, as far as the place goes."""
        cluster, kept = bucket.cluster, place.reserved
        return (
            place.taking and not place.blocked and len(place.leases) < place.slots
            and cluster.fits(place) and place.left(cluster) > 0
            and self.classes.suits(cluster, place)
            and now + (cluster.time or 0.0) <= place.until
            and (kept is None or kept.bucket is bucket or reserve.backfills(cluster, kept, now))
        )  # fmt: skip

    def _allowed(self, view: View, bucket: Bucket, place: Place, now: float, ahead: int) -> bool:
        cluster = bucket.cluster
        if self.bounds.bar(bucket):
            view.unlist(bucket)
            return False
        if now + (cluster.time or 0.0) > place.until or not self.classes.suits(cluster, place):
            return False
        if place.left(cluster) <= 0:
            return False
        if not cluster.fits(place):
            if ahead + place.free_cpus > 0 and cluster.plain and not bucket.limit:
                return place.reserved is None
            self._note_stuck(bucket, now)
            return False
        return place.reserved is None or reserve.backfills(cluster, place.reserved, now)

    def _many(self, view: View, bucket: Bucket, place: Place, ahead: int) -> int:
        """Return how many jobs of a bucket start at once: one if it has rivals or bounds."""
        if not view.alone(bucket) or bucket.limit or place.reserved or self.shares.bounded:
            return 1
        cluster = bucket.cluster
        room = place.free_cpus + ahead if cluster.plain else cluster.room(place)
        return max(1, min(room, len(bucket), place.left(cluster)))

    def _take(self, place: Place, bucket: Bucket, now: float, count: int = 1) -> list[PickedJob]:
        cluster = bucket.cluster
        if place.reserved:
            reserve.use(cluster, place.reserved, now)
        bucket.since = now
        place.take(cluster, count)
        self._count(bucket, count)
        charged = cost(cluster.cpus, cluster.last_wall)
        self.shares.charge(bucket.owner, count * charged, now)
        return [PickedJob(*bucket.pop(), bucket, charged) for _ in range(count)]

    def _count(self, bucket: Bucket, change: int) -> None:
        for waiting in self.bounds.count(bucket, change):
            self._enlist(waiting)

    # -- leases ----------------------------------------------------------------------------------

    def grant(self, place: Place, picked: PickedJob, lease: Lease) -> None:
        """Note that a place holds a job that was picked for it."""
        lease.charged = picked.charged
        place.leases[lease.job] = lease
        place.kinds[lease.job] = picked.bucket

    def undo(self, place: Place, picked: PickedJob, now: float) -> None:
        """Undo the accounting of a picked job that could not be claimed."""
        place.take(picked.bucket.cluster, -1)
        self._count(picked.bucket, -1)
        self.shares.charge(picked.bucket.owner, -picked.charged, now)

    def adopt(self, place: Place, one: QueuedJob, lease: Lease) -> None:
        """Note that a place holds a job already."""
        key = (one.owner, one.cluster, one.limit)
        bucket = self.buckets.setdefault(key, Bucket(*key))
        self._sort()
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
            # An owner is charged for cores it kept from others, also if the job failed.
            used = place.used(lease, now) if wall is None else wall
            more = cost(bucket.cluster.cpus, used) - lease.charged
            due[bucket.owner] = due.get(bucket.owner, 0.0) + more
        for bucket, count in counts.items():
            place.take(bucket.cluster, -count)
            self._count(bucket, -count)
            if bucket.cluster in place.quotas:
                self._wake(place, bucket.cluster)
        for owner, more in due.items():
            self._charge(owner, more, now)

    def _charge(self, owner: str, core_seconds: float, now: float) -> None:
        self.shares.charge(owner, core_seconds, now)
        if core_seconds < 0 and len(self.buckets) > 1:
            self.classes.rerank(owner)

    # -- large jobs ------------------------------------------------------------------------------

    def _note_stuck(self, bucket: Bucket, now: float) -> None:
        if not bucket.stuck:
            bucket.stuck = now
            self.stuck[bucket] = None

    def keep(self, place: Place, kept: Reservation) -> None:
        """Reserve a place for a large job."""
        place.reserved = kept
        kept.bucket.kept = place

    def unreserve(self, place: Place) -> None:
        """Release the reservation of a place."""
        if place.reserved:
            place.reserved.bucket.kept = None
            place.reserved = place.barren = None

    def usable(self, bucket: Bucket, place: Place, now: float) -> bool:
        """Return whether it makes sense to keep a place for a bucket."""
        until = now + (bucket.cluster.time or 0.0)
        return (
            bool(bucket) and place.taking and not place.blocked and until <= place.until
            and self.classes.suits(bucket.cluster, place) and place.left(bucket.cluster) > 0
            and not self.bounds.bar(bucket)
        )  # fmt: skip

    def _serve_reserved(self, place: Place, picked: list[PickedJob], now: float) -> None:
        """Start the large job that a place was kept for as soon as it fits."""
        if place.reserved is None:
            return
        bucket = place.reserved.bucket
        if not self.usable(bucket, place, now):
            self.unreserve(place)
        elif bucket.cluster.fits(place):
            self.unreserve(place)
            picked += self._take(place, bucket, now)
