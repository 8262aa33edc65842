"""Places that are alike to all queued jobs, and the jobs that could run there."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from typing import Any

from pilotage.match.bucket import Bucket
from pilotage.match.cluster import Cluster
from pilotage.match.place import Place

_Key = tuple[float, float]


class View:
    """One slot class: its places, and lines of buckets by owner.

    A line and the heap of owners are sorted lazily: an entry is put right when it comes first, so
    that a change costs nothing to those who do not look.
    """

    def __init__(self, attributes: dict[str, Any]) -> None:
        self.attributes = attributes
        self.places: dict[int, Place] = {}
        #: Places that wait for work, the longest first.
        self.parked: dict[int, Place] = {}
        self._accepts: dict[int, bool] = {}
        self._lines: dict[str, list[tuple[int, int, Bucket]]] = {}
        self._listed: dict[Bucket, int] = {}
        self._owners: list[tuple[_Key, str]] = []
        self._keys: dict[str, _Key] = {}
        self._serial = 0

    def accepts(self, cluster: Cluster) -> bool:
        """Say whether jobs of a cluster may ever run on some place of this class."""
        known = self._accepts.get(cluster.number)
        if known is None:
            known = self._accepts[cluster.number] = cluster.accepts(self.attributes) and any(
                cluster.could_fit(place) for place in self.places.values()
            )
        return known

    def join(self, place: Place) -> bool:
        """Take a place in; say whether it is larger than all others, so that more may fit."""
        larger = not any(
            one.cpus >= place.cpus and one.memory >= place.memory and one.gpus >= place.gpus
            and one.disk >= place.disk for one in self.places.values()
        )  # fmt: skip
        self.places[place.number] = place
        if larger:
            self._accepts = {key: yes for key, yes in self._accepts.items() if yes}
        return larger

    def enlist(self, bucket: Bucket, key: Callable[[str], _Key]) -> None:
        """Put a bucket whose first job is new into its owner's line."""
        head = bucket.head
        if self._listed.get(bucket) == head:
            return
        self._listed[bucket] = head
        self._serial += 1
        heapq.heappush(self._lines.setdefault(bucket.owner, []), (head, self._serial, bucket))
        if bucket.owner not in self._keys:
            self.rank(bucket.owner, key(bucket.owner))

    def unlist(self, bucket: Bucket) -> None:
        """Forget a bucket until it is listed again; its entries vanish when they come first."""
        self._listed.pop(bucket, None)

    def rank(self, owner: str, key: _Key) -> None:
        """Put an owner at the right place among all."""
        self._keys[owner] = key
        heapq.heappush(self._owners, (key, owner))

    def rerank(self, owner: str, key: _Key) -> None:
        """Move an owner forward, if it is listed here."""
        if owner in self._keys:
            self.rank(owner, key)

    def owners(self, key: Callable[[str], _Key]) -> Iterator[str]:
        """Give the owner who is due first, again and again, until `pass_over` leaves none."""
        while self._owners:
            stored, owner = self._owners[0]
            if self._keys.get(owner) != stored:
                heapq.heappop(self._owners)
                continue
            present = key(owner)
            if present > stored:
                self._keys[owner] = present
                heapq.heapreplace(self._owners, (present, owner))
                continue
            yield owner

    def pass_over(self, owner: str) -> bool:
        """Take the first owner out; say whether it still has a line here."""
        heapq.heappop(self._owners)
        del self._keys[owner]
        return bool(self._lines.get(owner))

    def alone(self, bucket: Bucket) -> bool:
        """Say whether no other bucket waits for places of this class."""
        return len(self._listed) == 1 and bucket in self._listed

    def first(self, owner: str, allowed: Callable[[Bucket], bool]) -> Bucket | None:
        """Find the most urgent bucket of an owner that is allowed to run now."""
        line = self._lines.get(owner, [])
        aside = []
        found = None
        while line:
            head, serial, bucket = line[0]
            if self._listed.get(bucket) != head:
                heapq.heappop(line)
            elif not bucket:
                heapq.heappop(line)
                del self._listed[bucket]
            elif bucket.head != head:
                self._listed[bucket] = bucket.head
                heapq.heapreplace(line, (bucket.head, serial, bucket))
            elif allowed(bucket):
                found = bucket
                break
            else:
                aside.append(heapq.heappop(line))
        for entry in aside:
            heapq.heappush(line, entry)
        return found
