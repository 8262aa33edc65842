"""Reservations: a place is kept for a large job that has waited long; small jobs backfill."""

from __future__ import annotations

from collections.abc import Iterable

from pilotage.match.classes import Bucket
from pilotage.match.cluster import Cluster
from pilotage.match.place import Lease, Place, Reservation


def expected_end(lease: Lease, cluster: Cluster, now: float) -> float:
    """Return when a job will have ended: by its limit, or as others of its kind."""
    wall = cluster.time if cluster.time is not None else cluster.last_wall
    return max(now, lease.started + wall)


def plan(bucket: Bucket, place: Place, now: float) -> Reservation | None:
    """Return when a place will have room for the first job of a bucket, and what is left then."""
    cluster = bucket.cluster
    if not cluster.could_fit(place) or not place.taking or place.blocked or place.reserved:
        return None
    free = [place.free_cpus, place.free_memory, place.free_gpus, place.free_disk]
    need = [cluster.cpus, cluster.memory, cluster.gpus, cluster.disk]
    at = now
    ends = sorted(
        (expected_end(lease, place.kinds[job].cluster, now), job)
        for job, lease in place.leases.items()
    )
    for when, job in ends:
        if all(have >= want for have, want in zip(free, need, strict=True)):
            break
        other = place.kinds[job].cluster
        for index, size in enumerate((other.cpus, other.memory, other.gpus, other.disk)):
            free[index] += size
        at = when
    if any(have < want for have, want in zip(free, need, strict=True)):
        return None
    if at + (cluster.time or cluster.last_wall) > place.until:
        return None
    left = [have - want for have, want in zip(free, need, strict=True)]
    return Reservation(bucket, at, *left)


def best(bucket: Bucket, places: Iterable[Place], now: float) -> tuple[Place, Reservation] | None:
    """Choose the place that has room for a large job the soonest."""
    found = None
    for place in places:
        planned = plan(bucket, place, now)
        if planned and (found is None or planned.at < found[1].at):
            found = (place, planned)
    return found


def backfills(cluster: Cluster, reserved: Reservation, now: float) -> bool:
    """Return whether a job may run beside a reservation: it ends before, or fits beside it."""
    if cluster.time is not None and now + cluster.time <= reserved.at:
        return True
    return (
        cluster.cpus <= reserved.cpus and cluster.memory <= reserved.memory
        and cluster.gpus <= reserved.gpus and cluster.disk <= reserved.disk
    )  # fmt: skip


def use(cluster: Cluster, reserved: Reservation, now: float) -> None:
    """Take what a backfilled job needs from what is left beside the reservation."""
    if cluster.time is None or now + cluster.time > reserved.at:
        reserved.cpus -= cluster.cpus
        reserved.memory -= cluster.memory
        reserved.gpus -= cluster.gpus
        reserved.disk -= cluster.disk


def victims(bucket: Bucket, place: Place, priority: int) -> tuple[list[Lease], Reservation] | None:
    """Choose the jobs to stop so that a more urgent one fits: the youngest of the least urgent.

    Nothing is returned if that would not be enough.
    """
    free = [place.free_cpus, place.free_memory, place.free_gpus, place.free_disk]
    need = bucket.cluster.size
    chosen = []
    lesser = [one for one in place.leases.values() if one.priority < priority]
    for lease in sorted(lesser, key=lambda one: (one.priority, -one.started)):
        if all(have >= want for have, want in zip(free, need, strict=True)):
            break
        for index, size in enumerate(place.kinds[lease.job].cluster.size):
            free[index] += size
        if not lease.stopping:
            chosen.append(lease)
    left = [have - want for have, want in zip(free, need, strict=True)]
    return None if min(left) < 0 else (chosen, Reservation(bucket, 0.0, *left))
