"""Simulated pilots, the queues of their providers, and the matching of jobs to them."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterator, Sequence
from enum import IntEnum

from pilotage.pool.simulate import dice
from pilotage.pool.simulate.model import JobKind, Machine, Provider


class PilotPhase(IntEnum):
    """Where a pilot is in its life."""

    QUEUED = 0
    BOOTING = 1
    READY = 2
    DRAINING = 3
    GONE = 4


class SimulatedPilot:
    """A pilot; changed in place, since a run changes it half a million times."""

    __slots__ = (
        "at", "bucket", "cores", "due", "expired", "free", "idle", "jobs", "memory", "pool",
        "ran", "room", "state",
    )  # fmt: skip

    def __init__(self, pool: int, machine: Machine, now: int, due: int) -> None:
        """Begin as an order that is due at some step."""
        self.pool = pool
        self.cores = self.free = machine.cores
        self.memory = self.room = machine.memory
        self.state = PilotPhase.QUEUED
        self.jobs = 0
        self.ran = False
        self.expired = False
        self.bucket = -1
        #: The step of its last change of state, and the one since which it has no job.
        self.at = self.idle = now
        self.due = due

    @property
    def ratios(self) -> tuple[float, float]:
        """Return which parts of its cores and of its memory are taken."""
        return 1 - self.free / self.cores, 1 - self.room / self.memory


class Pool:
    """The pilots of one machine type."""

    __slots__ = (
        "arrived", "blocked", "booting", "draining", "failed", "free", "joined", "machine",
        "queued", "ready",
    )  # fmt: skip

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.queued: dict[SimulatedPilot, None] = {}
        self.booting: dict[SimulatedPilot, None] = {}
        self.ready: dict[SimulatedPilot, None] = {}
        self.draining: dict[SimulatedPilot, None] = {}
        #: Ready pilots by number of free cores, and cores that no job could use.
        self.free = [0] * (machine.cores + 1)
        self.blocked = 0.0
        #: Since they were last asked for: delays of pilots that came, how many died and joined.
        self.arrived: list[int] = []
        self.failed = self.joined = 0

    def enter(self, pilot: SimulatedPilot) -> None:
        """Count a pilot that is ready."""
        self.free[pilot.free] += 1
        usable = pilot.room * pilot.cores / pilot.memory
        if usable < pilot.free:
            self.blocked += pilot.free - usable

    def leave(self, pilot: SimulatedPilot) -> None:
        """Count it no more, before it changes."""
        self.free[pilot.free] -= 1
        usable = pilot.room * pilot.cores / pilot.memory
        if usable < pilot.free:
            self.blocked -= pilot.free - usable


class ProviderQueue:
    """What is on order at one provider, and what it lets us hold."""

    def __init__(self, provider: Provider, hours: int, seed: int) -> None:
        #: The most that it ever lets us hold, and what we hold.
        self.quota = int(provider.capacity * (1 + provider.swing))
        self.held = 0
        self.provider = provider
        self._seed = seed
        self._delays: dict[str, dice.Delays] = {}
        self._capacity = dice.capacities(provider, hours, seed)
        self._congestion = dice.congestion(provider.name, hours, seed)
        self._due: list[tuple[int, int, SimulatedPilot]] = []
        self._waiting: deque[SimulatedPilot] = deque()
        self._number = 0

    def delay(self, machine: Machine, now: int) -> int:
        """Return the steps that a new order waits."""
        if machine.name not in self._delays:
            self._delays[machine.name] = dice.Delays(self.provider, machine.name, self._seed)
        return self._delays[machine.name].next(self._congestion[now])

    def add(self, pilot: SimulatedPilot) -> None:
        """Keep an order until it is due."""
        self._number += 1
        heapq.heappush(self._due, (pilot.due, self._number, pilot))

    def start(self, now: int) -> Iterator[SimulatedPilot]:
        """Return what starts now: due, not cancelled, and with room."""
        due, waiting = self._due, self._waiting
        while due and due[0][0] <= now:
            waiting.append(heapq.heappop(due)[2])
        while waiting:
            pilot = waiting[0]
            if pilot.state is PilotPhase.QUEUED:
                if self.held + pilot.cores > self._capacity[now]:
                    return
                self.held += pilot.cores
                yield pilot
            waiting.popleft()


class Overlay:
    """Jobs that wait, and pilots by what is free in them."""

    def __init__(self, kinds: Sequence[JobKind], widest: int, most: int) -> None:
        """Index pilots by free cores and then by which of the kinds' memories they have."""
        self.kinds = tuple(kinds)
        self.queues: tuple[deque[tuple[int, int]], ...] = tuple(deque() for _ in kinds)
        #: Cores that jobs wait for, and that those of each kind use.
        self.waiting = 0
        self.running = [0] * len(kinds)
        steps = sorted({kind.memory for kind in kinds})
        self._levels = len(steps) + 1
        self._level = tuple(sum(step <= room for step in steps) for room in range(most + 1))
        self._buckets: list[dict[SimulatedPilot, None]] = [
            {} for _ in range((widest + 1) * self._levels)
        ]
        self._mask = 0
        self._fits = tuple(self._permitted(kind, widest) for kind in kinds)
        #: Kinds in the order in which they are matched.
        big = sorted(range(len(kinds)), key=lambda n: (-kinds[n].cores, -kinds[n].memory))
        self._order = tuple(big)
        self._wide = tuple(n for n in big if kinds[n].cores > 1)
        self.reserved: dict[SimulatedPilot, int] = {}

    def _permitted(self, kind: JobKind, widest: int) -> int:
        least = self._level[kind.memory]
        return sum(
            1 << (free * self._levels + level)
            for free in range(kind.cores, widest + 1)
            for level in range(least, self._levels)
        )

    def fits(self, kind: int) -> bool:
        """Return whether some pilot has room for a job of this kind."""
        return bool(self._mask & self._fits[kind])

    def open(self, pilot: SimulatedPilot) -> None:
        """Let a pilot be found, where it has room."""
        if pilot.free and pilot not in self.reserved:
            at = pilot.free * self._levels + self._level[pilot.room]
            pilot.bucket = at
            self._buckets[at][pilot] = None
            self._mask |= 1 << at

    def shut(self, pilot: SimulatedPilot) -> None:
        """Let it be found no more."""
        at = pilot.bucket
        if at >= 0:
            bucket = self._buckets[at]
            del bucket[pilot]
            if not bucket:
                self._mask &= ~(1 << at)
            pilot.bucket = -1

    def best(self, kind: int) -> SimulatedPilot | None:
        """Return the fullest pilot with room, and of these the one with the least memory."""
        found = self._mask & self._fits[kind]
        if not found:
            return None
        return next(iter(self._buckets[(found & -found).bit_length() - 1]))

    @property
    def order(self) -> tuple[int, ...]:
        """Return the kinds, those first that are hard to place."""
        return self._order

    def unreserve(self, pilot: SimulatedPilot) -> None:
        """Release the reservation of a pilot."""
        if self.reserved.pop(pilot, None) is not None:
            self.open(pilot)

    def defragment(self, ready: int, percent: int) -> None:
        """Keep some pilots free of small jobs while bigger ones wait."""
        for pilot, kind in list(self.reserved.items()):
            if not self.queues[kind]:
                self.unreserve(pilot)
        for kind in self._wide:
            lacking = len(self.queues[kind]) - sum(k == kind for k in self.reserved.values())
            while lacking > 0 and len(self.reserved) < ready * percent // 100:
                found = self._emptiest(kind)
                if found is None:
                    break
                self.shut(found)
                self.reserved[found] = kind
                lacking -= 1

    def _emptiest(self, kind: int) -> SimulatedPilot | None:
        cores, memory = self.kinds[kind].cores, self.kinds[kind].memory
        mask = self._mask
        while mask:
            top = mask.bit_length() - 1
            for pilot in self._buckets[top]:
                if pilot.cores >= cores and pilot.memory >= memory:
                    return pilot
            mask ^= 1 << top
        return None
