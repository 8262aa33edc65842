"""A place to run jobs, as the matchmaker sees it: resources, free room, leases and requests."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from pilotage.job import moves
from pilotage.job.model import JobSpec, Resources

if TYPE_CHECKING:
    from collections.abc import Callable

    from pilotage.match.classes import Bucket
    from pilotage.match.cluster import Cluster
    from pilotage.store import Db


def mark(number: int) -> str:
    """Name what the attempts that a pilot holds are marked with in the store."""
    return f"pilot:{number}"


#: What begins the mark of attempts that the batch queue of a site holds.
SITE = "site:"


def queue_mark(site: str) -> str:
    """Name what the attempts that the batch queue of a site holds are marked with."""
    return f"{SITE}{site}"


class Lease(msgspec.Struct, gc=False):
    """A job that a place holds; its attempt number is the fence."""

    job: int
    attempt: int
    spec: int
    priority: int
    started: float
    #: Core-seconds that its owner was charged so far.
    charged: float = 0.0
    #: When it began to run, where it first waits in a queue; 0 if it is not known to.
    began: float = 0.0
    #: When it was asked to end; 0 if it was not.
    stopping: float = 0.0


class Reservation(msgspec.Struct):
    """A large job waits for this place; others may only use what it will not need."""

    bucket: Any
    #: When there will be room for it, as far as one can tell.
    at: float
    #: What is left beside it then.
    cpus: int
    memory: int
    gpus: int
    disk: int


class PlaceQuota(msgspec.Struct):
    """The number of jobs of a cluster that a place accepts at once, learnt from a refusal."""

    most: int
    #: Seconds between attempts to send more, when the next one is due, and how many more.
    pause: float
    due: float
    step: int = 1

    def grow(self, now: float) -> None:
        """Try more, and twice as many the next time; a refusal replaces all of this."""
        self.most += self.step
        self.step *= 2
        self.due = now + self.pause


class Place:
    """One pilot, this machine, or the batch queue of a site."""

    __slots__ = (
        "attributes", "barren", "begins", "blocked", "cpus", "disk", "free_cpus", "free_disk",
        "free_gpus", "free_memory", "gpus", "held", "holder", "kinds", "leases", "marks", "memory",
        "node", "number", "on_claim", "quotas", "reserved", "site", "slots", "taking", "until",
    )  # fmt: skip

    def __init__(
        self, number: int, site: str, attributes: dict[str, Any], *, cpus: int, memory: int,
        gpus: int = 0, disk: int = 0, until: float = math.inf,
    ) -> None:  # fmt: skip
        self.number = number
        self.site = site
        #: What attempts that it holds are marked with in the store.
        self.holder = mark(number)
        self.marks = {self.holder}
        #: The machine that it is on.
        self.node = str(attributes.get("host", site))
        self.attributes = attributes
        self.cpus = self.free_cpus = cpus
        self.memory = self.free_memory = memory
        self.gpus = self.free_gpus = gpus
        self.disk = self.free_disk = disk
        #: Jobs that it holds at most.
        self.slots = sys.maxsize
        #: The state in which jobs begin here.
        self.begins = "running"
        #: Called with what was claimed for it, in the transaction of the claim; must not raise.
        self.on_claim: Callable[[Db, Granted, float], None] | None = None
        #: When it goes away; what cannot end before is not started.
        self.until = until
        #: Whether it takes work at all.
        self.taking = False
        #: Why it gets none although it would take some.
        self.blocked = ""
        self.leases: dict[int, Lease] = {}
        #: By job, the bucket that each lease came from.
        self.kinds: dict[int, Bucket] = {}
        #: How many jobs of each cluster it has, and how many it takes of those it had too many of.
        self.held: dict[Cluster, int] = {}
        self.quotas: dict[Cluster, PlaceQuota] = {}
        self.reserved: Reservation | None = None
        #: The class, its version and the room with which nothing was found for it last.
        self.barren: tuple[object, int, tuple[int, ...]] | None = None

    @property
    def size(self) -> tuple[int, int, int, int]:
        """What it has in all: cores, memory, GPUs and disk."""
        return self.cpus, self.memory, self.gpus, self.disk

    def used(self, lease: Lease, now: float) -> float:
        """Return for how long a job has had its cores; what waits in a batch queue has none yet."""
        began = lease.started if self.begins == "running" else lease.began
        return max(0.0, now - began) if began else 0.0

    def empty(self) -> None:
        """Remove all entries."""
        self.leases, self.kinds, self.held, self.reserved, self.barren = {}, {}, {}, None, None
        self.free_cpus, self.free_memory = self.cpus, self.memory
        self.free_gpus, self.free_disk = self.gpus, self.disk

    def roomy(self, rough: tuple[int, int, int], ahead: int) -> bool:
        """Return whether jobs that need roughly this much may fit; one core may run ahead."""
        cpus, bits, gpus = rough
        free = self.free_cpus
        enough = cpus <= free or (cpus == 1 and free + ahead > 0)
        return enough and gpus <= self.free_gpus and (1 << bits) >> 1 <= self.free_memory

    def take(self, cluster: Cluster, count: int = 1) -> None:
        """Carve out what jobs need; a negative count gives it back."""
        self.free_cpus -= count * cluster.cpus
        self.free_memory -= count * cluster.memory
        self.free_gpus -= count * cluster.gpus
        self.free_disk -= count * cluster.disk
        self.held[cluster] = self.held.get(cluster, 0) + count
        if not self.held[cluster]:
            del self.held[cluster]

    def left(self, cluster: Cluster) -> int:
        """Return how many more jobs of a cluster it takes, whatever room there is."""
        quota = self.quotas.get(cluster)
        return sys.maxsize if quota is None else quota.most - self.held.get(cluster, 0)


class Offer(msgspec.Struct, frozen=True):
    """Resources of a place, in all and free now."""

    #: Its name.
    site: str
    #: Cores, in all and free.
    cpus: int
    free_cpus: int
    #: Bytes of memory, in all and free.
    memory: int
    free_memory: int
    #: GPUs, in all and free.
    gpus: int = 0
    free_gpus: int = 0


def fits(needs: Resources, offer: Offer) -> bool:
    """Return whether a job fits into what is free now."""
    return (
        needs.cpus <= offer.free_cpus
        and (needs.memory or 0) <= offer.free_memory
        and needs.gpus <= offer.free_gpus
    )


def carve(needs: Resources, offer: Offer, sign: int = -1) -> Offer:
    """Subtract the resources of a job from an offer, or add them with `sign` = 1."""
    return Offer(
        offer.site, offer.cpus, offer.free_cpus + sign * needs.cpus,
        offer.memory, offer.free_memory + sign * (needs.memory or 0),
        offer.gpus, offer.free_gpus + sign * needs.gpus,
    )  # fmt: skip


class Stop(msgspec.Struct, frozen=True):
    """A job that a place is to end."""

    job: int
    attempt: int
    words: str


class Granted(msgspec.Struct):
    """The answer of a turn to a place."""

    claims: list[moves.Claim]
    stops: list[Stop]
    #: The definitions of what was claimed, by number.
    specs: dict[int, JobSpec] = {}


def _no_matter(_error: Exception) -> None:
    """Ignore the error."""


class PlaceRequest(msgspec.Struct, eq=False):
    """A request of a place: its ended jobs, and a callback for the answer."""

    place: int
    answer: Callable[[Granted], None]
    ends: list[moves.EndedJob] = []
    #: Plain jobs that it would take beyond its free cores.
    ahead: int = 0
    #: Whether it waits when there is nothing to do.
    park: bool = False
    #: Called with the error if the request cannot be handled at all.
    refuse: Callable[[Exception], None] = _no_matter


class TurnOutcome(msgspec.Struct):
    """The result of a turn, once it is on disk."""

    answers: list[tuple[PlaceRequest, Granted]]
    ended: list[tuple[int, int]]
    due: float | None
    #: Who said what cannot be dealt with, and why.
    refused: list[tuple[PlaceRequest, Exception]] = []
    #: Jobs in the queue that are workflows.
    workflows: list[int] = []
