"""Many pools that look like one."""

from __future__ import annotations

from typing import Literal

from pilotage.pool.composite.policy import Policy, Uniform, Weighted
from pilotage.pool.model import Plan, Pool, Target, View
from pilotage.pool.pipeline import Face, adopt
from pilotage.pool.words import volume

#: Each round either fills a pool or ends; what few more would move is not worth a cycle's time.
_ROUNDS = 8


class Composite(Face):
    """Pools that are steered together."""

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
            words += f"; {volume(left)} nobody can take"
        # What nobody takes is not remembered, or the demand would run away from what can be had.
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
