"""The jobs that could run at each class of places.

Jobs that are alike to the matchmaker are one bucket; places that are alike to every queued job are
one class, with a view of the buckets whose jobs could run there.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any

import msgspec

from pilotage.match.cluster import QUEUE, Cluster, Rough
from pilotage.match.place import Place

#: An attribute with more values than this makes no classes.
_MOST_VALUES = 100
_ID_BITS = 44
_ID = (1 << _ID_BITS) - 1
_MIDDLE = 1 << 31


def order(job: int, priority: int) -> int:
    """Write urgency as one number: less runs first."""
    return (_MIDDLE - priority) << _ID_BITS | job


class Bucket:
    """A queue of jobs that are all alike to the matchmaker."""

    __slots__ = ("_queue", "cluster", "counted", "kept", "limit", "most", "owner", "since", "stuck")

    def __init__(self, owner: str, cluster: Cluster, limit: str) -> None:
        self.owner = owner
        group, slash, _ = owner.partition("/")
        #: All by whom its cores are counted: the owner, and the group.
        self.counted = (owner, f"{group}/") if slash else (owner,)
        self.cluster = cluster
        #: The key of its limit, `key:most`; empty if it has none.
        self.limit = limit
        self.most = int(limit.rpartition(":")[2]) if limit else math.inf
        self._queue: list[int] = []
        #: Since when none of its jobs has started.
        self.since = 0.0
        #: Since when its first job has found too little room; 0 if it has not looked.
        self.stuck = 0.0
        #: The place that is kept for it.
        self.kept: Place | None = None

    def __len__(self) -> int:
        return len(self._queue)

    @property
    def head(self) -> int:
        """The order of its first job."""
        return self._queue[0]

    @property
    def first(self) -> tuple[int, int]:
        """Its first job, and the priority of that."""
        return self._queue[0] & _ID, _MIDDLE - (self._queue[0] >> _ID_BITS)

    def push(self, job: int, priority: int) -> bool:
        """Queue a job; say whether it is the first now."""
        one = order(job, priority)
        heapq.heappush(self._queue, one)
        return self._queue[0] == one

    def take_out(self, jobs: Collection[int]) -> list[tuple[int, int]]:
        """Take some jobs out, wherever they are in the queue; return each and its priority."""
        taken = [one for one in self._queue if one & _ID in jobs]
        self._queue = [one for one in self._queue if one & _ID not in jobs]
        heapq.heapify(self._queue)
        return [(one & _ID, _MIDDLE - (one >> _ID_BITS)) for one in taken]

    def pop(self) -> tuple[int, int]:
        """Remove the first job; return it and its priority."""
        one = heapq.heappop(self._queue)
        self.stuck = 0.0
        return one & _ID, _MIDDLE - (one >> _ID_BITS)


class PickedJob(msgspec.Struct, frozen=True):
    """A job that may start at a place."""

    job: int
    priority: int
    bucket: Bucket
    charged: float


class QueuedJob(msgspec.Struct, frozen=True):
    """A job that enters the queue."""

    job: int
    priority: int
    owner: str
    cluster: Cluster
    limit: str = ""
    not_before: float = 0.0


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


class Classes:
    """The class of each place, and the buckets listed in each class."""

    def __init__(self, key: Callable[[str], _Key]) -> None:
        """Know no place; `key` says in which order owners come."""
        self._key = key
        self.views: dict[tuple[Any, ...], View] = {}
        self._of: dict[int, View] = {}
        self._significant = frozenset({QUEUE})
        #: Attributes with too many different values to make classes.
        self._vague: frozenset[str] = frozenset()
        #: How many classes there were when places were last sorted.
        self._before = 0

    @property
    def crowded(self) -> bool:
        """Whether there are too many classes, so that places should be classified again."""
        return len(self.views) > 2 * self._before + _MOST_VALUES

    def of(self, place: Place) -> View:
        """Find the class of a place."""
        return self._of[place.number]

    def put(self, place: Place, buckets: Iterable[Bucket]) -> None:
        """Class a place; if it is larger than all of its class, more buckets may be listed."""
        names = self._significant - self._vague
        key = tuple(_hashable(place.attributes.get(name)) for name in sorted(names))
        view = self.views.get(key)
        if view is None:
            view = self.views[key] = View(key, place.attributes, self._vague)
        self._of[place.number] = view
        if view.join(place):
            for bucket in buckets:
                if bucket and view.accepts(bucket.cluster):
                    view.enlist(bucket, self._key)

    def drop(self, place: Place) -> None:
        """Remove a place."""
        view = self._of.pop(place.number)
        view.leave(place)
        if not view.places:
            del self.views[view.key]

    def sort(
        self, places: Iterable[Place], buckets: Iterable[Bucket], significant: frozenset[str]
    ) -> None:
        """Classify all places again if other attributes matter than before."""
        if significant != self._significant:
            self.redo(places, buckets, significant)

    def redo(
        self, places: Iterable[Place], buckets: Iterable[Bucket], significant: frozenset[str]
    ) -> None:
        """Classify all places again by the attributes that matter."""
        self._significant = significant
        places = list(places)
        self._vague = frozenset(one for one in significant if _is_vague(one, places))
        parked = [
            place
            for view in self.views.values()
            for alike in view.parked.values()
            for place in alike.values()
        ]
        self.views, self._of = {}, {}
        listed = list(buckets)
        for place in places:
            self.put(place, listed)
        for place in parked:
            self.of(place).park(place)
        self._before = len(self.views)

    def enlist(self, bucket: Bucket) -> None:
        """List a bucket whose first job is new wherever it may run."""
        for view in self.views.values():
            if view.accepts(bucket.cluster):
                view.enlist(bucket, self._key)

    def rerank(self, owner: str) -> None:
        """Move an owner forward in all lines."""
        key = self._key(owner)
        for view in self.views.values():
            view.rerank(owner, key)

    def homes(self, cluster: Cluster) -> Iterator[Place]:
        """Yield the places that could run the jobs of a cluster."""
        for view in self.views.values():
            if view.accepts(cluster):
                yield from view.places.values()

    def waiting(self, cluster: Cluster) -> Iterator[Place]:
        """Yield the waiting places that match, those of the highest rank first."""
        views = [one for one in self.views.values() if one.parked and one.accepts(cluster)]
        if cluster.rank is not None:
            views.sort(key=lambda view: cluster.prefers(view.attributes), reverse=True)
        for view in views:
            yield from view.waiting(cluster.cpus)

    def suits(self, cluster: Cluster, place: Place) -> bool:
        """Return whether a place is what a cluster asks for, as far as its class does not tell."""
        if place.number in cluster.refused_by:
            return False
        return cluster.names.isdisjoint(self._vague) or cluster.accepts(place.attributes)

    def hopeless(self, cluster: Cluster) -> bool:
        """Return whether no place could ever run jobs of a cluster."""
        return not any(
            cluster.could_fit(place) and self.suits(cluster, place) for place in self.homes(cluster)
        )


def _is_vague(name: str, places: list[Place]) -> bool:
    """Return whether places differ too much in an attribute, as in their names."""
    seen = set()
    for place in places:
        seen.add(_hashable(place.attributes.get(name)))
        if len(seen) > _MOST_VALUES:
            return True
    return False


def _hashable(value: Any) -> Any:  # noqa: ANN401 - attributes are of any kind
    """Make a value a key; what is true and what is one are not the same."""
    if isinstance(value, list):
        return tuple(map(_hashable, value))
    return ("bool", value) if isinstance(value, bool) else value
