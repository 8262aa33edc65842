"""Pools made of several pools, and pools that start others on demand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, Protocol

import msgspec

from pilotage.base import errors
from pilotage.pool.controller import check_interval
from pilotage.pool.model import ASSUMED, Plan, Pool, Reading, Target, View, mean
from pilotage.pool.pipeline import Face, adopt
from pilotage.pool.words import volume


class Policy(Protocol):
    """What makes one pool of many."""

    def combine(self, readings: Sequence[Reading], demand: float) -> Reading:
        """See many as one."""

    def divide(self, demand: float, readings: Sequence[Reading]) -> list[float]:
        """Give each its part."""

    def words(self) -> str:
        """Return by what parts are given."""


class Uniform(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Every pool counts the same, whatever its size."""

    def combine(self, readings: Sequence[Reading], demand: float) -> Reading:
        """Take the plain mean of those that supply anything."""
        # COBalD also counts those that supply nothing, which are neither well nor badly used.
        return _total(readings, demand, [1.0] * len(readings))

    def divide(self, demand: float, readings: Sequence[Reading]) -> list[float]:
        """Give each the same."""
        return [demand / len(readings)] * len(readings)

    def words(self) -> str:
        """Return by what parts are given."""
        return "in equal parts"


class Weighted(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A pool counts by its supply, and is given its part by `weight`."""

    #: What parts are given by.
    weight: Literal["supply", "utilisation", "allocation"] = "supply"
    #: What a pool is given of which nothing is known; without it, its part by its weight, where
    #: what is not known counts as good.
    probe: float | None = None

    def __post_init__(self) -> None:
        if self.weight not in {"supply", "utilisation", "allocation"}:
            hint = "by supply, utilisation or allocation"
            raise errors.ConfigError(f"pools cannot be weighted by {self.weight!r}", hint=hint)
        if self.probe is not None and not self.probe >= 0:
            raise errors.ConfigError(f"probe is {self.probe:g}; it must not be below 0")

    def combine(self, readings: Sequence[Reading], demand: float) -> Reading:
        """Take the mean by supply."""
        # COBalD weights utilisation by itself here: ten full cores and a thousand idle ones
        # are then nearly all used.
        return _total(readings, demand, [one.supply for one in readings])

    def divide(self, demand: float, readings: Sequence[Reading]) -> list[float]:
        """Give each by its weight; if nothing weighs anything, the same."""
        if self.probe is None:
            return _parts(demand, [self._weigh(one) for one in readings])
        least = min(self.probe, demand / len(readings))
        unknown = [not one.supply > 0 for one in readings]
        if all(unknown):
            return _parts(demand, [1.0] * len(readings))
        weights = [
            0.0 if new else self._weigh(one) for new, one in zip(unknown, readings, strict=True)
        ]
        if not sum(weights) > 0:
            weights = [0.0 if new else 1.0 for new in unknown]
        parts = _parts(demand - least * sum(unknown), weights)
        return [least if new else part for new, part in zip(unknown, parts, strict=True)]

    def words(self) -> str:
        """Return by what parts are given."""
        return f"by {self.weight}"

    def _weigh(self, one: Reading) -> float:
        if self.weight == "supply":
            return one.supply
        found = one.utilisation if self.weight == "utilisation" else one.allocation
        return ASSUMED if found is None else found


def _parts(demand: float, weights: list[float]) -> list[float]:
    total = sum(weights)
    if total > 0:
        return [demand * weight / total for weight in weights]
    return [demand / len(weights)] * len(weights)


def _total(readings: Sequence[Reading], demand: float, weights: list[float]) -> Reading:
    pairs = list(zip(weights, readings, strict=True))
    return Reading(
        sum(one.supply for one in readings),
        demand,
        mean([(weight, one.utilisation) for weight, one in pairs]),
        mean([(weight, one.allocation) for weight, one in pairs]),
        sum(one.queued for one in readings),
        sum(one.booting for one in readings),
        sum(one.draining for one in readings),
    )


#: Each round either fills a pool or ends; what few more would move is not worth a cycle's time.
_ROUNDS = 8


class Composite(Face):
    """Pools that are controlled together."""

    def __init__(
        self, policy: Policy, children: list[Target], *, spill: bool = True, name: str = ""
    ) -> None:
        """Begin with the demand that they have; `spill` offers what some refuse to the others."""
        self.policy = policy
        self.children = children
        self.spill = spill
        self.name = name or type(policy).__name__
        self._demand = sum(one.view().reading.demand for one in children)

    def view(self) -> View:
        """See all of them, and as one."""
        below = tuple([one.view() for one in self.children])
        return View(
            self.name, self.policy.combine([one.reading for one in below], self._demand), below
        )

    def plan(self, view: View, demand: float | None, elapsed: float) -> Plan:
        """Give each its part."""
        if demand is None or not self.children:
            below = [
                one.plan(seen, None, elapsed)
                for one, seen in zip(self.children, view.below, strict=True)
            ]
            kept = self._demand if demand is None else demand
            return Plan(self.name, demand, kept, "", tuple(below), kept)
        parts = self.policy.divide(demand, [one.reading for one in view.below])
        plans = [
            one.plan(seen, part, elapsed)
            for one, seen, part in zip(self.children, view.below, parts, strict=True)
        ]
        words = f"{volume(demand)} over {len(plans)} pools {self.policy.words()}"
        if not self.spill:
            return Plan(self.name, demand, demand, words, tuple(plans), demand)
        moved, left = self._spill(view, parts, plans, elapsed)
        if moved:
            words += f"; {volume(moved)} that some cannot take goes to others"
        if left:
            words += f"; {volume(left)} no pool can take"
        # Demand that no pool takes is dropped, so that it does not grow without bound.
        return Plan(self.name, demand, demand - left, words, tuple(plans), demand - left)

    def act(self, plan: Plan) -> None:
        """Ask all of them."""
        self._demand = plan.state
        for one, under in zip(self.children, plan.below, strict=True):
            one.act(under)

    def _spill(
        self, view: View, parts: list[float], plans: list[Plan], elapsed: float
    ) -> tuple[float, float]:
        """Offer what some refuse to the others; return what has moved, and what is left."""
        full: set[int] = set()
        refused = left = self._refused(parts, plans, full)
        for _ in range(_ROUNDS):
            room = [place for place in range(len(plans)) if place not in full]
            if not left or not room:
                break
            weight = sum(parts[place] for place in room)
            for place in room:
                share = parts[place] / weight if weight > 0 else 1 / len(room)
                parts[place] += left * share
                child, seen = self.children[place], view.below[place]
                plans[place] = child.plan(seen, parts[place], elapsed)
            left = self._refused(parts, plans, full)
        return refused - left, left

    @staticmethod
    def _refused(parts: list[float], plans: list[Plan], full: set[int]) -> float:
        left = 0.0
        for place, (part, plan) in enumerate(zip(parts, plans, strict=True)):
            lacking = part - plan.taken
            if lacking > 1e-9 * max(1.0, abs(part)):
                full.add(place)
                parts[place] = plan.taken
                left += lacking
        return left


def weighted(
    *children: Target | Pool,
    weight: Literal["supply", "utilisation", "allocation"] = "supply",
    probe: float | None = None,
    spill: bool = True,
) -> Composite:
    """Make one pool of many that count by their supply."""
    # COBalD's name, which its configurations have logs for.
    name, policy = "WeightedComposite", Weighted(weight, probe)
    return Composite(policy, [adopt(one) for one in children], spill=spill, name=name)


def uniform(*children: Target | Pool, spill: bool = True) -> Composite:
    """Make one pool of many that count the same."""
    name = "UniformComposite"
    return Composite(Uniform(), [adopt(one) for one in children], spill=spill, name=name)


class FactoryPlan(msgspec.Struct, frozen=True):
    """What a factory would do."""

    #: The volume to be made.
    grow: float = 0.0
    #: Which of its children are let go.
    release: tuple[int, ...] = ()


class FactoryState(msgspec.Struct, frozen=True):
    """What a factory wants to know the next time."""

    demand: float
    #: Seconds since it last changed anything.
    age: float = 0.0
    change: FactoryPlan = FactoryPlan()


def census(children: Sequence[Reading], demand: float) -> FactoryPlan:
    """Compare what was ordered with what is wanted.

    COBalD looks at the supply: orders that have not come yet stay when they are no longer wanted.
    """
    excess = sum(one.demand for one in children) - demand
    if excess <= 0:
        return FactoryPlan(grow=-excess)
    release: list[int] = []
    for place in sorted(range(len(children)), key=lambda place: _worth(children[place])):
        ordered = children[place].demand
        if 0 < ordered <= excess:
            excess -= ordered
            release.append(place)
    return FactoryPlan(release=tuple(release))


class Factory(Face):
    """Children of one kind, made one by one; a child whose demand is 0 ends by itself."""

    def __init__(
        self, *children: Pool, factory: Callable[[], Pool], interval: float = 30.0, name: str = ""
    ) -> None:
        """Begin with some children; `factory` makes more, each with its demand set."""
        check_interval(interval)
        self.factory = factory
        self.interval = interval
        self.name = name or "FactoryPool"
        self.children = list(children)
        #: Those that were let go and still supply something.
        self.leaving: list[Pool] = []
        self._kept = FactoryState(sum(one.demand for one in children))

    def view(self) -> View:
        """See all children as one, each by its supply."""
        rows = [_read(one) for one in (*self.children, *self.leaving)]
        reading = Reading(
            sum(one.supply for one in rows),
            self._kept.demand,
            mean([(one.supply, one.utilisation) for one in rows]),
            mean([(one.supply, one.allocation) for one in rows]),
            # Waiting and starting children cannot be distinguished here.
            queued=sum(max(0.0, one.demand - one.supply) for one in rows),
            draining=sum(one.supply for one in rows if not one.demand > 0),
        )
        return View(self.name, reading)

    def plan(self, view: View, demand: float | None, elapsed: float) -> Plan:  # noqa: ARG002
        """Remember the demand; once an interval, say what it takes."""
        wanted, age = self._kept.demand if demand is None else demand, self._kept.age + elapsed
        if age < self.interval:
            return Plan(self.name, demand, wanted, state=FactoryState(wanted, age))
        change = census([_read(one) for one in self.children], wanted)
        words = ""
        if change.grow > 0:
            words = f"{volume(change.grow)} more are ordered"
        elif change.release:
            words = f"{len(change.release)} of {len(self.children)} are let go"
        return Plan(self.name, demand, wanted, words, state=FactoryState(wanted, 0.0, change))

    def act(self, plan: Plan) -> None:
        """Create and remove children."""
        kept: FactoryState = plan.state
        self._kept = msgspec.structs.replace(kept, change=FactoryPlan())
        for place in kept.change.release:
            self.children[place].demand = 0.0
        missing = kept.change.grow
        while missing > 0:
            child = self.factory()
            if not child.demand > 0:
                raise errors.UsageError("a factory must make pools that have a demand")
            self.children.append(child)
            missing -= child.demand
        if kept.age == 0.0:
            self._sort_out()

    def _sort_out(self) -> None:
        self.leaving += [one for one in self.children if not one.demand > 0]
        self.children = [one for one in self.children if one.demand > 0]
        self.leaving = [one for one in self.leaving if one.supply > 0 or one.demand > 0]


def _read(child: Pool) -> Reading:
    return Reading.of(child.supply, child.demand, child.utilisation, child.allocation)


def _worth(child: Reading) -> float:
    # Orders that have not started have no value yet, so they are removed first.
    return child.supply * (child.assumed().utilisation or 0.0)
