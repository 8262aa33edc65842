"""Autoclusters: queued jobs with the same requirements are examined as one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from pilotage.job.model import JobSpec, Resources
from pilotage.match import expr, submission
from pilotage.match.place import Place

#: How long a job of an unknown kind is taken to last, in seconds.
_GUESS_S = 60.0
#: Weight of the newest job in the mean of how long jobs of a cluster take.
_NEWEST = 0.2


#: The attribute of batch queues, which pilots lack: only jobs that ask for a site go there.
QUEUE = "batch_queue"

#: Cores, the bits of memory, and GPUs that jobs need.
Rough = tuple[int, int, int]


class Wants(msgspec.Struct, frozen=True):
    """The properties of a job that matching uses; jobs with equal ones form one cluster."""

    resources: Resources
    requirements: str
    rank: str
    #: Cores over all nodes and tasks for each of the job's own.
    times: int
    #: Whether a batch queue may take it, beside pilots.
    queues: bool
    #: What the two expressions ask of the job itself.
    job: tuple[tuple[str, Any], ...]
    #: The definition, if a place could not run jobs of it: they then form their own cluster.
    apart: int = 0


class Cluster:
    """Jobs with the same wants, seen as one."""

    __slots__ = (
        "cpus", "disk", "gpus", "job", "last_wall", "memory", "names", "number", "queues", "rank",
        "refused_by", "requirements", "rough", "time", "wants",
    )  # fmt: skip

    def __init__(self, number: int, wants: Wants) -> None:
        needs = wants.resources
        self.number = number
        self.wants = wants
        self.cpus = needs.cpus * wants.times
        self.queues = wants.queues
        self.memory = needs.memory or 0
        self.gpus = needs.gpus
        self.disk = needs.disk or 0
        self.time = needs.time
        self.requirements = expr.parse(wants.requirements) if wants.requirements else None
        self.rank = expr.parse(wants.rank) if wants.rank else None
        #: The attributes of offers that its expressions use.
        self.names = frozenset({QUEUE}).union(
            *(one.names for one in (self.requirements, self.rank) if one is not None)
        )
        self.rough: Rough = (self.cpus, self.memory.bit_length(), self.gpus)
        self.job: Mapping[str, Any] = dict(wants.job)
        self.last_wall = min(_GUESS_S, needs.time or _GUESS_S)
        #: Places that could not run a job of it, and are not offered another.
        self.refused_by: set[int] = set()

    @property
    def size(self) -> tuple[int, int, int, int]:
        """Resources that a job needs: cores, memory, GPUs and disk."""
        return self.cpus, self.memory, self.gpus, self.disk

    @property
    def plain(self) -> bool:
        """Return whether its jobs need one core and nothing else, as most do."""
        return self.cpus == 1 and not (self.memory or self.gpus or self.disk)

    def accepts(self, attributes: Mapping[str, Any]) -> bool:
        """Return whether its requirements hold for offers like this."""
        if attributes.get(QUEUE) and not self.queues:
            return False
        return self.requirements is None or self.requirements.holds(attributes, self.job)

    def prefers(self, attributes: Mapping[str, Any]) -> float:
        """Return how much it would like such an offer."""
        return 0.0 if self.rank is None else self.rank.number(attributes, self.job)

    def could_fit(self, place: Place) -> bool:
        """Return whether a job would fit if nothing else ran there."""
        return (
            self.cpus <= place.cpus and self.memory <= place.memory and self.gpus <= place.gpus
            and self.disk <= place.disk
        )  # fmt: skip

    def fits(self, place: Place) -> bool:
        """Return whether a job fits into what is free there now."""
        return (
            self.cpus <= place.free_cpus and self.memory <= place.free_memory
            and self.gpus <= place.free_gpus and self.disk <= place.free_disk
        )  # fmt: skip

    def room(self, place: Place) -> int:
        """Return how many jobs fit into what is free there now."""
        return min(
            free // need
            for free, need in (
                (place.free_cpus, self.cpus), (place.free_memory, self.memory),
                (place.free_gpus, self.gpus), (place.free_disk, self.disk),
            )
            if need
        )  # fmt: skip

    def learn(self, wall: float) -> None:
        """Remember how long its jobs take."""
        self.last_wall += _NEWEST * (wall - self.last_wall)


class Clusters:
    """All clusters, by the requirements of jobs."""

    def __init__(self) -> None:
        self._count = 0
        #: The attributes of offers that any cluster uses: offers that agree in them are alike.
        self.significant = frozenset({QUEUE})
        self._known: dict[Wants, Cluster] = {}

    def of(self, spec: JobSpec, owner: str) -> Cluster:
        """Find the cluster of a definition, or begin one."""
        required = submission.requirements(spec)
        allocation = spec.allocation
        times = allocation.nodes * allocation.tasks
        wants = Wants(
            spec.resources,
            required,
            spec.rank,
            times,
            submission.sites(spec),
            _asked_of_job(spec, owner),
        )
        return self._of(wants)

    def apart(self, cluster: Cluster, spec: int) -> Cluster:
        """Find the cluster of one definition alone, or begin one; its jobs want the same."""
        return self._of(msgspec.structs.replace(cluster.wants, apart=spec))

    def _of(self, wants: Wants) -> Cluster:
        if (known := self._known.get(wants)) is not None:
            return known
        cluster = self._known[wants] = Cluster(self._count, wants)
        self._count += 1
        self.significant |= cluster.names
        return cluster

    def forgive(self, place: int) -> None:
        """Offer all jobs to a place again, those too that it has refused."""
        for cluster in self._known.values():
            cluster.refused_by.discard(place)

    def __len__(self) -> int:
        return len(self._known)

    def keep(self, used: Iterable[Cluster]) -> None:
        """Remove all clusters but some."""
        self._known = {one.wants: one for one in used}
        self.significant = frozenset({QUEUE}).union(*(one.names for one in self._known.values()))


def describe(spec: JobSpec, owner: str) -> dict[str, Any]:
    """Return the attributes of a job for expressions."""
    needs = spec.resources
    return {
        "cpus": needs.cpus, "memory": needs.memory or 0, "gpus": needs.gpus,
        "disk": needs.disk or 0, "time": needs.time, "priority": spec.priority,
        "owner": owner, "name": spec.name, "image": spec.image,
    }  # fmt: skip


def _asked_of_job(spec: JobSpec, owner: str) -> tuple[tuple[str, Any], ...]:
    asked: frozenset[str] = frozenset()
    for written in (spec.requirements, spec.rank):
        if written:
            asked |= expr.parse(written).job_names
    facts = describe(spec, owner) if asked else {}
    return tuple((name, facts.get(name)) for name in sorted(asked))
