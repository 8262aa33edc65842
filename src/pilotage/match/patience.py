"""What the matchmaker does now and then: charge what runs, keep room for large jobs, preempt."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterator

from pilotage.match import reserve
from pilotage.match.bucket import Bucket
from pilotage.match.negotiate import Matcher
from pilotage.match.place import Lease, Place

#: Buckets that are looked at in one round, and places for each.
_A_ROUND = 8
_LOOKS = 1000


def charge_running(matcher: Matcher, now: float) -> None:
    """Charge owners for jobs that run for longer than they were charged for."""
    for place in matcher.places.values():
        for job, lease in place.leases.items():
            bucket = place.kinds[job]
            more = bucket.cluster.cpus * place.used(lease, now) - lease.charged
            if more > 0:
                lease.charged += more
                matcher.shares.charge(bucket.owner, more, now)


def keep_room(matcher: Matcher, now: float) -> None:
    """Keep a place for each large job that has found too little room for too long."""
    for place in [one for one in matcher.places.values() if one.reserved]:
        if place.reserved and not matcher.usable(place.reserved.bucket, place, now):
            matcher.unreserve(place)
    tried = 0
    for bucket in list(matcher.stuck):
        if not bucket or not bucket.stuck:
            del matcher.stuck[bucket]
        elif bucket.kept is None and now - bucket.stuck > matcher.patience and tried < _A_ROUND:
            tried += 1
            # Whoever finds nothing makes way for the next.
            matcher.stuck[bucket] = matcher.stuck.pop(bucket)
            homes = _homes(matcher, bucket, now)
            if found := reserve.best(bucket, homes, now):
                matcher.keep(*found)


def preempt(matcher: Matcher, now: float) -> list[tuple[Place, Lease]]:
    """Choose what to stop for jobs of higher priority that have waited for too long."""
    chosen: list[tuple[Place, Lease]] = []
    waiting = [
        one
        for one in matcher.buckets.values()
        if one and one.kept is None and now - one.since > matcher.patience
    ]
    for bucket in heapq.nsmallest(_A_ROUND, waiting, key=lambda one: one.head):
        for place in _homes(matcher, bucket, now):
            found = reserve.victims(bucket, place, bucket.first[1])
            if found and place.reserved is None:
                # Else the room would be given to whoever comes first.
                matcher.keep(place, found[1])
                chosen += [(place, lease) for lease in found[0]]
                break
    return chosen


def _homes(matcher: Matcher, bucket: Bucket, now: float) -> Iterator[Place]:
    """Go through places that could be kept for a bucket, so many that it takes no time."""
    fitting = (
        place
        for place in matcher.classes.homes(bucket.cluster)
        if bucket.cluster.could_fit(place) and matcher.usable(bucket, place, now)
    )
    return itertools.islice(fitting, _LOOKS)
