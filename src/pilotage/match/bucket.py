"""Queued jobs of one owner, cluster and limit, the most urgent first; jobs that enter and leave."""

from __future__ import annotations

import heapq
import math
from typing import TYPE_CHECKING

import msgspec

from pilotage.match.cluster import Cluster

if TYPE_CHECKING:
    from collections.abc import Collection

    from pilotage.match.cluster import Cluster
    from pilotage.match.place import Place

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
