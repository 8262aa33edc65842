"""Structs of a simulation: scenarios, providers, machines, loads and figures."""

from __future__ import annotations

import msgspec

from pilotage.pool.policy.model import PilotShape


class JobKind(msgspec.Struct, frozen=True):
    """Jobs that need the same."""

    name: str
    cores: int
    #: Gigabytes.
    memory: int
    #: Hours: the middle of a log-normal, its width, and what none exceeds.
    median: float
    sigma: float
    longest: float = 12.0
    #: Its usual part of the work.
    share: float = 0.2


class Machine(PilotShape, frozen=True):
    """What a provider starts as a pilot."""

    #: Gigabytes.
    memory: int
    #: Hours after which a pilot takes no more jobs; 0 is never.
    lifetime: float = 0.0
    #: Minutes from its start to its first job.
    boot: int = 5
    #: What a core-hour costs beside others.
    price: float = 1.0


class Provider(msgspec.Struct, frozen=True):
    """A provider that starts pilots after a delay."""

    name: str
    #: Cores that we may hold, in the middle; `swing` is how far that changes.
    capacity: int
    swing: float
    #: Hours that an order waits: the middle of a log-normal, and its width.
    delay: float
    sigma: float


class Load(msgspec.Struct, frozen=True):
    """How jobs come."""

    #: Hours that a phase lasts, in the mean.
    phase: float = 18.0
    #: How many phases of a hundred are idle.
    idle: float = 15.0
    #: Cores that a phase keeps busy, from and to.
    low: float = 200.0
    high: float = 1200.0
    #: Jobs that come together, in the mean.
    batch: float = 12.0
    #: How near the mix of a phase is to the usual one.
    even: float = 4.0


class Outage(msgspec.Struct, frozen=True):
    """Hours in which the pilots of a provider die as they boot."""

    provider: str
    begin: float
    end: float


class Scenario(msgspec.Struct, frozen=True, kw_only=True):
    """Everything but the dice."""

    name: str
    providers: tuple[Provider, ...]
    machines: tuple[Machine, ...]
    kinds: tuple[JobKind, ...]
    load: Load = Load()
    failures: tuple[Outage, ...] = ()
    #: Hours simulated, and those at the beginning that do not count.
    hours: int = 120
    warm: int = 12
    #: Pilots of a hundred that may be kept free for jobs of many cores.
    reserve: int = 10

    def kills(self, provider: str, hour: float) -> bool:
        """Return whether pilots of a provider die as they boot."""
        return any(
            one.provider == provider and one.begin <= hour < one.end for one in self.failures
        )


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """What came of it."""

    #: Core-hours that jobs used, of all that pilots held from boot to release.
    utilisation: float
    #: Core-hours.
    held: float
    used: float
    waste: float
    #: Core-hours that jobs asked for, and that they waited.
    arrived: float
    waited: float
    #: Jobs.
    jobs: int
    started: int
    #: Hours.
    wait: float
    wait_p95: float
    turnaround: float
    #: Orders placed, orders cancelled, pilots started, pilots that never ran a job.
    orders: int
    cancelled: int
    drones: int
    unused: int
    #: Core-hours of waste by reason: boot, drain, idle, partly.
    reasons: dict[str, float] = {}

    def score(self, price: float = 0.25) -> float:
        """Return J: what was wasted and waited, of what was asked for."""
        return (self.waste + price * self.waited) / self.arrived if self.arrived else 0.0

    @property
    def served(self) -> float:
        """Return the part of the work that was done."""
        return self.used / self.arrived if self.arrived else 0.0
