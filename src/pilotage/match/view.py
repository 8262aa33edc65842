"""Places that are alike to all queued jobs, and the jobs that could run there."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from pilotage.match.bucket import Bucket
from pilotage.match.cluster import Cluster, Rough
from pilotage.match.place import Place

_Key = tuple[float, float]
#: Order of the first job, a number to tell equals apart, and the bucket.
_Entry = tuple[int, int, Bucket]
_Size = tuple[int, int, int, int]
#: So many buckets that were listed last are remembered.
_NEWS = 10_000


class View:
    """One slot class: its places, and lines of buckets by owner.

    A line and the heap of owners are sorted lazily: an entry is put right when it comes first, so
    that a change costs nothing to those who do not look.
    """

    def __init__(
        self, key: tuple[Any, ...], attributes: dict[str, Any], vague: frozenset[str]
    ) -> None:
        """Begin a class; its places may differ in `vague` attributes."""
        self.key = key
        self._vague = vague
        self.attributes = attributes
        self.places: dict[int, Place] = {}
        #: By free cores the places that wait for work, the longest first.
        self.parked: dict[int, dict[int, Place]] = {}
        #: How many buckets were listed here so far.
        self.version = 0
        self._news: list[Bucket] = []
        self._rooms: dict[int, int] = {}
        #: How many places of each size there are, and the sizes that no other is as large as.
        self._sizes: dict[_Size, int] = {}
        self._largest: list[_Size] = []
        self._accepts: dict[int, bool] = {}
        #: By owner and by how much jobs need roughly, the most urgent bucket first.
        self._lines: dict[str, dict[Rough, list[_Entry]]] = {}
        self._listed: dict[Bucket, int] = {}
        self._owners: list[tuple[_Key, str]] = []
        self._keys: dict[str, _Key] = {}
        self._serial = 0

    def accepts(self, cluster: Cluster) -> bool:
        """Return whether jobs of a cluster may ever run on some place of this class."""
        known = self._accepts.get(cluster.number)
        if known is None:
            known = self._accepts[cluster.number] = any(
                _covers(size, cluster.size) for size in self._largest
            ) and (not cluster.names.isdisjoint(self._vague) or cluster.accepts(self.attributes))
        return known

    def join(self, place: Place) -> bool:
        """Add a place; return whether it is larger than all others, so that more may fit."""
        self.places[place.number] = place
        size = place.size
        self._sizes[size] = self._sizes.get(size, 0) + 1
        if any(_covers(one, size) for one in self._largest):
            return False
        self._largest = [one for one in self._largest if not _covers(size, one)] + [size]
        self._accepts = {key: yes for key, yes in self._accepts.items() if yes}
        return True

    def leave(self, place: Place) -> None:
        """Remove a place."""
        del self.places[place.number]
        self.unpark(place)
        size = place.size
        self._sizes[size] -= 1
        if not self._sizes[size]:
            del self._sizes[size]
            if size in self._largest:
                self._largest = _largest(self._sizes)
                self._accepts = {}

    def park(self, place: Place) -> None:
        """Note that a place waits; one that is full waits for its own jobs."""
        # It may have had other room when this was noted before.
        self.unpark(place)
        if place.free_cpus > 0:
            self._rooms[place.number] = place.free_cpus
            self.parked.setdefault(place.free_cpus, {})[place.number] = place

    def unpark(self, place: Place) -> None:
        """Note that a place waits no more."""
        room = self._rooms.pop(place.number, None)
        if room is not None:
            del self.parked[room][place.number]
            if not self.parked[room]:
                del self.parked[room]

    def waiting(self, cpus: int) -> Iterator[Place]:
        """Yield waiting places with this many free cores, those with the fewest first."""
        for room in sorted(one for one in self.parked if one >= cpus):
            yield from self.parked[room].values()

    def news(self, since: int) -> list[Bucket] | None:
        """Return the buckets that were listed since a version, if that is remembered."""
        new = self.version - since
        return None if new > len(self._news) else self._news[len(self._news) - new :]

    def enlist(self, bucket: Bucket, key: Callable[[str], _Key]) -> None:
        """Put a bucket whose first job is new into its owner's line."""
        head = bucket.head
        if self._listed.get(bucket) == head:
            return
        self._listed[bucket] = head
        self._serial += 1
        self.version += 1
        self._news.append(bucket)
        if len(self._news) > _NEWS:
            del self._news[: _NEWS // 2]
        lines = self._lines.setdefault(bucket.owner, {})
        line = lines.setdefault(bucket.cluster.rough, [])
        heapq.heappush(line, (head, self._serial, bucket))
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
            if len(self._owners) > 2 * len(self._keys) + 64:
                # Not read for long: outdated entries would pile up.
                self._owners = [(key, owner) for owner, key in self._keys.items()]
                heapq.heapify(self._owners)

    def owners(self, key: Callable[[str], _Key]) -> Iterator[str]:
        """Yield the owner that is due first, repeatedly, until `pass_over` leaves none."""
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
        """Remove the first owner; return whether it still has a line here."""
        heapq.heappop(self._owners)
        del self._keys[owner]
        return bool(self._lines.get(owner))

    def let_back(self, owners: list[str], key: Callable[[str], _Key]) -> None:
        """Put owners back that were passed over."""
        for owner in owners:
            self.rank(owner, key(owner))

    def alone(self, bucket: Bucket) -> bool:
        """Return whether no other bucket waits for places of this class."""
        return len(self._listed) == 1 and bucket in self._listed

    def first(
        self, owner: str, roomy: Callable[[Rough], bool], allowed: Callable[[Bucket], bool],
        short: Callable[[Bucket], None],
    ) -> Bucket | None:  # fmt: skip
        """Find the most urgent bucket of an owner that is allowed to run now.

        Lines that need more than there is are skipped; `short` is called with the first of each.
        """
        found: Bucket | None = None
        lines = self._lines.get(owner, {})
        for rough, line in list(lines.items()):
            top = self._top(line)
            if top is None:
                del lines[rough]
            elif not roomy(rough):
                short(top)
            elif found is None or top.head < found.head:
                found = top if allowed(top) else self._search(line, allowed, found, top)
        return found

    def _top(self, line: list[_Entry]) -> Bucket | None:
        """Put the first entry of a line right, and return its bucket."""
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
            else:
                return bucket
        return None

    def _search(
        self, line: list[_Entry], allowed: Callable[[Bucket], bool], found: Bucket | None,
        refused: Bucket,
    ) -> Bucket | None:  # fmt: skip
        """Find who is allowed after the one who was refused, if more urgent than what was found."""
        aside = []
        while (top := self._top(line)) is not None and (found is None or top.head < found.head):
            # Who was refused may be gone from the line already.
            if top is not refused and allowed(top):
                found = top
                break
            aside.append(heapq.heappop(line))
        for entry in aside:
            heapq.heappush(line, entry)
        return found


def _covers(one: _Size, other: _Size) -> bool:
    return (
        one[0] >= other[0] and one[1] >= other[1] and one[2] >= other[2] and one[3] >= other[3]
    )  # fmt: skip


def _largest(sizes: Iterable[_Size]) -> list[_Size]:
    found: list[_Size] = []
    for size in sorted(sizes, reverse=True):
        if not any(_covers(one, size) for one in found):
            found.append(size)
    return found


def note_barren(place: Place, view: View, ahead: int) -> None:
    """Remember that all buckets of a class were looked at, and none may start at a place."""
    place.barren = (view, view.version, _room(place, ahead))


def still_barren(place: Place, view: View, allowed: Callable[[Bucket], bool], ahead: int) -> bool:
    """Return whether nothing that is new may start where nothing was found before."""
    if place.barren is None or place.barren[0] is not view:
        return False
    room, before = _room(place, ahead), place.barren[2]
    if any(have > had for have, had in zip(room, before, strict=True)):
        return False
    news = view.news(place.barren[1])
    if news is None or any(bucket and allowed(bucket) for bucket in news):
        return False
    if news:
        # These were checked with the present room, however much there was before.
        place.barren = (view, view.version, room)
    return True


def _room(place: Place, ahead: int) -> tuple[int, ...]:
    free = place.free_cpus
    return free, free + ahead, place.free_memory, place.free_gpus, place.free_disk
