"""Structs of policies: sights, hints, orders and memory."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

import msgspec


class PilotShape(msgspec.Struct, frozen=True):
    """Pilots of one size at one provider."""

    name: str
    provider: str
    #: What one pilot has; memory in the unit that hints use.
    cores: int
    memory: float


class Sight(PilotShape, frozen=True):
    """What is seen of one pool."""

    #: How many pilots wait at the provider, boot, take jobs, and take no more.
    queued: int = 0
    booting: int = 0
    ready: int = 0
    draining: int = 0
    #: How many of those that take jobs have 0, 1, 2, … cores free.
    free: tuple[int, ...] = ()
    #: Cores of these that no job can use, since another feature is taken.
    blocked: float = 0.0
    #: Seconds that pilots without a job have had none, the longest first.
    idle: tuple[float, ...] = ()
    #: The same of those that have never had one.
    fresh: tuple[float, ...] = ()
    #: Free cores of those that drain and could be called back, the fullest first.
    callable: tuple[int, ...] = ()
    #: Seconds that pilots waited which have started since the last time, and how many died.
    arrived: tuple[float, ...] = ()
    failed: int = 0
    #: How many have begun to take jobs since.
    joined: int = 0
    #: Seconds after which the provider ends the next ones, the first first.
    leaving: tuple[float, ...] = ()
    #: Seconds that the oldest order has waited.
    oldest: float = 0.0
    #: Cores that may be had of the provider, over all its shapes.
    quota: float = float("inf")
    #: What a core-hour costs beside others.
    price: float = 1.0
    #: Whether the provider lets pilots live for ever.
    lasting: bool = False

    @property
    def pending(self) -> int:
        """Return the pilots that are to come."""
        return self.queued + self.booting

    @property
    def spare(self) -> float:
        """Return the free cores that jobs could use."""
        total = sum(cores * count for cores, count in enumerate(self.free))
        return max(0.0, total - self.blocked)

    @property
    def busy(self) -> int:
        """Return the cores in use in pilots that take jobs."""
        return self.ready * self.cores - sum(n * count for n, count in enumerate(self.free))


class Hint(msgspec.Struct, frozen=True):
    """A hint of the queue: waiting jobs with the same needs."""

    name: str
    cores: int
    memory: float
    #: Cores that all of them want.
    waiting: float
    #: Whether a pilot has room for one now, so that none should wait.
    fits: bool = False


class Act(StrEnum):
    """What can be done to a pool."""

    ORDER = "order"
    CANCEL = "cancel"
    DRAIN = "drain"
    RECALL = "recall"
    RELEASE = "release"


class PoolOrder(msgspec.Struct, frozen=True):
    """A change of one pool, and the reason."""

    pool: str
    act: Act
    #: How many pilots; the idle and emptiest are drained, the fullest called back.
    count: int
    words: str


class Care(msgspec.Struct, frozen=True):
    """What a policy remembers of a pool."""

    #: Seconds from order to start, as learnt.
    latency: float = 1800.0
    #: The same as only those have shown that came: waiting teaches nothing here.
    usual: float = 600.0
    #: Deaths in a row, and until when nothing is ordered because of them.
    deaths: int = 0
    until: float = 0.0


class Need(msgspec.Struct, frozen=True):
    """What a policy remembers of a kind of jobs."""

    #: Cores that have waited for a while, and for a short while.
    lasting: float = 0.0
    recent: float = 0.0
    #: Cores of hinted jobs that turned out not to wait.
    phantom: float = 0.0


class Memory(msgspec.Struct, frozen=True):
    """Everything that a policy hands to itself."""

    time: float = 0.0
    pools: Mapping[str, Care] = {}
    needs: Mapping[str, Need] = {}
    #: Seconds for which there was no room anywhere, or in which there was, below 0.
    pressed: float = 0.0
    #: Cores that may be on order, for the policy without hints.
    window: float = 0.0


class PolicyDecision(msgspec.Struct, frozen=True):
    """Orders, and what to remember."""

    orders: tuple[PoolOrder, ...]
    memory: Memory
