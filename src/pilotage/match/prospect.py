"""Where a job could run: what all offers say to it, and which of them take work now."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import msgspec

from pilotage.job.model import JobSpec
from pilotage.match import alike
from pilotage.match.cluster import QUEUE, Cluster, Clusters
from pilotage.match.figure import figure
from pilotage.match.place import Place
from pilotage.match.why import SlotClass, Why, why

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
    """What a job may hope for."""

    #: How it goes together with all offers that are not lost.
    why: Why
    #: Offers that take work: those that would do if they were empty, and those that would do now.
    ever: int = 0
    now: int = 0
    #: What too little is free of, with both values; only if none would do now.
    short: tuple[str, ...] = ()
    #: Offers that would do and take no work.
    idle: tuple[Idle, ...] = ()

    @property
    def never(self) -> bool:
        """Say whether there are offers, and none could ever run it."""
        return bool(self.why.offers) and not self.why.ever and not self.idle

    @property
    def nobody(self) -> bool:
        """Say whether there is no offer at all."""
        return not self.why.offers and not self.idle


class Offers:
    """All offers; jobs that want the same are compared with them once."""

    def __init__(self, offered: Sequence[Offered], now: float) -> None:
        """Take offers as they are now."""
        self._now = now
        self._kinds: dict[str, list[Offered]] = {}
        for one in offered:
            self._kinds.setdefault(one.idle, []).append(one)
        self._slots: dict[tuple[str, ...], dict[str, list[SlotClass]]] = {}
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
        """Say what a job may hope for."""
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
        seen = {kind: alike.to_job(slots, wanted, names) for kind, slots in kinds.items()}
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

    def _alike(self, names: tuple[str, ...]) -> dict[str, list[SlotClass]]:
        if names not in self._slots:
            self._slots[names] = {
                kind: alike.classes((one.place for one in offered), names, self._now)
                for kind, offered in self._kinds.items()
            }
        return self._slots[names]

    def _words(self, kind: str) -> str:
        return Counter(one.words for one in self._kinds[kind]).most_common(1)[0][0]


def _short(cluster: Cluster, slots: Sequence[SlotClass]) -> tuple[str, ...]:
    """Say what is too little of that which is free where the job could run."""
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
