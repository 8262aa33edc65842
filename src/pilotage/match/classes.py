"""Classes of places: places that are alike to every queued job are examined as one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from pilotage.match.bucket import Bucket
from pilotage.match.cluster import QUEUE, Cluster
from pilotage.match.place import Place
from pilotage.match.view import View

#: An attribute with more values than this makes no classes.
_MOST_VALUES = 100
_Key = Callable[[str], tuple[float, float]]


class Classes:
    """The class of each place, and the buckets listed in each class."""

    def __init__(self, key: _Key) -> None:
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
