"""One drone, and what it counts for in its pool."""

from __future__ import annotations

from enum import IntEnum

from .model import Machine


class State(IntEnum):
    """Where a drone is in its life."""

    QUEUED = 0
    BOOTING = 1
    READY = 2
    DRAINING = 3
    GONE = 4


class Drone:
    """A drone; changed in place, since a run changes it half a million times."""

    __slots__ = (
        "at", "bucket", "cores", "due", "expired", "free", "idle", "jobs", "memory", "pool",
        "ran", "room", "state",
    )  # fmt: skip

    def __init__(self, pool: int, machine: Machine, now: int, due: int) -> None:
        """Begin as an order that is due at some step."""
        self.pool = pool
        self.cores = self.free = machine.cores
        self.memory = self.room = machine.memory
        self.state = State.QUEUED
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
    """The drones of one machine type."""

    __slots__ = (
        "arrived", "blocked", "booting", "draining", "failed", "free", "joined", "machine",
        "queued", "ready",
    )  # fmt: skip

    def __init__(self, machine: Machine) -> None:
        """Begin with nothing."""
        self.machine = machine
        self.queued: dict[Drone, None] = {}
        self.booting: dict[Drone, None] = {}
        self.ready: dict[Drone, None] = {}
        self.draining: dict[Drone, None] = {}
        #: How many of the ready have so many cores free, and cores that no job could use.
        self.free = [0] * (machine.cores + 1)
        self.blocked = 0.0
        #: Since they were last asked for: delays of drones that came, how many died and joined.
        self.arrived: list[int] = []
        self.failed = self.joined = 0

    def enter(self, drone: Drone) -> None:
        """Count a drone that is ready."""
        self.free[drone.free] += 1
        usable = drone.room * drone.cores / drone.memory
        if usable < drone.free:
            self.blocked += drone.free - usable

    def leave(self, drone: Drone) -> None:
        """Count it no more, before it changes."""
        self.free[drone.free] -= 1
        usable = drone.room * drone.cores / drone.memory
        if usable < drone.free:
            self.blocked -= drone.free - usable
