"""Structs and protocols of pools: readings, decisions, plans, controllers and decorators."""

from __future__ import annotations

import math
from typing import Any, Protocol, runtime_checkable

import msgspec

#: What is not known is taken as well used, so that there will be something to measure.
ASSUMED = 1.0


class Reading(msgspec.Struct, frozen=True):
    """What is seen of a pool at one moment; volumes are in cores unless the pool says otherwise."""

    #: The volume that it provides now.
    supply: float
    #: The volume that it was asked to provide.
    demand: float
    #: The used fraction of the supply; None if undefined.
    utilisation: float | None = None
    #: The allocated fraction of the supply; None if undefined.
    allocation: float | None = None
    #: Volumes on the way: waiting at a provider, and starting.
    queued: float = 0.0
    booting: float = 0.0
    #: The volume that finishes what it has and takes no more.
    draining: float = 0.0

    @classmethod
    def of(
        cls, supply: float, demand: float, utilisation: float | None, allocation: float | None
    ) -> Reading:
        """Read what a pool says of itself; what supplies nothing is neither well nor badly used."""
        if not supply > 0:
            return cls(0.0, demand)
        return cls(supply, demand, known(utilisation), known(allocation))

    def assumed(self) -> Reading:
        """Take what is undefined as well used."""
        if self.utilisation is not None and self.allocation is not None:
            return self
        return msgspec.structs.replace(
            self,
            utilisation=ASSUMED if self.utilisation is None else self.utilisation,
            allocation=ASSUMED if self.allocation is None else self.allocation,
        )


class Decision(msgspec.Struct, frozen=True):
    """What a controller wants, and why."""

    #: The volume that the pool should provide.
    demand: float
    #: What was seen and why it leads to this, for people.
    words: str
    #: Whether nothing new was decided: what is below is left as it is.
    hold: bool = False
    #: What the controller wants to be handed the next time.
    state: Any = None


class LogLine(msgspec.Struct, frozen=True):
    """A line for a log."""

    #: The log's name.
    name: str
    level: int
    #: A `%`-style message, and the fields that it may name.
    message: str
    fields: dict[str, Any]


class Decorated(msgspec.Struct, frozen=True):
    """What a decorator makes of a demand."""

    #: What is passed on; nothing leaves what is below as it is.
    demand: float | None
    #: The demand as it is seen from above from now on.
    seen: float
    words: str = ""
    state: Any = None
    #: What is logged if this is done.
    record: LogLine | None = None


class View(msgspec.Struct, frozen=True):
    """What is seen of a pool and of all that it is made of."""

    name: str
    reading: Reading
    below: tuple[View, ...] = ()


class Plan(msgspec.Struct, frozen=True):
    """What would be done to a pool and to all that it is made of."""

    name: str
    #: What it would be asked for; nothing leaves it as it is.
    demand: float | None
    #: How much of that it takes.
    taken: float
    words: str = ""
    below: tuple[Plan, ...] = ()
    state: Any = None
    record: LogLine | None = None


@runtime_checkable
class Pool(Protocol):
    """A volume of resources that are alike; COBalD's pools are such."""

    @property
    def supply(self) -> float:
        """The volume that it provides."""

    @property
    def demand(self) -> float:
        """The volume that it should provide."""

    @demand.setter
    def demand(self, value: float) -> None: ...

    @property
    def utilisation(self) -> float | None:
        """The fraction of the supply that is made use of."""

    @property
    def allocation(self) -> float | None:
        """The fraction of the supply that is taken."""


@runtime_checkable
class Target(Protocol):
    """The target of a pipeline; observing, planning and acting are separate steps."""

    @property
    def name(self) -> str:
        """What people call it."""

    def view(self) -> View:
        """See it, once a cycle."""

    def plan(self, view: View, demand: float | None, elapsed: float) -> Plan:
        """Return what would be done; nothing changes, and without a demand only time passes."""

    def act(self, plan: Plan) -> None:
        """Do it."""


@runtime_checkable
class Controller(Protocol):
    """What decides, and does nothing else."""

    @property
    def interval(self) -> float:
        """Seconds between two decisions."""

    def decide(self, reading: Reading, elapsed: float, state: Any = None) -> Decision:  # noqa: ANN401 - its own
        """Return the demand, `elapsed` seconds after the last decision."""


@runtime_checkable
class Decorator(Protocol):
    """What stands between a controller and a pool, and changes what is asked for."""

    def see(self, below: View, state: Any) -> Reading:  # noqa: ANN401 - its own
        """Return how the pool looks from above."""

    def decorate(self, demand: float | None, below: View, elapsed: float, state: Any) -> Decorated:  # noqa: ANN401
        """Return what is passed on; without a demand only time passes."""


def known(fraction: float | None) -> float | None:
    """Return a fraction that is a number, or nothing."""
    return None if fraction is None or math.isnan(fraction) else float(fraction)


def mean(pairs: list[tuple[float, float | None]]) -> float | None:
    """Return the mean of what is defined, weighted; undefined if nothing weighs anything."""
    total = weighed = 0.0
    for weight, value in pairs:
        if value is not None:
            total += weight
            weighed += weight * value
    return weighed / total if total > 0 else None
