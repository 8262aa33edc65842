"""Where a job could run: which places match it, and which of them take work now."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Sequence

import msgspec

from pilotage.job.model import JobSpec, Resources
from pilotage.match.clause import figure
from pilotage.match.cluster import QUEUE, Cluster, Clusters
from pilotage.match.place import Place
from pilotage.match.why import MatchReport, PlaceClass, why

#: Why an offer gets no work now, the least trouble first.
KEPT, BOOTING, DRAINING, SILENT, BLOCKED, LOST = IDLE = (
    "kept", "booting", "draining", "silent", "blocked", "lost",
)  # fmt: skip


class Offered(msgspec.Struct, frozen=True):
    """A place, and whether it takes work."""

    place: Place
    #: One of `IDLE`; empty if it takes work.
    idle: str = ""
    #: The same in words.
    words: str = ""


class Idle(msgspec.Struct, frozen=True):
    """Offers that would do if they took work."""

    #: One of `IDLE`.
    kind: str
    count: int
    #: What is said of most of them.
    words: str


class Prospect(msgspec.Struct, frozen=True):
    """Where a job may run, now and later."""

    #: How it goes together with all offers that are not lost.
    why: MatchReport
    #: Offers that take work: those that would do if they were empty, and those that would do now.
    ever: int = 0
    now: int = 0
    #: What too little is free of, with both values; only if none would do now.
    short: tuple[str, ...] = ()
    #: Offers that would do and take no work.
    idle: tuple[Idle, ...] = ()

    @property
    def never(self) -> bool:
        """Return whether there are offers, and none could ever run it."""
        return bool(self.why.offers) and not self.why.ever and not self.idle

    @property
    def no_offers(self) -> bool:
        """Return whether there is no offer at all."""
        return not self.why.offers and not self.idle


class Offers:
    """All offers; jobs with the same requirements are compared with them once."""

    def __init__(self, offered: Sequence[Offered], now: float) -> None:
        self._now = now
        self._kinds: dict[str, list[Offered]] = {}
        for one in offered:
            self._kinds.setdefault(one.idle, []).append(one)
        self._slots: dict[tuple[str, ...], dict[str, list[PlaceClass]]] = {}
        self._clusters = Clusters()
        self._known: dict[int, Prospect] = {}

    @property
    def sites(self) -> frozenset[str]:
        """The sites of all offers."""
        return frozenset(one.place.site for some in self._kinds.values() for one in some)

    def __len__(self) -> int:
        """Count offers that are not lost."""
        return sum(len(offered) for kind, offered in self._kinds.items() if kind != LOST)

    def prospect(self, spec: JobSpec, owner: str) -> Prospect:
        """Return what a job may hope for."""
        cluster = self._clusters.of(spec, owner)
        if cluster.number not in self._known:
            self._known[cluster.number] = self._look(cluster)
        return self._known[cluster.number]

    def _look(self, cluster: Cluster) -> Prospect:
        wanted, asked = cluster.wants.resources, cluster.wants.requirements
        names = tuple(sorted(cluster.names | {QUEUE}))
        kinds = {
            kind: [slot for slot in slots if cluster.queues or not slot.attributes.get(QUEUE)]
            for kind, slots in self._alike(names).items()
        }
        seen = {kind: to_job(slots, wanted, names) for kind, slots in kinds.items()}
        alive = [slot for kind, slots in seen.items() if kind != LOST for slot in slots]
        takers = why(wanted, asked, cluster.job, seen.get("", ()))
        idle = ((kind, why(wanted, asked, cluster.job, seen.get(kind, ())).ever) for kind in IDLE)
        return Prospect(
            why(wanted, asked, cluster.job, alive),
            takers.ever,
            takers.now,
            _short(cluster, kinds[""]) if takers.ever and not takers.now else (),
            tuple(Idle(kind, count, self._words(kind)) for kind, count in idle if count),
        )

    def _alike(self, names: tuple[str, ...]) -> dict[str, list[PlaceClass]]:
        if names not in self._slots:
            self._slots[names] = {
                kind: classes((one.place for one in offered), names, self._now)
                for kind, offered in self._kinds.items()
            }
        return self._slots[names]

    def _words(self, kind: str) -> str:
        return Counter(one.words for one in self._kinds[kind]).most_common(1)[0][0]


def _short(cluster: Cluster, slots: Sequence[PlaceClass]) -> tuple[str, ...]:
    """Return what is too little of that which is free where the job could run."""
    wanted = cluster.wants.resources
    needs = {name: getattr(wanted, name) or 0 for name in ("cpus", "memory", "gpus", "disk")}
    homes = [
        slot.free for slot in slots
        if all(slot.total[name] >= need for name, need in needs.items())
        and slot.total.get("time", math.inf) >= (wanted.time or 0)
        and cluster.accepts(slot.attributes)
    ]  # fmt: skip
    most = {name: max([0, *(free[name] for free in homes)]) for name in needs}
    asked = {name: f"{name} = {figure(need, {name}, up=True)}" for name, need in needs.items()}
    found = tuple(
        f"it needs {asked[name]}, and {_at_most(name, most[name])} free"
        for name, need in needs.items()
        if need > most[name]
    )
    together = ", ".join(asked[name] for name, need in needs.items() if need)
    return found or (f"it needs {together} in one place",)


def _at_most(name: str, free: float) -> str:
    verb = "are" if name in {"cpus", "gpus"} and free > 1 else "is"
    return f"at most {figure(free, {name})} {verb}" if free else "none is"


_Key = tuple[object, ...]
_NEEDS = ("cpus", "memory", "gpus", "disk", "time")


def classes(places: Iterable[Place], names: Collection[str], now: float) -> list[PlaceClass]:
    """Count places that do not differ in what they have, what is free, and in these attributes."""
    found: dict[_Key, list[Place]] = {}
    left: dict[float, float] = {}
    for place in places:
        until = place.until
        if until not in left:
            # To the minute: pilots that came together go together.
            left[until] = max(0.0, (until - now) // 60 * 60) if until < math.inf else until
        key = (
            place.cpus, place.free_cpus, place.memory, place.free_memory, place.gpus,
            place.free_gpus, place.disk, place.free_disk, left[until], *_seen(place, names),
        )  # fmt: skip
        found.setdefault(key, []).append(place)
    return [_slot(alike[0], left[alike[0].until], len(alike)) for alike in found.values()]


def to_job(
    slots: Iterable[PlaceClass], wanted: Resources, names: Collection[str]
) -> list[PlaceClass]:
    """Count those as one that are the same to a job: only whether there is room matters."""
    needs = {name: getattr(wanted, name) for name in _NEEDS if getattr(wanted, name)}
    found: dict[_Key, PlaceClass] = {}
    for slot in slots:
        room = all(slot.free.get(name, math.inf) >= need for name, need in needs.items())
        seen = (repr(slot.attributes.get(name)) for name in names)
        key = (room, *(slot.total.get(name) for name in needs), *seen)
        known = found.get(key)
        if known is not None:
            slot = msgspec.structs.replace(known, count=known.count + slot.count)  # noqa: PLW2901
        found[key] = slot
    return list(found.values())


def _seen(place: Place, names: Collection[str]) -> list[str]:
    return [repr(place.attributes.get(name)) for name in names]


def _slot(place: Place, left: float, count: int) -> PlaceClass:
    total: dict[str, float] = {
        "cpus": place.cpus, "memory": place.memory, "gpus": place.gpus, "disk": place.disk,
    }  # fmt: skip
    free: dict[str, float] = {
        "cpus": place.free_cpus, "memory": place.free_memory, "gpus": place.free_gpus,
        "disk": place.free_disk,
    }  # fmt: skip
    if left < math.inf:
        total["time"] = free["time"] = left
    return PlaceClass(place.attributes, count, total, free)
