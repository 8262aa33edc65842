"""What waits in the queue, and which pools could run it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from pilotage.batch.model import SiteSettings
from pilotage.match.bucket import Bucket
from pilotage.match.cluster import QUEUE, Cluster
from pilotage.match.negotiate import Matcher
from pilotage.pool.files import Aimd, Pool
from pilotage.pool.pilots import Drone
from pilotage.pool.policy.model import Hint
from pilotage.pool.prospects import attributes, given, holds, suits
from pilotage.pool.reading import Row

#: Places that wait which are looked at for a kind of jobs.
_LOOKS = 64


class Waiting:
    """What waits in the queue, and which pools could run it."""

    def __init__(
        self, matcher: Matcher, pools: Mapping[str, Pool], sites: Mapping[str, SiteSettings],
        found: Mapping[str, list[Drone]], rows: Mapping[str, Row], now: float,
        sees: Callable[[str], bool],
    ) -> None:  # fmt: skip
        """Look at every kind of jobs once; `sees` says of a pool what its pilots see here."""
        self._matcher = matcher
        self._pools = pools
        self._now = now
        self._shut = {name for name, row in rows.items() if row.asked or now < row.care.until}
        self._wishes = {
            name: given(pool, sites[pool.site], rows[name].seen if name in rows else None)
            for name, pool in pools.items()
        }
        self._like = {
            name: _like(name, pool, sites[pool.site], found[name], sees=sees(name))
            for name, pool in pools.items()
        }
        self._cores: dict[Cluster, float] = {}
        for bucket in self._matcher.buckets.values():
            if bucket and not self._matcher.bounds.bar(bucket):
                kind = bucket.cluster
                self._cores[kind] = self._cores.get(kind, 0.0) + _cores(bucket)
        #: By pool, the kinds that it could run, and those of them for which it is large enough.
        self._suited = {
            name: frozenset(kind for kind in self._cores if self._suits(kind, name))
            for name in pools
        }
        self._large = {
            name: {kind for kind in self._suited[name] if holds(self._wishes[name], kind)}
            for name in pools
        }

    def cores(self, name: str) -> float:
        """Say how many cores wait that a pool could provide."""
        return sum(self._cores[kind] for kind in self._large[name])

    def groups(self) -> Iterator[tuple[str, list[str], tuple[Hint, ...]]]:
        """Yield pools under our law that are alike to jobs, by their first, and what waits."""
        alike: dict[frozenset[Cluster], list[str]] = {}
        for name in sorted(self._pools):
            if isinstance(self._pools[name].control, Aimd):
                alike.setdefault(self._suited[name], []).append(name)
        told: set[Cluster] = set()
        # Pools that suit few kinds come first: what suits them may suit others, too.
        for _, names in sorted(alike.items(), key=lambda one: (len(one[0]), one[1])):
            mine = set[Cluster]().union(*(self._large[name] for name in names)) - told
            # What nobody of these may be asked for is offered to the others, too.
            if not self._shut.issuperset(names):
                told |= mine
            yield names[0], names, self._hints(names[0], mine)

    def _hints(self, group: str, kinds: set[Cluster]) -> tuple[Hint, ...]:
        found: dict[tuple[int, int], tuple[float, bool]] = {}
        for kind in kinds:
            size = (kind.cpus, kind.memory)
            cores, fits = found.get(size, (0.0, False))
            found[size] = (cores + self._cores[kind], fits or self._fits(kind))
        return tuple(
            Hint(_name(group, *size), size[0], float(max(1, size[1])), *told)
            for size, told in sorted(found.items())
        )

    def _fits(self, kind: Cluster) -> bool:
        """Say whether a place that waits for work has room for such a job."""
        classes, over = self._matcher.classes, self._now + (kind.time or 0.0)
        return any(
            place.taking
            and not place.blocked
            and over <= place.until
            and kind.fits(place)
            and classes.suits(kind, place)
            for place in itertools.islice(classes.waiting(kind), _LOOKS)
        )

    def _suits(self, kind: Cluster, name: str) -> bool:
        return suits(kind, self._wishes[name], self._like[name])


def _cores(bucket: Bucket) -> float:
    """Say how many cores the jobs of a bucket may have at once."""
    return min(len(bucket), bucket.most) * bucket.cluster.cpus


def _name(group: str, cpus: int, memory: int) -> str:
    size = f"{cpus} core" if cpus == 1 else f"{cpus} cores"
    return f"{size}{f' {memory / 1e9:.3g} GB' if memory else ''} @{group}"


def _like(
    name: str, pool: Pool, site: SiteSettings, mine: list[Drone], *, sees: bool
) -> dict[str, Any]:
    """Say what requirements may ask of such a pilot: as those that are there, or as was asked."""
    for one in mine:
        if one.place is not None and not one.place.attributes.get(QUEUE):
            return one.place.attributes
    return attributes(name, pool, site, sees=sees)
