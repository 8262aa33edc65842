"""The queue of jobs and the drones that have room: best fit, big jobs first."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from .drone import Drone
from .model import Kind


class Overlay:
    """Jobs that wait, and drones by what is free in them."""

    def __init__(self, kinds: Sequence[Kind], widest: int, most: int) -> None:
        """Index drones by free cores and then by which of the kinds' memories they have."""
        self.kinds = tuple(kinds)
        self.queues: tuple[deque[tuple[int, int]], ...] = tuple(deque() for _ in kinds)
        #: Cores that jobs wait for, and that those of each kind use.
        self.waiting = 0
        self.running = [0] * len(kinds)
        steps = sorted({kind.memory for kind in kinds})
        self._levels = len(steps) + 1
        self._level = tuple(sum(step <= room for step in steps) for room in range(most + 1))
        self._buckets: list[dict[Drone, None]] = [{} for _ in range((widest + 1) * self._levels)]
        self._mask = 0
        self._fits = tuple(self._permitted(kind, widest) for kind in kinds)
        #: Kinds in the order in which they are matched.
        big = sorted(range(len(kinds)), key=lambda n: (-kinds[n].cores, -kinds[n].memory))
        self._order = tuple(big)
        self._wide = tuple(n for n in big if kinds[n].cores > 1)
        self.reserved: dict[Drone, int] = {}

    def _permitted(self, kind: Kind, widest: int) -> int:
        least = self._level[kind.memory]
        return sum(
            1 << (free * self._levels + level)
            for free in range(kind.cores, widest + 1)
            for level in range(least, self._levels)
        )

    def fits(self, kind: int) -> bool:
        """Say whether some drone has room for a job of this kind."""
        return bool(self._mask & self._fits[kind])

    def open(self, drone: Drone) -> None:
        """Let a drone be found, where it has room."""
        if drone.free and drone not in self.reserved:
            at = drone.free * self._levels + self._level[drone.room]
            drone.bucket = at
            self._buckets[at][drone] = None
            self._mask |= 1 << at

    def shut(self, drone: Drone) -> None:
        """Let it be found no more."""
        at = drone.bucket
        if at >= 0:
            bucket = self._buckets[at]
            del bucket[drone]
            if not bucket:
                self._mask &= ~(1 << at)
            drone.bucket = -1

    def best(self, kind: int) -> Drone | None:
        """Return the fullest drone with room, and of these the one with the least memory."""
        found = self._mask & self._fits[kind]
        if not found:
            return None
        return next(iter(self._buckets[(found & -found).bit_length() - 1]))

    @property
    def order(self) -> tuple[int, ...]:
        """Return the kinds, those first that are hard to place."""
        return self._order

    def unreserve(self, drone: Drone) -> None:
        """Let everybody use a drone again."""
        if self.reserved.pop(drone, None) is not None:
            self.open(drone)

    def defragment(self, ready: int, percent: int) -> None:
        """Keep some drones free of small jobs while bigger ones wait."""
        for drone, kind in list(self.reserved.items()):
            if not self.queues[kind]:
                self.unreserve(drone)
        for kind in self._wide:
            lacking = len(self.queues[kind]) - sum(k == kind for k in self.reserved.values())
            while lacking > 0 and len(self.reserved) < ready * percent // 100:
                found = self._emptiest(kind)
                if found is None:
                    break
                self.shut(found)
                self.reserved[found] = kind
                lacking -= 1

    def _emptiest(self, kind: int) -> Drone | None:
        cores, memory = self.kinds[kind].cores, self.kinds[kind].memory
        mask = self._mask
        while mask:
            top = mask.bit_length() - 1
            for drone in self._buckets[top]:
                if drone.cores >= cores and drone.memory >= memory:
                    return drone
            mask ^= 1 << top
        return None
