"""Joining by `>>`: `Linear(rate=2) >> Standardiser(maximum=100) >> pool`.

Controllers and shapes are values. Joined to a pool they become a `Pipeline`, which holds their
states, sees, plans and acts. A decorator joined to a pool is a pool again.
"""

from __future__ import annotations

import logging
from typing import Any

import msgspec

from pilotage.base import errors
from pilotage.pool.model import Controller, Decorator, LogLine, Plan, Pool, Reading, Target, View


class Stage(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A controller or a decorator that waits for what it stands above."""

    def __rshift__(self, other: Stage | StageChain | Target | Pool) -> Any:  # noqa: ANN401 - see Chain
        """Stand above another stage, or above a pool."""
        return StageChain((self,)) >> other


class StageChain(msgspec.Struct, frozen=True):
    """Stages that wait for a pool; the first stands above the others."""

    stages: tuple[Any, ...]

    def __rshift__(self, other: Stage | StageChain | Target | Pool) -> Any:  # noqa: ANN401
        """Stand above more stages, or become a pipeline or a pool."""
        if isinstance(other, StageChain):
            return StageChain(self.stages + other.stages)
        if isinstance(other, Stage):
            return StageChain((*self.stages, other))
        below = adopt(other)
        for stage in reversed(self.stages[1:]):
            below = Bound(_decorator(stage), below)
        first = self.stages[0]
        if isinstance(first, Controller):
            return Pipeline(first, below)
        return Bound(_decorator(first), below)


class Face:
    """The four properties of COBalD's pools, for code that knows those only."""

    def view(self) -> View:
        """See it."""
        raise NotImplementedError

    def plan(self, view: View, demand: float | None, elapsed: float) -> Plan:
        """Return what would be done."""
        raise NotImplementedError

    def act(self, plan: Plan) -> None:
        """Do it."""
        raise NotImplementedError

    @property
    def supply(self) -> float:
        """The volume that it provides."""
        return self.view().reading.supply

    @property
    def demand(self) -> float:
        """The volume that it should provide; setting it takes effect at once."""
        return self.view().reading.demand

    @demand.setter
    def demand(self, value: float) -> None:
        self.act(self.plan(self.view(), value, 0.0))

    @property
    def utilisation(self) -> float:
        """The fraction of the supply that is made use of."""
        return self.view().reading.assumed().utilisation or 0.0

    @property
    def allocation(self) -> float:
        """The fraction of the supply that is taken."""
        return self.view().reading.assumed().allocation or 0.0


class Leaf(Face):
    """A pool that is made of nothing else, as far as a pipeline sees."""

    def __init__(self, pool: Pool, name: str = "") -> None:
        """Stand for a pool that has the four properties."""
        self.pool = pool
        self.name = name or str(getattr(pool, "name", "")) or type(pool).__qualname__

    def view(self) -> View:
        """Read the pool; one that can say more has `read()`."""
        read = getattr(self.pool, "read", None)
        if read is not None:
            return View(self.name, read())
        pool = self.pool
        seen = Reading.of(pool.supply, pool.demand, pool.utilisation, pool.allocation)
        return View(self.name, seen)

    def plan(self, view: View, demand: float | None, elapsed: float) -> Plan:  # noqa: ARG002
        """Take what is asked for."""
        return Plan(self.name, demand, view.reading.demand if demand is None else demand)

    def act(self, plan: Plan) -> None:
        """Ask the pool for it."""
        if plan.demand is not None:
            self.pool.demand = plan.demand


class Bound(Face):
    """A decorator above a pool, which looks like a pool."""

    def __init__(self, decorator: Decorator, target: Target, state: Any = None) -> None:  # noqa: ANN401
        self.decorator = decorator
        self.target = target
        self.state = state
        self.name = type(decorator).__name__

    def view(self) -> View:
        """See the target as the decorator shows it."""
        below = self.target.view()
        return View(self.name, self.decorator.see(below, self.state), (below,))

    def plan(self, view: View, demand: float | None, elapsed: float) -> Plan:
        """Decorate the demand and pass it on."""
        (below,) = view.below
        made = self.decorator.decorate(demand, below, elapsed, self.state)
        under = self.target.plan(below, made.demand, elapsed)
        refused = 0.0 if made.demand is None else max(0.0, made.demand - under.taken)
        taken = made.seen - refused if refused else made.seen
        return Plan(
            self.name, made.demand, taken, made.words, (under,), made.state, made.record
        )  # fmt: skip

    def act(self, plan: Plan) -> None:
        """Remember, log, and pass it on."""
        self.state = plan.state
        if plan.record is not None:
            _log(plan.record)
        self.target.act(plan.below[0])


class Pipeline:
    """A controller above a pool; the owner of the clock calls `tick`."""

    def __init__(self, controller: Controller, target: Target | Pool, state: Any = None) -> None:  # noqa: ANN401
        """Control the target, starting from a controller state."""
        self.controller = controller
        self.target = adopt(target)
        self.state = state
        self.name = type(controller).__name__

    @property
    def interval(self) -> float:
        """Seconds between two ticks."""
        return self.controller.interval

    def view(self) -> View:
        """Observe the target."""
        return self.target.view()

    def plan(self, view: View, elapsed: float, passed: float | None = None) -> Plan:
        """Return what would be done and why; nothing changes.

        `elapsed` seconds have gone by since the last decision, `passed` since anything was done.
        """
        made = self.controller.decide(view.reading, elapsed, self.state)
        gone = elapsed if passed is None else passed
        under = self.target.plan(view, None if made.hold else made.demand, gone)
        return Plan(self.name, made.demand, under.taken, made.words, (under,), made.state)

    def act(self, plan: Plan) -> None:
        """Do it."""
        self.state = plan.state
        self.target.act(plan.below[0])

    def rest(self, passed: float) -> Plan:
        """Let time pass for what is below, without a decision; return what was done."""
        plan = self.target.plan(self.view(), None, passed)
        self.target.act(plan)
        return plan

    def tick(self, elapsed: float) -> Plan:
        """See, plan and act; return what was done."""
        plan = self.plan(self.view(), elapsed)
        self.act(plan)
        return plan


def adopt(pool: Target | Pool) -> Target:
    """Return the object as a target, adapted if necessary."""
    if isinstance(pool, Pipeline):
        raise errors.UsageError("a pipeline has a controller already; nothing stands above it")
    if isinstance(pool, Target):
        return pool
    lacking = [name for name in _PROPERTIES if not hasattr(pool, name)]
    if lacking:
        message = f"{type(pool).__name__} is no pool: it has no {', '.join(lacking)}"
        raise errors.UsageError(message, hint="the last of a pipeline is a pool")
    return Leaf(pool)


def explain(plan: Plan) -> list[str]:
    """Return what a plan says, from the controller to the pools, those with nothing to say left out."""  # noqa: E501
    found = [f"{plan.name}: {plan.words}"] if plan.words else []
    for one in plan.below:
        found += ["  " + line for line in explain(one)]
    return found


_PROPERTIES = ("supply", "demand", "utilisation", "allocation")


def _decorator(stage: Any) -> Decorator:  # noqa: ANN401 - whatever was joined
    if isinstance(stage, Decorator):
        return stage
    message = f"{type(stage).__name__} cannot stand here: only the first of a pipeline decides"
    raise errors.UsageError(message)


def _log(record: LogLine) -> None:
    logging.getLogger(record.name).log(record.level, record.message, record.fields)
