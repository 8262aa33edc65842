"""A pool that makes the pools that it is made of, and lets them go."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from pilotage.base import errors
from pilotage.pool.controller.linear import check_interval
from pilotage.pool.model import Plan, Pool, Reading, View, mean
from pilotage.pool.pipeline import Face
from pilotage.pool.words import volume


class Change(msgspec.Struct, frozen=True):
    """What a factory would do."""

    #: The volume to be made.
    grow: float = 0.0
    #: Which of its children are let go.
    release: tuple[int, ...] = ()


class Kept(msgspec.Struct, frozen=True):
    """What a factory wants to know the next time."""

    demand: float
    #: Seconds since it last changed anything.
    age: float = 0.0
    change: Change = Change()


def census(children: Sequence[Reading], demand: float) -> Change:
    """Compare what was ordered with what is wanted.

    COBalD looks at the supply: orders that have not come yet stay when they are no longer wanted.
    """
    excess = sum(one.demand for one in children) - demand
    if excess <= 0:
        return Change(grow=-excess)
    release: list[int] = []
    for place in sorted(range(len(children)), key=lambda place: _worth(children[place])):
        ordered = children[place].demand
        if 0 < ordered <= excess:
            excess -= ordered
            release.append(place)
    return Change(release=tuple(release))


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
        self._kept = Kept(sum(one.demand for one in children))

    def view(self) -> View:
        """See all children as one, each by its supply."""
        rows = [_read(one) for one in (*self.children, *self.leaving)]
        reading = Reading(
            sum(one.supply for one in rows),
            self._kept.demand,
            mean([(one.supply, one.utilisation) for one in rows]),
            mean([(one.supply, one.allocation) for one in rows]),
            # Nothing here tells what waits from what starts.
            queued=sum(max(0.0, one.demand - one.supply) for one in rows),
            draining=sum(one.supply for one in rows if not one.demand > 0),
        )
        return View(self.name, reading)

    def plan(self, view: View, demand: float | None, elapsed: float) -> Plan:  # noqa: ARG002
        """Remember the demand; once an interval, say what it takes."""
        wanted, age = self._kept.demand if demand is None else demand, self._kept.age + elapsed
        if age < self.interval:
            return Plan(self.name, demand, wanted, state=Kept(wanted, age))
        change = census([_read(one) for one in self.children], wanted)
        words = ""
        if change.grow > 0:
            words = f"{volume(change.grow)} more are ordered"
        elif change.release:
            words = f"{len(change.release)} of {len(self.children)} are let go"
        return Plan(self.name, demand, wanted, words, state=Kept(wanted, 0.0, change))

    def act(self, plan: Plan) -> None:
        """Make children, and let children go."""
        kept: Kept = plan.state
        self._kept = msgspec.structs.replace(kept, change=Change())
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
    # Orders that have not come are worth nothing yet, so they go first.
    return child.supply * (child.assumed().utilisation or 0.0)
