"""What the matchmaker does now and then: charge what runs, keep room for large jobs, preempt."""

from __future__ import annotations

from pilotage.match import reserve
from pilotage.match.negotiate import Matcher
from pilotage.match.place import Lease, Place


def charge_running(matcher: Matcher, now: float) -> None:
    """Charge owners for jobs that run for longer than they were charged for."""
    for place in matcher.places.values():
        for job, lease in place.leases.items():
            bucket = place.kinds[job]
            more = bucket.cluster.cpus * (now - lease.started) - lease.charged
            if more > 0:
                lease.charged += more
                matcher.shares.charge(bucket.owner, more, now)


def keep_room(matcher: Matcher, now: float) -> None:
    """Keep a place for each large job that has found too little room for too long."""
    for bucket in list(matcher.stuck):
        if not bucket or not bucket.stuck:
            matcher.stuck.discard(bucket)
        elif not bucket.starving and now - bucket.stuck > matcher.patience:
            found = reserve.best(bucket, matcher.homes(bucket), now)
            if found:
                found[0].reserved = found[1]
                bucket.starving = True


def preempt(matcher: Matcher, now: float) -> list[tuple[Place, Lease]]:
    """Choose what to stop for jobs of higher priority that have waited for too long."""
    chosen: list[tuple[Place, Lease]] = []
    for bucket in matcher.buckets.values():
        if not bucket or now - bucket.since <= matcher.patience:
            continue
        for place in matcher.homes(bucket):
            losers = reserve.victims(bucket, place, bucket.first[1], now)
            if losers:
                chosen += [(place, lease) for lease in losers]
                break
    return chosen
