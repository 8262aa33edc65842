"""How much may run at once: limits by key, quotas by owner and group, and who waits for them."""

from __future__ import annotations

from pilotage.match.bucket import Bucket
from pilotage.match.share import Shares


class Bounds:
    """Counts what runs, and remembers which buckets wait for something to end."""

    def __init__(self, shares: Shares) -> None:
        self._shares = shares
        #: Cores in use by owner and by group, and jobs that run by limit.
        self.cores: dict[str, int] = {}
        self.limited: dict[str, int] = {}
        self._waiting: dict[tuple[str, str], dict[Bucket, None]] = {}

    def bar(self, bucket: Bucket) -> bool:
        """Say whether a limit or a quota keeps a bucket from starting anywhere; it then waits."""
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
        """Begin anew."""
        self.cores, self.limited, self._waiting = {}, {}, {}


def _add(counts: dict[str, int], name: str, change: int) -> None:
    """Count, and forget what comes to nothing."""
    if count := counts.get(name, 0) + change:
        counts[name] = count
    else:
        counts.pop(name, None)
